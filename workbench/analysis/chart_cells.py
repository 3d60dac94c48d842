"""The content of charts as data: a chart's looks, and a panel with its title and its points.

A chart has its axes before there is data, so that nothing moves when data come. Of a long run each
point stands for several iterations, and the title says for how many.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import polars as pl

from workbench.analysis.points import Trace, caption, thin_out, traces
from workbench.common.errors import SpecError
from workbench.front_end.assets import theme as stylesheet
from workbench.store.event_store import Store

FIRST_SCALE = 400  # iterations
FEW = 0.1  # of the points may rise over the end of a y axis
FLATTENS = 8  # times as high as the others: such points flatten them


@dataclass(frozen=True)
class Chart:
    """A chart's looks; ``lines``: (color token, how Plotly draws it) for each line."""

    title: str
    x: str
    y: str
    lines: tuple[tuple[str, dict[str, Any]], ...]
    hover: str
    format: str = ""
    y2: str = ""
    least: float | None = 0.0  # that the y axis reaches up to; None: it is as the points are
    mark: str = "■"  # what stands for a line in the title
    hover2: str = "%{x:.1f} s: %{y:,.0f} ns"  # of what the y2 axis is for
    aside: int = 1  # which of its lines the y2 axis is for
    across: Mapping[str, Any] = field(default_factory=dict)  # of its x axis, as Plotly has it
    up: Mapping[str, Any] = field(default_factory=dict)  # of its y axis
    key_below: bool = False  # its key is in the lower right corner, as its lines rise to the upper


@dataclass(frozen=True)
class Cell:
    """A chart with what it shows now; ``looks``, where given, instead of the chart's lines.
    ``until``: where its x axis ends; None: where the points do. ``most``: the same of its y axis,
    where few points are so high that they would flatten all others.
    """

    chart: Chart
    title: str
    y: str
    traces: list[Trace]
    until: int | None = None
    looks: list[dict[str, Any]] = field(default_factory=list)
    key: bool = False  # the names of its lines are told beside them; else the title is the key
    begins: bool = False  # a row of the grid
    most: float | None = None

    @property
    def empty(self) -> bool:
        return not any(len(trace.x) for trace in self.traces)


LINE: dict[str, Any] = {"mode": "lines", "line": {"width": 2}}
_DOTS: dict[str, Any] = LINE | {"mode": "lines+markers", "marker": {"size": 5}}
_AREA: dict[str, Any] = {"mode": "lines", "line": {"width": 1.25}, "stackgroup": "step"}
_PALE: dict[str, Any] = _AREA | {"opacity": 0.45, "fillpattern": {"shape": "/", "size": 5}}
_COULD: dict[str, Any] = {"mode": "lines", "line": {"width": 1.5, "dash": "dot"}}
_END: dict[str, Any] = {
    "mode": "markers",
    "marker": {"size": 10, "symbol": "diamond"},
    "cliponaxis": False,
}
_PER_STEP = "ms a step"
_ASIDE: dict[str, Any] = {"mode": "lines", "line": {"width": 2, "dash": "dot"}}
CHARTS: Mapping[str, Chart] = {
    "loss": Chart("Loss", "iteration", "loss", (("ink", LINE),), "iteration %{x}: %{y:.4f}"),
    "accuracy": Chart(
        "Accuracy",
        "iteration",
        "share of samples",
        (("ink", _DOTS), ("optimizer", _END)),
        "iteration %{x}: %{y:.1%}",
        ".0%",
        least=1.0,
        mark="◆",
    ),
    "throughput": Chart(
        "Throughput",
        "iteration",
        "samples a second",
        (("ink", LINE),),
        "iteration %{x}: %{y:,.0f} a second",
        ",.0f",
    ),
    "communication": Chart(
        "Communication and waiting",
        "iteration",
        _PER_STEP,
        (("forward", _AREA), ("comm", _AREA)),
        "iteration %{x}: %{y:.2f} ms",
    ),
    "overlap": Chart(
        "Overlap with computing",
        "iteration",
        _PER_STEP,
        (("comm", _PALE), ("comm", _AREA), ("ideal", _COULD)),
        "iteration %{x}: %{y:.2f} ms",
    ),
    "input": Chart(
        "Input stall",
        "iteration",
        _PER_STEP,
        (("wait", LINE), ("ink-3", _COULD)),
        "iteration %{x}: %{y:.2f} ms",
    ),
    "overhead": Chart(
        "Recording",
        "seconds",
        "events per second",
        (("ink", LINE), ("comm", _ASIDE)),
        "%{x:.1f} s: %{y:,.0f}",
        ",.0f",
        y2="ns a record (dotted)",
    ),
}


def cell(
    name: str, columns: pl.DataFrame, theme: str = "light", dropped: int = 0, iterations: int = 0
) -> Cell:
    """Return a curve's panel. Its title gives the newest numbers, and is its key."""
    chart, result, ink = CHARTS[name], traces(name, columns), tokens(theme)
    many = thin_out(name, columns)[1]
    each = f", a point for {many} iterations" if many > 1 and name != "overhead" else ""
    # A speed may be known in iterations only.
    y = result[0].name if name == "throughput" else chart.y
    marks = (
        f'<span style="color:{ink[token]}">{_sign(look, chart.mark)}</span>'
        for token, look in chart.lines
    )
    words = caption(name, columns, dropped).format(*marks)
    until = None
    if iterations and chart.x == "iteration":
        newest = int(columns["iteration"][-1]) if columns.height else 0
        until = scale(newest, iterations)
    most, above = _ceiling(result) if chart.y == _PER_STEP else (None, "")
    return Cell(chart, titled(chart.title + each, words + above), y, result, until, most=most)


def _ceiling(lines: list[Trace]) -> tuple[float | None, str]:
    """Return where the y axis ends, and words for the points above it: a step during which the
    ranks were held, say, lasts a thousand others.
    """
    heights = np.sort(np.nansum([line.y for line in lines[:2]], axis=0))
    if len(heights) < 2:
        return None, ""
    usual = float(heights[math.ceil(len(heights) * (1 - FEW)) - 1])
    if not 0 < FLATTENS * usual < heights[-1]:
        return None, ""
    many = int((heights > 1.5 * usual).sum())
    points = "1 point is" if many == 1 else f"{many:,} points are"
    return 1.5 * usual, f" · {points} higher, up to {heights[-1]:,.0f} ms"


def _sign(look: Mapping[str, Any], usual: str) -> str:
    """Return the sign that stands for a line in the title."""
    return "▨" if look is _PALE else "┅" if look is _COULD else usual


def scale(newest: int, iterations: int) -> int:
    """Return the end of an iteration axis: the last iteration, or a power of two before it.

    The axis doubles, so that little moves while a curve grows.
    """
    until = FIRST_SCALE
    while until <= newest:
        until *= 2
    return min(until, iterations)


def iterations_of(store: Store) -> int:
    """Return the number of iterations that the run is to do; 0 if it is unknown, or the run is
    over.
    """
    if "ok" in store.metadata:
        return 0
    match = re.search(r"^iterations: (\d+)$", store.metadata.get("experiment", ""), re.M)
    return int(match[1]) if match else 0


def titled(title: str, words: str) -> str:
    return f'<b>{title}</b><br><span style="font-size:12px">{words}</span>'


@cache
def tokens(theme: str) -> Mapping[str, str]:
    """Return the view's colors by token, and its font, from its style sheet."""
    if theme not in ("light", "dark"):
        raise SpecError(f"theme = {theme!r}: must be 'light' or 'dark'")
    text, at = stylesheet(), ("light", "dark").index(theme)
    pairs = re.findall(r"--([\w-]+):\s*light-dark\((#\w+),\s*(#\w+)\)", text)
    font = re.search(r"--font:\s*([^;]+);", text)
    return {name: both[at] for name, *both in pairs} | {"font": font[1] if font else "sans-serif"}
