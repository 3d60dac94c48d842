"""The charts of the measures that decide a comparison: a bar for each run, and dashed what a
formula says of it. Where runs are named by a way and a setting ("ring, 8 ranks"), a line for each
way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

import numpy as np

from workbench.analysis.chart_cells import Cell, Chart, titled, tokens
from workbench.analysis.comparison import line_key
from workbench.analysis.points import Trace
from workbench.analysis.verdict import NOUNS, comparable, grid, write

Measured = Mapping[str, Mapping[str, Any]]  # the measures of each run, by its name
Values = Mapping[str, float]  # of one measure, by the run's name
Drawn = tuple[list[Trace], list[dict[str, Any]], list[str]]  # lines, their looks, words below

WIDE, MOST_LINES = 13, 3  # characters, and lines, of a run's name below its bar
HALF = 0.4  # of a bar's width, where bars are 1 apart
BYTES, SHARE = {"tickformat": ".3~s", "ticksuffix": "B"}, {"tickformat": ".0%"}
AXES: Mapping[str, Mapping[str, str]] = {  # how Plotly writes numbers on the axis of a measure
    "bubble": SHARE,
    **dict.fromkeys(("activations", "memory", "bytes_all"), BYTES),
    **dict.fromkeys(("bytes_busiest", "bytes_between"), BYTES),
}


def charts(
    runs: Measured, measures: Sequence[str], formulas: Measured, theme: str = "light"
) -> list[Cell]:
    """Return a chart for each of ``measures`` by which the finished ones of ``runs`` compare.

    ``formulas``: what formulas say of some measures of a run. Each run has the color of its losses.
    """
    ink, cells = tokens(theme), list[Cell]()
    colors = {name: color for name, (color, _) in line_key([*runs], theme).items()}
    finished = {name: run for name, run in runs.items() if run["state"] == "finished"}
    for measure in measures:
        if not (values := comparable(finished, measure)):
            continue
        known = {name: formulas.get(name, {}).get(measure) for name in values}
        expected = {name: float(value) for name, value in known.items() if value is not None}
        ways = grid(values)
        drawn = (
            _lines(ways, expected, colors) if ways else _bars(values, expected, colors, ink["ink"])
        )
        traces, looks, words = drawn
        across = {"tickvals": [*range(len(words))], "ticktext": words, "showgrid": False}
        noun, unit = NOUNS[measure]
        chart = Chart(
            f"{noun[0].upper()}{noun[1:]}",
            "",
            "",
            (),
            "%{y}",
            across=across,
            up=AXES.get(measure, {"ticksuffix": unit}),
        )
        ends = [write(measure, value) for value in (min(values.values()), max(values.values()))]
        words_below = " to ".join(dict.fromkeys(ends)) + " · ┅ by formula" * bool(expected)
        title = titled(chart.title, words_below)
        cells.append(Cell(chart, title, "", traces, looks=looks, key=bool(ways), begins=not cells))
    return cells


def _bars(values: Values, expected: Values, colors: Mapping[str, str], ink: str) -> Drawn:
    """Draw a bar for each run, and across it a dashed line where a formula says something."""
    traces, looks = list[Trace](), list[dict[str, Any]]()
    for place, (name, value) in enumerate(values.items()):
        traces.append(Trace(name, np.array([place]), np.array([value])))
        looks.append({"type": "bar", "width": 2 * HALF - 0.1, "marker": {"color": colors[name]}})
    for place, name in enumerate(values):
        if name in expected:
            ends = np.array([place - HALF, place + HALF])
            traces.append(Trace("", ends, np.full(2, expected[name])))
            looks.append(_dashed(ink))
    return traces, looks, ["<br>".join(wrap(one, WIDE)[:MOST_LINES]) for one in values]


def _lines(ways: Mapping[str, Values], expected: Values, colors: Mapping[str, str]) -> Drawn:
    """Draw a line for each way over the settings, and a dashed one where formulas say something."""
    traces, looks = list[Trace](), list[dict[str, Any]]()
    names = [*next(iter(ways.values()))]
    for way in names:
        runs = [f"{way}, {setting}" for setting in ways]
        color = colors[runs[0]]
        traces.append(Trace(way, np.arange(len(ways)), np.array([ways[one][way] for one in ways])))
        looks.append({"mode": "lines+markers", "line": {"width": 2, "color": color}})
        if all(name in expected for name in runs):
            ends = np.array([expected[name] for name in runs])
            traces.append(Trace("", np.arange(len(ways)), ends))
            looks.append(_dashed(color))
    return traces, looks, [*ways]


def _dashed(color: str) -> dict[str, Any]:
    look = {"color": color, "dash": "dash", "width": 1.75}
    return {"mode": "lines", "hoverinfo": "skip", "line": look}
