"""A chart as a still picture, for where no script runs: SVG text on its own ground.

Lines, dots, areas on each other, bars from the least to the most; axes as the chart has them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from html import escape
from math import isfinite
from typing import Any

import numpy as np

from workbench.analysis.chart_cells import Cell, tokens
from workbench.front_end.svg import DASH_ARRAYS, INK, line, opened, round_up, text

WIDTH, LEFT, RIGHT, TOP, PLOT, BELOW = 960, 64, 24, 74, 176, 44
DIGIT = 6.6  # pixels
_MARK = re.compile(r'<span style="color:(#\w+)">(.)</span>')

Point = tuple[float, float]
At = Callable[[float, float], Point]  # share of the width, value -> pixels


def drawable(cell: Cell) -> bool:
    """Return whether a chart has one y axis, and nothing but lines, dots and areas."""
    return not cell.chart.y2 and all(look.get("type") != "bar" for _, look in cell.chart.lines)


def svg(cell: Cell) -> str:
    """Draw a chart in the light theme, wherever it is shown: it has its own ground."""
    height = TOP + PLOT + BELOW
    title, words = re.findall(r"<b>(.*)</b><br><span[^>]*>(.*)</span>", cell.title)[0]
    caption = f"{title}: {_MARK.sub('', words)}"
    parts = [
        *opened(caption, WIDTH, height),
        text(16, 24, title, "ink", size=14, weight=700, most=120),
        f'<text x="16" y="44" fill="{INK["ink-2"]}" font-size="12">{_color_marks(words)}</text>',
    ]
    return "".join([*parts, *_plot(cell), "</svg>"])


def _color_marks(words: str) -> str:
    """Draw the key: each mark in its line's color, "▨" and "┅" too, which a font may lack."""
    pieces = _MARK.split(words)
    texts, colors, marks = pieces[::3], pieces[1::3], pieces[2::3]
    lines = [escape(texts[0])]
    for color, mark, after in zip(colors, marks, texts[1:], strict=True):
        pale = ' fill-opacity="0.5"' if mark == "▨" else ""
        sign = {"▨": "■", "┅": "- -"}.get(mark, mark)
        lines.append(f'<tspan fill="{color}"{pale}>{sign}</tspan>{escape(after)}')
    return "".join(lines)


def _plot(cell: Cell) -> list[str]:
    known = [
        (np.asarray(trace.x), np.asarray(trace.y, float), look)
        for trace, look in zip(cell.traces, _looks(cell), strict=True)
        if len(trace.x)
    ]
    places_of, ticks = _across(cell, [x for x, _, _ in known])
    stacked = _stacked([(y, look) for _, y, look in known])
    most = cell.chart.least or 0.0
    for (upper, _), (_, _, look) in zip(stacked, known, strict=True):
        reach = upper + look.get("error_y", {}).get("array", 0.0)
        most = max(most, float(reach[np.isfinite(reach)].max(initial=0.0)))
    top = round_up(most)

    def at(x: float, y: float) -> Point:
        return LEFT + (WIDTH - LEFT - RIGHT) * x, TOP + PLOT * (1 - y / top)

    marks = _axes(cell, top, ticks, at)
    for (x, _, look), (upper, under) in zip(known, stacked, strict=True):
        there = [one for one in zip(places_of(x), upper, under, strict=True) if isfinite(one[1])]
        points = [at(place, high) for place, high, _ in there]
        if look.get("stackgroup"):
            marks.append(_area(points, [at(place, low) for place, _, low in there], look))
        marks += _bars(places_of(x), upper, look, at) + _draw_line(points, look)
    return marks


def _axes(cell: Cell, top: float, ticks: Sequence[tuple[float, str]], at: At) -> list[str]:
    marks = [text(LEFT, TOP - 10, cell.y or cell.chart.y, "ink-3", size=11)]
    for level in (0.0, top / 2, top):
        marks.append(line(at(0, level), at(1, level), "rule", 0.75))
        label = f"{level:.0%}" if "%" in cell.chart.format else f"{level:,.6g}"
        marks.append(text(LEFT - 6, at(0, level)[1] + 4, label, "ink-3", size=11, anchor="end"))
    for place, label in [*ticks, (0.5, cell.chart.x)]:
        y = TOP + PLOT + (34 if label == cell.chart.x else 16)
        marks.append(text(at(place, 0)[0], y, label, "ink-3", size=11, anchor="middle"))
    return marks


def _looks(cell: Cell) -> list[dict[str, Any]]:
    """Return the style of each trace, as Plotly has it, with its color inside."""
    if cell.looks:
        return cell.looks
    ink, lines = tokens("light"), cell.chart.lines
    each = [lines[number % len(lines)] for number in range(len(cell.traces))]
    return [
        look | {part: {**look.get(part, {}), "color": ink[token]} for part in ("line", "marker")}
        for token, look in each
    ]


def _stacked(
    traces: Sequence[tuple[np.ndarray, dict[str, Any]]],
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return how high each trace is drawn, and what it stands on: areas stand on each other."""
    result, below = [], np.zeros(0)
    for y, look in traces:
        if not look.get("stackgroup"):
            result.append((y, np.zeros(len(y))))
            continue
        under = below if len(below) == len(y) else np.zeros(len(y))
        result.append((y + under, under))
        below = np.where(np.isfinite(y), y + under, under)
    return result


def _across(cell: Cell, each: Sequence[np.ndarray]) -> tuple[Any, list[tuple[float, str]]]:
    """Lay out the x axis: from values to shares of the width, and the labels below it."""
    axis, room = cell.chart.across, WIDTH - LEFT - RIGHT
    if axis.get("type") == "category":
        names = [*dict.fromkeys(str(x) for one in each for x in one)]
        place = {name: (number + 0.5) / len(names) for number, name in enumerate(names)}
        return lambda x: [place[str(one)] for one in x], [(place[name], name) for name in names]
    scale = np.log10 if axis.get("type") == "log" else lambda x: np.asarray(x, float)
    values = np.concatenate([scale(one) for one in each] or [np.zeros(1)])
    ticks = [float(one) for one in axis.get("tickvals", ())]
    low = float(values.min()) if ticks else 0.0
    high = max(float(values.max()), float(cell.until or 0)) if not ticks else float(values.max())
    rim, span = (0.02, 0.96) if ticks else (0.0, 1.0)  # dots need some room

    def place_of(x: Any) -> Any:
        return rim + span * (scale(x) - low) / ((high - low) or 1.0)

    result: list[tuple[float, str]] = []
    far = math.inf
    for value in reversed(ticks or [0.0, float(high // 2), high]):
        points_text, share = f"{value:,.6g}", float(place_of(value))
        if (far - share) * room > DIGIT * len(points_text) + 10:
            result.append((share, points_text))
            far = share
    return place_of, result


def _area(points: Sequence[Point], under: Sequence[Point], look: dict[str, Any]) -> str:
    corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in [*points, *reversed(under)])
    opacity = 0.5 * look.get("opacity", 1.0)
    return (
        f'<polygon points="{corners}" fill="{look["line"]["color"]}" fill-opacity="{opacity:g}"/>'
    )


def _bars(places: Any, y: np.ndarray, look: dict[str, Any], at: At) -> list[str]:
    """Draw bars from the least to the most, where they are apart."""
    bars, marks = look.get("error_y"), []
    if bars is None:
        return []
    for x, value, more, less in zip(places, y, bars["array"], bars["arrayminus"], strict=True):
        (a, low), (_, high) = at(x, value - less), at(x, value + more)
        if low - high > 0.5:
            marks.append(
                f'<path d="M{a:.1f} {low:.1f}V{high:.1f}M{a - 3:.1f} {low:.1f}h6M{a - 3:.1f} '
                f'{high:.1f}h6" stroke="{bars["color"]}" stroke-width="1.25" fill="none"/>'
            )
    return marks


def _draw_line(points: Sequence[Point], look: dict[str, Any]) -> list[str]:
    """Draw a line in its style, and its dots."""
    marks, mode, stroke = [], look.get("mode", "lines"), look["line"]
    if "lines" in mode:
        points_text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashes = DASH_ARRAYS[stroke.get("dash", "solid")]
        marks.append(
            f'<polyline points="{points_text}" fill="none" stroke="{stroke["color"]}" stroke-width='
            f'"{stroke.get("width", 2)}" stroke-dasharray="{dashes}" stroke-linejoin="round"/>'
        )
    if "markers" in mode:
        marker = look["marker"]
        marks += [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{marker.get("size", 6) / 2:g}" '
            f'fill="{marker["color"]}"/>'
            for x, y in points
        ]
    return marks
