"""A comparison as one still picture, for where no script runs: SVG text on its own ground."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from workbench.analysis.chart_cells import Cell
from workbench.common.units import print_size
from workbench.front_end.svg import DASH_ARRAYS, line, opened, round_up, text

WIDTH, LEFT, TOP, PLOT, GAP = 960, 56, 84, 180, 34
ROW = 18  # of the key


def svg(cells: Sequence[Cell], words: str) -> str:
    """Return the charts of a comparison side by side, with their key below."""
    looks_of = zip(cells[0].traces, cells[0].looks, strict=True) if cells else ()
    lines = [(trace, look) for trace, look in looks_of if trace.name]
    notes = cells[0].title.rpartition('px">')[2].removesuffix("</span>") if cells else ""
    columns = 3
    key = ROW * -(-len(lines) // columns)
    height = TOP + PLOT + 56 + key
    wide = (WIDTH - 16) / max(len(cells), 1)
    parts = [
        *opened(words, WIDTH, height),
        text(16, 24, words, "ink", size=14, most=130),
        text(16, 42, notes, "ink-3", size=11, most=160),
    ]
    for number, cell in enumerate(cells):
        parts += _chart(cell, LEFT + number * wide, wide - LEFT - GAP + 16)
    for number, (trace, look) in enumerate(lines):
        x = 16 + number % columns * (WIDTH - 32) / columns
        y = TOP + PLOT + 56 + number // columns * ROW
        parts.append(_stroke([(x, y - 4), (x + 26, y - 4)], look["line"]))
        parts.append(text(x + 34, y, trace.name, most=44))
    return "".join([*parts, "</svg>"])


def _chart(cell: Cell, left: float, width: float) -> list[str]:
    known = [t for t in cell.traces if len(t.x) and np.isfinite(t.y).any()]
    most_x = max((float(np.nanmax(t.x)) for t in known), default=1.0) or 1.0
    finite = np.concatenate([t.y[np.isfinite(t.y)] for t in known]) if known else np.ones(1)
    bottom, top = _levels(finite)

    def at(x: float, y: float) -> tuple[float, float]:
        return left + width * x / most_x, TOP + PLOT * (top - min(y, top)) / (top - bottom)

    what, _, title = cell.chart.title.partition(" compared, ")
    what, x_title = {"Losses": "Loss", "Returns": "Return"}[what], cell.chart.x
    marks = [text(left - 40, TOP - 26, f"{what}, {title}", "ink", weight=700)]
    for level in (bottom, (bottom + top) / 2, top):
        marks.append(line(at(0, level), at(most_x, level), "rule", 0.75))
        marks.append(
            text(left - 6, at(0, level)[1] + 4, f"{level:g}", "ink-3", size=11, anchor="end")
        )
    marks.append(text(left, TOP + PLOT + 16, "0", "ink-3", size=11, anchor="middle"))
    last = print_size(int(float(f"{most_x:.3g}"))) if cell.chart.across else f"{most_x:,.4g}"
    marks.append(text(left + width, TOP + PLOT + 16, last, "ink-3", size=11, anchor="end"))
    marks.append(
        text(left + width / 2, TOP + PLOT + 16, x_title, "ink-3", size=11, anchor="middle")
    )
    for number, (trace, look) in enumerate(zip(cell.traces, cell.looks, strict=True)):
        points = [at(x, y) for x, y in zip(trace.x, trace.y, strict=True) if math.isfinite(y)]
        if look.get("fill"):
            low = cell.traces[number - 1]
            under = [at(x, y) for x, y in zip(low.x, low.y, strict=True) if math.isfinite(y)]
            marks.append(_band([*points, *reversed(under)], look["fillcolor"]))
        elif trace.name:
            marks.append(_stroke(points, look["line"]))
    return marks


def _levels(values: np.ndarray) -> tuple[float, float]:
    """Return the lowest and the highest value that the picture shows: what diverges leaves it
    rather than making the others flat, and returns may be below 0.
    """
    if values.min() < 0:
        far = round_up(float(max(-values.min(), values.max())))
        return -far, far
    return 0.0, round_up(float(min(values.max(), 3 * np.quantile(values, 0.9))))


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _stroke(points: Sequence[tuple[float, float]], look: dict[str, Any]) -> str:
    return (
        f'<polyline points="{_points(points)}" fill="none" stroke="{look["color"]}" '
        f'stroke-width="1.75" stroke-dasharray="{DASH_ARRAYS[look["dash"]]}"/>'
    )


def _band(points: Sequence[tuple[float, float]], color: str) -> str:
    """Return a band. ``color``: rgba(r,g,b,a), split because not every SVG reader knows it."""
    *rgb, alpha = color.removeprefix("rgba(").removesuffix(")").split(",")
    fill = "#" + "".join(f"{int(part):02x}" for part in rgb)
    return f'<polygon points="{_points(points)}" fill="{fill}" fill-opacity="{alpha}"/>'
