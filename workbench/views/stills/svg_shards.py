"""A sharded model in a still picture, drawn: the left half of svg.py where a run has one."""

from __future__ import annotations

from workbench.common.units import print_size
from workbench.front_end.svg import INK, line, round_up, text
from workbench.views.stills.shards import Sharded

LEFT, TOP, WIDE, HIGH = 62.0, 112.0, 250.0, 168.0  # of the layers' columns
BARS = (330.0, 110.0)  # where the bars of bytes begin, and how long they are at most
NUMBERED = 11.0  # px of a row that has its rank's number
NAMED = 30.0  # px of a column that has its layer's name


def marks(still: Sharded) -> list[str]:
    """Draw SVG elements: a box for each layer on each rank, filled with the part that it holds."""
    columns, rows = max(1, len(still.layers)), max(1, still.ranks)
    wide, high = WIDE / columns, HIGH / rows
    gap = 1.0 if high < 12 or wide < 8 else 3.0
    result: list[str] = []
    for layer, name in enumerate(still.layers):
        if wide >= NAMED:
            short = name.rpartition(".")[2]
            result.append(
                text(
                    LEFT + layer * wide,
                    TOP - 8,
                    short,
                    "ink-3",
                    size=11,
                    most=max(2, int(wide / 6)),
                )
            )
    for rank in range(still.ranks):
        y = TOP + rank * high
        if high >= NUMBERED:
            result.append(text(LEFT - 8, y + high / 2 + 3, f"rank {rank}", anchor="end", size=11))
        for layer in range(len(still.layers)):
            x = LEFT + layer * wide
            result += _cell(still, rank, layer, x, y, wide - gap, high - gap)
    return result + _bars(still, high, gap) + _key(still)


def _cell(
    still: Sharded, rank: int, layer: int, x: float, y: float, wide: float, high: float
) -> list[str]:
    parts, here = still.parts[layer], (rank, layer) in still.whole
    size = sum(parts) or 1
    before = sum(parts[:rank]) / size
    own = parts[rank] / size
    result = [_box(x, y, wide, high, "edge" if here else "panel")]
    result.append(_box(x + wide * before, y, wide * own, high, "ink-2"))
    if here:
        result.append(_frame(x, y, wide, high, "ink"))
    return result


def _bars(still: Sharded, high: float, gap: float) -> list[str]:
    if not still.model:
        return []
    x, long = BARS
    scale = round_up(max(still.unsharded, *still.model))
    result = []
    for rank, nbytes in enumerate(still.model):
        y = TOP + rank * high
        result.append(_box(x, y, long, high - gap, "panel"))
        result.append(_box(x, y, long * nbytes / scale, high - gap, "ink-2"))
    if still.unsharded:
        at = x + long * still.unsharded / scale
        result.append(line((at, TOP - 4), (at, TOP + HIGH), "ink", 1))
    most = max(still.model)
    result.append(text(x, TOP - 8, f"at most {_size(most)}", "ink-3", size=11))
    return result


def _key(still: Sharded) -> list[str]:
    y = TOP + HIGH + 22
    result = [_box(16, y - 9, 14, 10, "ink-2"), text(36, y, "its own part", size=11)]
    result += [_box(116, y - 9, 14, 10, "edge"), _frame(116, y - 9, 14, 10, "ink")]
    result.append(text(136, y, "the others' too: whole here", size=11))
    if still.model and still.unsharded:
        words = f"unsharded {_size(still.unsharded)}"
        result += [line((300, y - 10), (300, y + 2), "ink", 1), text(308, y, words, size=11)]
    return result


def _box(x: float, y: float, wide: float, high: float, ink: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(0.0, wide):.1f}" height="{max(0.5, high):.1f}" '
        f'fill="{INK[ink]}"/>'
    )


def _frame(x: float, y: float, wide: float, high: float, ink: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{max(0.5, high):.1f}" '
        f'fill="none" stroke="{INK[ink]}" stroke-width="1"/>'
    )


def _size(nbytes: float) -> str:
    return print_size(int(float(f"{nbytes:.3g}")))
