"""A partition as one still picture: minibatches of one process, and below how ranks share them.

For where no widget runs, a saved notebook say. A column is a sample, a row a rank; hatched: taken
before in this epoch; dashed: no rank takes it here; right of the line: not one process's here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workbench.front_end.svg import INK, opened, text
from workbench.training.pipelines.schedule_picture import HUES, ON_DARK

WIDTH, EDGE, LEFT, GAP, SPLIT = 960, 16, 92, 22, 7
TITLE, BELOW, HIGH = 20, 14, 420  # px: above a minibatch, under it, of all
DIGIT = 6.5


@dataclass(frozen=True)
class Column:
    """A sample of a minibatch. ``alone``: one process takes it; ``takers``: ranks, and if again."""

    sample: int
    alone: bool
    takers: tuple[tuple[int, bool], ...]


def columns(minibatch: Mapping[str, Any]) -> list[Column]:
    """Return the columns: one process in its order, then the others as samples are dealt out."""
    drafts: list[tuple[int, bool, list[tuple[int, bool]]]] = [
        (sample, True, []) for sample in minibatch["sequential"]
    ]
    of = minibatch["of"]
    for at in range(max(map(len, of), default=0)):
        for rank, ids in enumerate(of):
            if at >= len(ids):
                continue
            entry = (rank, at in minibatch["repeated"][rank])
            for sample, _, takers in drafts:
                if sample == ids[at] and all(taker != rank for taker, _ in takers):
                    takers.append(entry)
                    break
            else:
                drafts.append((ids[at], False, [entry]))
    return [Column(sample, alone, tuple(takers)) for sample, alone, takers in drafts]


def svg(facts: Mapping[str, Any], words: str, high: float = HIGH) -> str:
    """Draw a partition. ``facts``: the page's run.samples; ``words``: above it; ``high``: px for
    the minibatches, of which one is drawn in any case.
    """
    dealt = [columns(one) for one in facts["minibatches"]]
    ranks, most = facts["ranks"], max(map(len, dealt), default=1)
    digits = max((len(str(one.sample)) for some in dealt for one in some), default=1)
    again = any(any(one["repeated"]) for one in facts["minibatches"])  # beside it the hatch is seen
    need = max(20.0, digits * DIGIT + (14 if again else 7))
    room = WIDTH - LEFT - EDGE - SPLIT
    cell = min(need, room / max(1, most))
    row = 20.0 if ranks <= 8 else 12.0 if ranks <= 16 else 5.0
    panel = cell * most + SPLIT
    across = max(1, int((room + SPLIT + GAP) // (panel + GAP)))
    line = TITLE + 23 + row * ranks + BELOW
    down = max(1, min(int(high // line), -(-len(dealt) // across)))
    shown = dealt[: across * down]
    height = 40 + line * -(-len(shown) // across) + 22
    parts = [
        *opened(words, WIDTH, round(height), _hatches()),
        text(EDGE, 24, words, "ink", size=13, most=140),
    ]
    for i, some in enumerate(shown):
        x, y = LEFT + (i % across) * (panel + GAP), 40 + (i // across) * line + TITLE
        if i % across == 0:
            parts += _ranks(facts.get("rank_of") or range(ranks), y, row)
        parts += _minibatch(facts["minibatches"][i], some, x, y, cell, row, need, ranks)
    left = len(facts["minibatches"]) - len(shown) + facts["more"]
    key = "hatched: taken before in this epoch · dashed: not taken here · right of the line: not "
    key += "in one process's minibatch"
    parts.append(
        text(
            EDGE,
            height - 8,
            f"{key}{f' · {left} more minibatches' if left else ''}",
            "ink-3",
            size=11,
            most=160,
        )
    )
    return "".join([*parts, "</svg>"])


def _hatches() -> str:
    each = "".join(
        f'<pattern id="wb-again-{i}" width="4" height="4" patternUnits="userSpaceOnUse" '
        f'patternTransform="rotate(45)"><rect width="4" height="4" fill="{INK["ground"]}"/>'
        f'<rect width="1.4" height="4" fill="{hue}"/></pattern>'
        for i, hue in enumerate(HUES)
    )
    return f"<defs>{each}</defs>"


def _ranks(ranks: Any, y: float, row: float) -> list[str]:
    every = -(-14 // int(row))
    return [
        text(EDGE, y + 14, "one process", size=11),
        *(
            text(EDGE, y + 23 + at * row + row / 2 + 4, f"rank {rank}", size=11)
            for at, rank in enumerate(ranks)
            if at % every == 0
        ),
    ]


def _minibatch(
    minibatch: Mapping[str, Any],
    some: list[Column],
    x: float,
    y: float,
    cell: float,
    row: float,
    need: float,
    ranks: int,
) -> list[str]:
    wide, same = len(minibatch["sequential"]), all(c.alone and len(c.takers) == 1 for c in some)
    parts = [
        text(
            x,
            y - 7,
            f"minibatch {minibatch['number']} {'✓' if same else '≠'}",
            "ink",
            size=11,
            weight=700,
        )
    ]
    if minibatch["epoch"]:
        parts[0] = parts[0].replace("minibatch", f"epoch {minibatch['epoch']} · minibatch")
    for k, column in enumerate(some):
        left = x + k * cell + (SPLIT if k >= wide else 0)
        parts += _alone(column, left, y, cell, numbers=cell >= need)
        for rank, again in column.takers:
            hue, top = rank % len(HUES), y + 23 + rank * row
            many = ranks > len(HUES)
            color = INK["ink-2"] if many else HUES[hue]
            fill = f"url(#wb-again-{hue})" if again else color
            parts.append(
                f'<rect x="{left:.1f}" y="{top:.1f}" width="{max(0.8, cell - 1.5):.1f}" '
                f'height="{row - 2 if row > 8 else row - 1:.1f}" fill="{fill}" stroke="{color}" '
                f'stroke-width="{1 if again else 0}"/>'
            )
            if cell >= need and row >= 12:
                light = not again and (many or hue in ON_DARK)
                ink = "ground" if light else "ink"
                parts += _number(column.sample, left, top, cell, row, ink, ground=again)
    if 0 < wide < len(some):
        at = x + wide * cell + 2
        parts.append(
            f'<line x1="{at:.1f}" y1="{y:.1f}" x2="{at:.1f}" y2="{y + 23 + row * ranks:.1f}" '
            f'stroke="{INK["edge"]}" stroke-width="1"/>'
        )
    return parts


def _number(
    sample: int, left: float, top: float, cell: float, row: float, ink: str, *, ground: bool
) -> list[str]:
    """Write a sample's number into its cell; on a ``ground``, as it is never on the hatch."""
    number, parts = str(sample), []
    if ground:
        w = len(number) * DIGIT + 3
        parts.append(
            f'<rect x="{left + (cell - 1.5 - w) / 2:.1f}" y="{top + 2:.1f}" '
            f'width="{w:.1f}" height="{row - 6:.1f}" fill="{INK["ground"]}"/>'
        )
    x, y = left + (cell - 1.5) / 2, top + row / 2 + 3
    return [*parts, text(x, y, number, ink, size=11, weight=700, anchor="middle")]


def _alone(column: Column, left: float, y: float, cell: float, *, numbers: bool) -> list[str]:
    """Draw what one process takes; of what it does not take, only the number."""
    parts = []
    if column.alone:
        look = (
            f'fill="{INK["rule"]}"'
            if column.takers
            else f'fill="none" stroke="{INK["ink"]}" stroke-dasharray="2 2"'
        )
        parts.append(
            f'<rect x="{left:.1f}" y="{y:.1f}" width="{max(0.8, cell - 1.5):.1f}" '
            f'height="18" {look}/>'
        )
    if numbers:
        ink, x = "ink" if column.alone else "ink-3", left + (cell - 1.5) / 2
        parts.append(text(x, y + 13, str(column.sample), ink, size=11, anchor="middle"))
    return parts
