"""A model that is cut inside its layers (tensor parallelism), as a still picture.

A row for each layer, a box for each rank: its weights, of which the rank has the dark part. A cut
by columns is drawn as columns, one by rows as rows; beside it stands what has to be sent for it.
Blocks that are cut in the same way are drawn once.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.common.units import print_size
from workbench.front_end.svg import INK, text

TOP, ROW, MOST_ROWS = 104.0, 17.0, 12
NAMES, BOXES, BOXES_END = 16.0, 200.0, 420.0  # x
EXCHANGES = 276.0  # px right of the words
WIDE, HIGH, GAP = 28.0, 12.0, 8.0  # of a rank's box


@dataclass(frozen=True)
class Cut:
    """The layers that are drawn, and how many ranks have a part of each."""

    ranks: int
    layers: tuple[Mapping[str, Any], ...]
    alike: int  # layers that are cut as one that is drawn
    more: int  # layers for which there is no room
    sent: Mapping[str, Sequence[str]]  # layer -> its exchanges, in words


def select(model: Mapping[str, Any]) -> Cut | None:
    """Return what to draw of a model's facts; None: it is not cut inside its layers."""
    shards = model.get("shards")
    if not shards:
        return None
    seen, layers = set[tuple[str, str]](), list[Mapping[str, Any]]()
    for shard in shards:
        kind = re.sub(r"\.\d+\.", ".*.", f".{shard['layer']}."), str(shard["words"])
        if kind not in seen:
            seen.add(kind)
            layers.append(shard)
    sent = defaultdict(list)
    for one in model.get("exchanges", ()):
        collective, size = one["collective"].replace("_", "-"), float(f"{one['nbytes']:.3g}")
        first = one["name"].partition(", ")[0]  # of several that share one
        sent[first].append(f"{one['pass']}: {collective} of {print_size(int(size))}")
    drawn, ranks = layers[:MOST_ROWS], len(shards[0]["runs"])
    alike = len(shards) - len(layers)
    return Cut(ranks, tuple(drawn), alike, len(layers) - len(drawn), sent)


def marks(cut: Cut) -> list[str]:
    """Return the SVG elements below the title."""
    step = min(WIDE + GAP, (BOXES_END - BOXES) / cut.ranks)
    beside = BOXES + cut.ranks * step + 2 * GAP
    result = [
        text(BOXES + rank * step + (step - GAP) / 2, TOP - 6, str(rank), "ink-3", anchor="middle")
        for rank in range(cut.ranks)
        if step >= 14 or rank in (0, cut.ranks - 1)
    ]
    result.append(text(BOXES - 8, TOP - 6, "rank", "ink-3", size=11, anchor="end"))
    for row, layer in enumerate(cut.layers):
        y = TOP + row * ROW
        result.append(text(NAMES, y + 10, layer["layer"], "ink", size=11, most=28))
        for rank in range(cut.ranks):
            result += _box(layer, rank, BOXES + rank * step, y, max(4.0, step - GAP))
        result.append(text(beside, y + 10, _how(layer["words"]), size=11, most=52))
        sent = "; ".join(cut.sent.get(layer["layer"], ()))
        result.append(text(beside + EXCHANGES, y + 10, sent, "comm", size=11, most=70))
    return result


def words(cut: Cut) -> str:
    """Return the line below the title."""
    alike = f"the {cut.alike} layers of further blocks are cut in the same way" if cut.alike else ""
    more = f"{cut.more} more layers" if cut.more else ""
    return "; ".join(filter(None, ["dark: what a rank has of the layer's weights", alike, more]))


def _how(description: str) -> str:
    """Return how a layer is cut; of one that is not, no reason."""
    return "whole on every rank" if description.startswith("whole") else description


def _box(layer: Mapping[str, Any], rank: int, x: float, y: float, wide: float) -> list[str]:
    if layer["how"] == "whole" or not layer["size"]:
        return [_filled(x, y, wide, HIGH, "edge")]
    result = [_filled(x, y, wide, HIGH, "rule")]
    for first, end in layer["runs"][rank]:
        before, share = first / layer["size"], (end - first) / layer["size"]
        if layer["how"] == "column":
            result.append(_filled(x + wide * before, y, wide * share, HIGH, "ink-2"))
        else:
            result.append(_filled(x, y + HIGH * before, wide, HIGH * share, "ink-2"))
    return result


def _filled(x: float, y: float, wide: float, high: float, ink: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}" fill="{INK[ink]}"/>'
    )
