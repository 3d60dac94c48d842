"""A drift report as one still picture, for pages without scripts: SVG on its own background."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

from workbench.analysis.chart_cells import Cell
from workbench.front_end.svg import DASH_ARRAYS, line, opened, text
from workbench.studies.drift.charts import LOSS, ULPS, WORDS, Axis

WIDTH, LEFT, TOP, PLOT, GAP = 960, 60, 104, 150, 86
ROW = 20  # of the key
HEAD, VERDICT = 125, 124  # characters of a line: of the words above, of a verdict
Point = tuple[float, float]


def svg(cells: Sequence[Cell], words: str, more: str, key: Sequence[tuple[str, str]]) -> str:
    """Return four charts, two in a row, below ``words`` and a line ``more``.

    Below them stand each training's name and verdict (``key``).
    """
    top_of_key = TOP + 2 * (PLOT + GAP) - 24
    verdicts = [textwrap.wrap(verdict, VERDICT) or [""] for _, verdict in key]
    height = top_of_key + ROW * sum(map(len, verdicts)) + 10
    wide = (WIDTH - 16) / 2
    heads = textwrap.wrap(words, HEAD)[:2]
    parts = [
        *opened(words, WIDTH, height),
        *(text(16, 20 + 18 * k, one, "ink", size=14, most=HEAD + 1) for k, one in enumerate(heads)),
        text(16, 22 + 18 * len(heads), more, "ink-2", most=150),
    ]
    for number, cell in enumerate(cells):
        row, column = divmod(number, 2)
        axis = LOSS if row == 0 else ULPS
        place = LEFT + column * wide, TOP + row * (PLOT + GAP)
        parts += _chart(cell, axis, place, wide - LEFT - 20, markers=row == 1)
    looks = cells[0].looks if cells else []
    y = float(top_of_key)
    for number, ((name, _), look) in enumerate(zip(key, looks, strict=True)):
        parts += _stroke([(16, y - 4), (46, y - 4)], look["line"])
        parts += _mark((31, y - 4), number, look["line"]["color"])
        parts.append(text(56, y, name, "ink", weight=700 if number == 0 else 400, most=24))
        for one in verdicts[number]:
            parts.append(text(206, y, one, "ink-2", most=VERDICT))
            y += ROW
    return "".join([*parts, "</svg>"])


def _chart(cell: Cell, axis: Axis, place: Point, width: float, markers: bool) -> list[str]:
    left, top = place
    ticks = cell.chart.across.get("tickvals", (1, cell.until))  # they count from 1
    first, last = float(ticks[0]), float(ticks[-1])
    low, high = axis.decades

    def across(x: float) -> float:
        if markers:  # by powers of ten
            return left + width * _part(math.log10(x), math.log10(first), math.log10(last))
        return left + width * _part(x, first, last)

    def at(x: float, y: float) -> Point:
        return across(x), top + PLOT * (1 - _part(min(max(math.log10(y), low), high), low, high))

    what = cell.chart.title
    caption = WORDS[what.split()[0]]
    marks = [
        text(left - 44, top - 26, what, "ink", weight=700),
        text(left - 44, top - 10, f"{caption}, {cell.y}", "ink-3", size=11, most=80),
    ]
    for power, label in axis.ticks:
        y = at(1.0, 10.0**power)[1]
        heavy = power == 0 and axis is ULPS  # one ulp: what a single rounding may do
        marks.append(line((left, y), (left + width, y), "edge" if heavy else "rule", 0.75))
        marks.append(text(left - 6, y + 4, label, "ink-3", size=11, anchor="end"))
    for x in ticks:
        marks.append(
            text(across(x), top + PLOT + 16, f"{x:,.0f}", "ink-3", size=11, anchor="middle")
        )
    unit = left + width / 2, top + PLOT + (30 if markers else 16)
    marks.append(text(*unit, cell.chart.x, "ink-3", size=11, anchor="middle"))
    for number, (trace, look) in enumerate(zip(cell.traces, cell.looks, strict=True)):
        points = [
            at(x, y)
            for x, y in zip(trace.x.tolist(), trace.y.tolist(), strict=True)
            if math.isfinite(y)
        ]
        marks += _stroke(points, look["line"])
        if markers and trace.name:
            for point in points:
                marks += _mark(point, number, look["line"]["color"])
    return marks


def _part(x: float, first: float, last: float) -> float:
    return (x - first) / (last - first) if last > first else 0.5


def _stroke(points: Sequence[Point], look: dict[str, Any]) -> list[str]:
    if not points:
        return []
    drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return [
        f'<polyline points="{drawn}" fill="none" stroke="{look["color"]}" '
        f'stroke-width="{look["width"] * 0.85:g}" stroke-dasharray="{DASH_ARRAYS[look["dash"]]}"/>'
    ]


def _mark(place: Point, number: int, color: str) -> list[str]:
    """Return the marker of a training; the shapes are those of charts.MARKERS."""
    (x, y), r = place, 3.6
    d = 1.3 * r
    shapes = (
        f"M{x - r:.1f} {y:.1f}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0z",
        f"M{x - r:.1f} {y - r:.1f}h{2 * r}v{2 * r}h{-2 * r}z",
        f"M{x:.1f} {y - d:.1f}l{d} {d}l{-d} {d}l{-d} {-d}z",
        f"M{x:.1f} {y - r:.1f}l{r} {2 * r}h{-2 * r}z",
        f"M{x - r:.1f} {y - r:.1f}l{2 * r} {2 * r}M{x + r:.1f} {y - r:.1f}l{-2 * r} {2 * r}",
        f"M{x - r:.1f} {y:.1f}h{2 * r}M{x:.1f} {y - r:.1f}v{2 * r}",
    )
    return [
        f'<path d="{shapes[number % len(shapes)]}" fill="{color}" stroke="{color}" '
        'stroke-width="1.4"/>'
    ]
