"""A study as one still picture, for where no script runs: SVG text on its own ground."""

from __future__ import annotations

import math
from collections.abc import Sequence
from textwrap import wrap
from typing import Any

import numpy as np

from workbench.analysis.chart_cells import Cell
from workbench.analysis.points import Trace
from workbench.front_end.svg import line, opened, round_up, text

WIDTH, LEFT, PLOT, GAP = 960, 60, 210, 36
ROW = 18  # of words and of the key
ACROSS = 3  # entries of the key in a row
LETTERS = 138  # of words, in a row
SHOWN = (0, 1, 3)  # speed-up, efficiency, cost
WIDE = (1.5, 1.0, 1.0)  # how wide each is, against the others
_DASHES = {"solid": "", "dash": "7 4", "dot": "2 3", "dashdot": "7 3 2 3"}


def svg(cells: Sequence[Cell], words: Sequence[str], state: str) -> str:
    """Draw three of a study's charts (studied.py) side by side, sentences above, legend below."""
    lines = [row for sentence in words or [state] for row in wrap(sentence, LETTERS)]
    top = 30 + ROW * len(lines) + 34
    key = [(t, look) for t, look in zip(cells[0].traces, cells[0].looks, strict=True) if t.name]
    height = top + PLOT + 52 + ROW * -(-len(key) // ACROSS)
    label = " ".join(words) or state
    parts = [
        *opened(label, WIDTH, height),
    ]
    parts += [
        text(16, 26 + ROW * at, row, "ink", size=13, most=160) for at, row in enumerate(lines)
    ]
    x, unit = float(LEFT), (WIDTH - 16 - len(SHOWN) * LEFT - 2 * GAP + 40) / sum(WIDE)
    for at, wide in zip(SHOWN, WIDE, strict=True):
        parts += _chart(cells[at], x, top, unit * wide)
        x += unit * wide + LEFT + GAP - 20
    for number, (trace, look) in enumerate(key):
        x = 16 + number % ACROSS * (WIDTH - 32) / ACROSS
        y = top + PLOT + 52 + number // ACROSS * ROW
        parts += _draw_line([(x, y - 4), (x + 13, y - 4), (x + 26, y - 4)], look, dots=(1,))
        parts.append(text(x + 34, y, trace.name, most=42))
    return "".join([*parts, "</svg>"])


def _chart(cell: Cell, left: float, top: float, width: float) -> list[str]:
    known = [trace for trace in cell.traces if len(trace.x)]
    ranks = sorted({float(x) for trace in known for x in trace.x}) or [1.0]
    values = np.concatenate(
        [_upper(t, look) for t, look in zip(known, cell.looks, strict=False)] or [np.ones(1)]
    )
    finite = values[np.isfinite(values)]
    most = round_up(max(float(finite.max(initial=0.0)), cell.chart.least or 0.0))
    span = max(ranks[-1] - ranks[0], 1e-9)

    def at(x: float, y: float) -> tuple[float, float]:
        return left + 8 + (width - 16) * (x - ranks[0]) / span, top + PLOT * (1 - y / most)

    edge = (left, left + width)
    marks = [text(left - 40, top - 18, f"{cell.chart.title}, {cell.chart.y}", "ink", weight=700)]
    for level in (0.0, most / 2, most):
        y = at(ranks[0], level)[1]
        marks.append(line((edge[0], y), (edge[1], y), "rule", 0.75))
        caption = f"{level:.0%}" if "%" in cell.chart.format else f"{level:g}"
        marks.append(text(left - 6, y + 4, caption, "ink-3", size=11, anchor="end"))
    for x in _apart(ranks, width / span):
        marks.append(
            text(at(x, 0)[0], top + PLOT + 16, f"{x:g}", "ink-3", size=11, anchor="middle")
        )
    middle = left + width / 2
    marks.append(text(middle, top + PLOT + 32, "ranks", "ink-3", size=11, anchor="middle"))
    for trace, look in zip(cell.traces, cell.looks, strict=True):
        pairs = zip(trace.x, trace.y, strict=True)
        points = [at(float(x), float(y)) for x, y in pairs if math.isfinite(y)]
        marks += _bars(trace, look, at)
        marks += _draw_line(points, look)
    return marks


def _apart(ranks: Sequence[float], pixels: float) -> list[float]:
    """Return those numbers along an axis whose labels do not touch; the last one always."""
    result = [ranks[-1]]
    for x in reversed(ranks[:-1]):
        if (result[-1] - x) * pixels >= 16:
            result.append(x)
    return result


def _upper(trace: Trace, look: dict[str, Any]) -> np.ndarray:
    return trace.y + look["error_y"]["array"] if "error_y" in look else np.asarray(trace.y, float)


def _bars(trace: Trace, look: dict[str, Any], at: Any) -> list[str]:
    """Draw error bars from the least to the greatest of the repeats."""
    if "error_y" not in look:
        return []
    bars, marks = look["error_y"], []
    for x, y, more, less in zip(trace.x, trace.y, bars["array"], bars["arrayminus"], strict=True):
        (x1, y1), (_, y2) = at(float(x), float(y - less)), at(float(x), float(y + more))
        marks.append(
            f'<path d="M{x1:.1f} {y1:.1f}V{y2:.1f}M{x1 - 3:.1f} {y1:.1f}h6M{x1 - 3:.1f} '
            f'{y2:.1f}h6" stroke="{bars["color"]}" stroke-width="1.25" fill="none"/>'
        )
    return marks


def _draw_line(
    points: Sequence[tuple[float, float]], look: dict[str, Any], dots: Sequence[int] | None = None
) -> list[str]:
    """Draw a line in its style, with its dots; ``dots``: only at these points."""
    points_text, stroke = " ".join(f"{x:.1f},{y:.1f}" for x, y in points), look["line"]
    marks = [
        f'<polyline points="{points_text}" fill="none" stroke="{stroke["color"]}" '
        f'stroke-width="{stroke["width"]}" stroke-opacity="{look.get("opacity", 1)}" '
        f'stroke-dasharray="{_DASHES[stroke.get("dash", "solid")]}"/>'
    ]
    if "marker" in look:
        color = look["marker"]["color"]
        for x, y in points if dots is None else [points[at] for at in dots]:
            marks.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{color}"/>')
    return marks
