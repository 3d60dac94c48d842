"""A split model as one still picture: its line of layers, as wide as they last, with the cuts.

For where no widget runs, a saved notebook say. Hue is the stage; an arc is a value that a later
layer than the next one uses; a dashed line is a cut, with the bytes of a microbatch that cross it.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from itertools import accumulate
from typing import Any

from workbench.front_end.svg import INK, opened, text
from workbench.training.pipelines.schedule_picture import HUES, ON_DARK
from workbench.training.splitting.cut import brief

WIDTH, HEIGHT, EDGE = 960, 258, 16
TOP, BOTTOM, HIGHEST = 98.0, 190.0, 34.0  # of the boxes; of an arc above them
LEAST, NAMED = 2.0, 13.0  # px: of a layer, and of one that has its name in it
LETTERS = 16  # of a name that stands upright in its box


def svg(facts: Mapping[str, Any], memory: tuple[int, ...], words: str) -> str:
    """Draw a split model. ``facts``: the page's run.model; ``memory``: bytes of each stage;
    ``words``: above it.
    """
    layers = facts["layers"]
    places = _places([layer["forward_ms"] + layer["backward_ms"] for layer in layers])
    parts = [
        *opened(words, WIDTH, HEIGHT),
        text(EDGE, 24, words, "ink", size=13, most=130),
        *(_arc(places[a + 1], places[b]) for a, b, _ in facts["edges"] if b > a + 1),
    ]
    for i, layer in enumerate(layers):
        parts += _layer(layer, places[i], places[i + 1])
    for cut in facts["cut"]:
        x = places[cut["after"] + 1]
        parts.append(
            f'<line x1="{x:.1f}" y1="52" x2="{x:.1f}" y2="{BOTTOM + 10}" stroke="{INK["ink"]}" '
            'stroke-width="1.5" stroke-dasharray="4 3"/>'
        )
        parts.append(text(x, 47, brief(cut["bytes"]), "ink", size=11, anchor="middle"))
    for stage, nbytes in enumerate(memory):
        own = [i for i, layer in enumerate(layers) if layer["stage"] == stage]
        parts += _stage(stage, nbytes, [layers[i] for i in own], places[own[0]])
    parts.append(
        text(
            EDGE,
            HEIGHT - 8,
            "width: forward and backward of a microbatch, measured",
            "ink-3",
            size=11,
        )
    )
    return "".join([*parts, "</svg>"])


def _places(times: list[float]) -> list[float]:
    """Return where each layer begins, and the last one ends."""
    free, whole = WIDTH - 2 * EDGE - LEAST * len(times), sum(times) or 1.0
    return list(accumulate((LEAST + free * t / whole for t in times), initial=float(EDGE)))


def _layer(layer: Mapping[str, Any], start: float, end: float) -> list[str]:
    hue, name = layer["stage"] % len(HUES), layer["name"]
    name = f"{name} {layer['op']}" if name.isdigit() else name
    width = max(LEAST / 2, end - start - 1)
    box = (
        f'<g><title>{escape(name)}</title><rect x="{start:.1f}" y="{TOP}" width="{width:.1f}" '
        f'height="{BOTTOM - TOP}" fill="{HUES[hue]}"/></g>'
    )
    if width < NAMED:
        return [box]
    short = name if len(name) <= LETTERS else "…" + name[1 - LETTERS :]
    written = text(0, 0, short, "ground" if hue in ON_DARK else "ink", size=11)
    x = start + width / 2 + 4
    return [box, f'<g transform="translate({x:.1f} {BOTTOM - 4}) rotate(-90)">{written}</g>']


def _arc(start: float, end: float) -> str:
    """Draw a value's way over the layers that do not use it."""
    high = min(HIGHEST, 8 + (end - start) / 6) * 4 / 3
    return (
        f'<path d="M{start:.1f} {TOP}C{start:.1f} {TOP - high:.1f} {end:.1f} {TOP - high:.1f} '
        f'{end:.1f} {TOP}" fill="none" stroke="{INK["edge"]}" stroke-width="1"/>'
    )


def _stage(number: int, nbytes: int, layers: list[Mapping[str, Any]], x: float) -> list[str]:
    took = sum(layer["forward_ms"] + layer["backward_ms"] for layer in layers)
    return [
        text(x, BOTTOM + 18, f"stage {number}", "ink", size=11, weight=700),
        text(x, BOTTOM + 32, f"{took:.2f} ms", size=11),
        text(x, BOTTOM + 46, brief(nbytes), size=11),
    ]
