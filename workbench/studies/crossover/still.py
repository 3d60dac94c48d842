"""A crossing as one still picture, for where no script runs: SVG text on its own ground."""

from __future__ import annotations

import math
from collections.abc import Sequence
from textwrap import wrap
from typing import Any

from workbench.analysis.chart_cells import Cell
from workbench.front_end.svg import line, opened, text
from workbench.studies.crossover.charts import named

WIDTH, LEFT, RIGHT, PLOT, ROW = 960, 64, 172, 300, 18
LETTERS = 138  # of words, in a row
BETWEEN = 16  # labels at the right end stand at least so far apart
Point = tuple[float, float]


def svg(cell: Cell, words: Sequence[str], state: str) -> str:
    """Return the chart below its text, with each algorithm's name at the end of its line."""
    lines = [row for sentence in words or [state] for row in wrap(sentence, LETTERS)]
    top = 30 + ROW * len(lines) + 40
    height, label = top + PLOT + 48, " ".join(words) or state
    parts = [
        *opened(label, WIDTH, height),
    ]
    parts += [
        text(16, 26 + ROW * at, row, "ink", size=13, most=160) for at, row in enumerate(lines)
    ]
    return "".join([*parts, *_chart(cell, float(top)), "</svg>"])


def _chart(cell: Cell, top: float) -> list[str]:
    points = [
        (float(x), float(y))
        for trace in cell.traces
        for x, y in zip(trace.x, trace.y, strict=True)
        if math.isfinite(y) and y > 0
    ]
    if not points:
        return [text(LEFT, top, "appears with the first prediction", "ink-3")]
    xs, ys = [math.log2(x) for x, _ in points], [math.log10(y) for _, y in points]
    (x0, x1), (y0, y1) = (min(xs), max(xs)), (math.floor(min(ys)), math.ceil(max(ys)))
    width = WIDTH - LEFT - RIGHT

    def at(x: float, y: float) -> Point:
        across = (math.log2(x) - x0) / max(x1 - x0, 1e-9)
        up = (math.log10(y) - y0) / max(y1 - y0, 1)
        return LEFT + 6 + (width - 12) * across, top + PLOT * (1 - up)

    marks = [
        text(LEFT - 48, top - 20, f"{cell.chart.title}, {cell.y}", "ink", weight=700),
        text(
            LEFT + width,
            top - 20,
            "● measured, a median   ── predicted",
            "ink-3",
            size=11,
            anchor="end",
        ),
    ]
    for power in range(y0, y1 + 1):
        y = at(2**x0, 10.0**power)[1]
        marks.append(line((LEFT, y), (LEFT + width, y), "rule", 0.75))
        marks.append(text(LEFT - 6, y + 4, f"{10.0**power:g}", "ink-3", size=11, anchor="end"))
    first = math.ceil(x0)
    for k in range(first + first % 2, math.floor(x1) + 1, 2):
        x = at(2.0**k, 10.0**y0)[0]
        marks.append(text(x, top + PLOT + 18, named(k), "ink-3", size=11, anchor="middle"))
    middle = LEFT + width / 2
    marks.append(text(middle, top + PLOT + 36, "size of the tensor", "ink-3", anchor="middle"))
    ends: list[tuple[float, Point, str, dict[str, Any], int]] = []
    for number, (trace, look) in enumerate(zip(cell.traces, cell.looks, strict=True)):
        known = [
            at(float(x), float(y))
            for x, y in zip(trace.x, trace.y, strict=True)
            if math.isfinite(y) and y > 0
        ]
        if not known:
            continue
        if look["mode"] == "lines":
            drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in known)
            marks.append(
                f'<polyline points="{drawn}" fill="none" stroke="{look["line"]["color"]}" '
                'stroke-width="1.4"/>'
            )
        else:
            marks += [_mark(place, look["marker"]) for place in known]
        if trace.name:
            ends.append((known[-1][1], known[-1], trace.name, look, number))
    return marks + _labels(sorted(ends, key=lambda one: one[0]), LEFT + width, top)


def _labels(ends: Sequence[tuple[Any, ...]], x: float, top: float) -> list[str]:
    """Return names at the right, spread apart, each linked to the end of its line."""
    marks, heights, last = [], [], -math.inf
    for height, *_ in ends:
        last = max(height, last + BETWEEN)
        heights.append(last)
    over = max(0.0, heights[-1] - (top + PLOT)) if heights else 0.0
    for (_, place, name, look, _), y in zip(ends, (h - over for h in heights), strict=True):
        color = look["line"]["color"]
        marks.append(
            f'<path d="M{place[0] + 6:.1f} {place[1]:.1f}L{x + 14:.1f} {y:.1f}" '
            f'stroke="{color}" stroke-width="0.75" fill="none"/>'
        )
        if "marker" in look:
            marks.append(_mark((x + 20, y), look["marker"]))
        marks.append(text(x + 30, y + 4, name, "ink", most=24))
    return marks


def _mark(place: Point, marker: dict[str, Any]) -> str:
    """Return a marker; the shapes are those of charts.SYMBOLS."""
    (x, y), r = place, 4.0
    d = 1.3 * r
    shapes = {
        "circle": f"M{x - r:.1f} {y:.1f}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0z",
        "square": f"M{x - r:.1f} {y - r:.1f}h{2 * r}v{2 * r}h{-2 * r}z",
        "diamond": f"M{x:.1f} {y - d:.1f}l{d} {d}l{-d} {d}l{-d} {-d}z",
        "triangle-up": f"M{x:.1f} {y - d:.1f}l{d} {1.8 * r}h{-2 * d}z",
        "triangle-down": f"M{x:.1f} {y + d:.1f}l{d} {-1.8 * r}h{-2 * d}z",
        "pentagon": f"M{x:.1f} {y - d:.1f}l{d} {0.8 * r}l{-0.4 * d} {1.2 * r}h{-1.2 * d}"
        f"l{-0.4 * d} {-1.2 * r}z",
        "x": f"M{x - r:.1f} {y - r:.1f}l{2 * r} {2 * r}M{x + r:.1f} {y - r:.1f}l{-2 * r} {2 * r}",
        "star": f"M{x - d:.1f} {y:.1f}h{2 * d}M{x:.1f} {y - d:.1f}v{2 * d}",
    }
    color = marker["color"]
    return (
        f'<path d="{shapes[marker["symbol"]]}" fill="{color}" stroke="{color}" stroke-width="1.4"/>'
    )
