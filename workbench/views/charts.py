"""Charts of a run's curves, as plain Plotly figures: loss, accuracy, throughput, communication,
overhead.

    select(store, name) -> columns (curves.py)        figure(store, name) -> Figure

A chart has its axes before there is data, so that nothing moves when data come. Of a long run each
point stands for several iterations, and the title says for how many. Features of plotly.js 3 only:
that is what Panel ships.

A figure is a grid of cells, a chart each: a notebook's live charts are one widget, because each
widget of Plotly's brings 5 MB of JavaScript to the page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import plotly.graph_objects as go
import polars as pl

from workbench._assets import theme as stylesheet
from workbench.store import Store
from workbench.views.curves import NAMES, select
from workbench.views.points import Trace, said, thinned, traces

__all__ = ["CHARTS", "NAMES", "Cell", "cell", "comparison", "draw", "figure", "grid", "select"]

HEIGHT = 260  # of a row of cells
DASHES = ("solid", "dash", "dot", "dashdot")
FIRST_SCALE = 400  # iterations
GAP = 0.16  # between two cells of a row, of the width


@dataclass(frozen=True)
class Chart:
    """How a chart looks; ``lines``: (token of its colour, how Plotly is to draw it) for each."""

    title: str
    x: str
    y: str
    lines: tuple[tuple[str, dict[str, Any]], ...]
    hover: str
    format: str = ""
    y2: str = ""
    least: float = 0.0  # that the y axis reaches up to
    mark: str = "■"  # what stands for a line in the title


@dataclass(frozen=True)
class Cell:
    """A chart with what it shows now; ``looks``, where given, in place of the chart's lines.
    ``until``: where its x axis ends; None: where the points do.
    """

    chart: Chart
    title: str
    y: str
    traces: list[Trace]
    until: int | None = None
    looks: list[dict[str, Any]] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        return not any(len(trace.x) for trace in self.traces)


_LINE: dict[str, Any] = {"mode": "lines", "line": {"width": 2}}
_DOTS: dict[str, Any] = _LINE | {"mode": "lines+markers", "marker": {"size": 5}}
_AREA: dict[str, Any] = {"mode": "lines", "line": {"width": 1.25}, "stackgroup": "step"}
_END: dict[str, Any] = {
    "mode": "markers", "marker": {"size": 10, "symbol": "diamond"}, "cliponaxis": False,
}  # fmt: skip
_ASIDE: dict[str, Any] = {"mode": "lines", "line": {"width": 2, "dash": "dot"}}
CHARTS: Mapping[str, Chart] = {
    "loss": Chart("Loss", "iteration", "loss", (("ink", _LINE),), "iteration %{x}: %{y:.4f}"),
    "accuracy": Chart(
        "Accuracy", "iteration", "share of samples", (("ink", _DOTS), ("optimizer", _END)),
        "iteration %{x}: %{y:.1%}", ".0%", least=1.0, mark="◆",
    ),
    "throughput": Chart(
        "Throughput", "iteration", "samples a second", (("ink", _LINE),),
        "iteration %{x}: %{y:,.0f} a second", ",.0f",
    ),
    "communication": Chart(
        "Exposed communication", "iteration", "ms a step", (("forward", _AREA), ("comm", _AREA)),
        "iteration %{x}: %{y:.2f} ms",
    ),
    "overhead": Chart(
        "Recording", "seconds", "events a second", (("ink", _LINE), ("comm", _ASIDE)),
        "%{x:.1f} s: %{y:,.0f}", ",.0f", y2="ns a record (dotted)",
    ),
}  # fmt: skip
_BY_ITERATION = Chart(
    "Losses compared, by iteration", "iteration", "loss", (("ink", _LINE),), "%{y:.4f}"
)
_BY_TIME = Chart(
    "Losses compared, by time", "seconds", "loss", (("ink", _LINE),), "%{x:.2f} s: %{y:.4f}"
)


def figure(
    store: Store, name: str, theme: str = "light", record_ns: float | None = None
) -> go.Figure:
    """The chart of a curve, from what ``store`` has now. ``theme``: light or dark.

    ``record_ns``: what writing one record cost, where that is known (run.overhead()).
    Raises ValueError, which names the charts that there are.
    """
    columns = select(store, known(name), record_ns)
    return draw(name, columns, theme, store.dropped, asked(store))


def known(name: str) -> str:
    if name not in CHARTS:
        raise ValueError(f"there is no chart {name!r}; there are {', '.join(CHARTS)}")
    return name


def draw(
    name: str, columns: pl.DataFrame, theme: str = "light", dropped: int = 0, asked: int = 0
) -> go.Figure:
    """The figure of a curve's columns. ``asked``: iterations of the run, where that is known."""
    return grid([cell(name, columns, theme, dropped, asked)], theme)


def comparison(losses: Mapping[str, pl.DataFrame], theme: str = "light") -> go.Figure:
    """Losses of several runs against iterations (left) and against seconds (right).

    ``losses``: a run's label -> columns iteration, seconds, loss.
    """
    return grid(compared(losses, theme), theme)


# ---- what a cell shows


def cell(
    name: str, columns: pl.DataFrame, theme: str = "light", dropped: int = 0, asked: int = 0
) -> Cell:
    """A curve's chart. Its title says the newest numbers, and is its key."""
    chart, found, ink = CHARTS[name], traces(name, columns), tokens(theme)
    many = thinned(name, columns)[1]
    each = f", a point for {many} iterations" if many > 1 and name != "overhead" else ""
    # A speed may be known in iterations only.
    y = found[0].name if name == "throughput" else chart.y
    marks = (f'<span style="color:{ink[token]}">{chart.mark}</span>' for token, _ in chart.lines)
    words = said(name, columns, dropped).format(*marks)
    until = None
    if asked and chart.x == "iteration":
        newest = int(columns["iteration"][-1]) if columns.height else 0
        until = scale(newest, asked)
    return Cell(chart, _titled(chart.title + each, words), y, found, until)


def scale(newest: int, asked: int) -> int:
    """Where an axis of iterations ends: at the last one, or doubling on the way there, so that
    little moves while a curve grows.
    """
    until = FIRST_SCALE
    while until <= newest:
        until *= 2
    return min(until, asked)


def asked(store: Store) -> int:
    """How many iterations the run was asked for; 0: not known."""
    found = re.search(r"^iterations: (\d+)$", store.metadata.get("experiment", ""), re.M)
    return int(found[1]) if found else 0


def compared(losses: Mapping[str, pl.DataFrame], theme: str = "light") -> list[Cell]:
    """The two charts of a comparison: a colour and a dash for each run."""
    ink, looks, by_iteration, by_time = tokens(theme), [], [], []
    for number, (label, columns) in enumerate(losses.items()):
        thin, _ = thinned("loss", columns)
        dash = DASHES[number % len(DASHES)]
        looks.append(_LINE | {"line": {"color": ink[f"s{number % 8}"], "dash": dash, "width": 2}})
        loss = thin["loss"].to_numpy()
        by_iteration.append(Trace(label, thin["iteration"].to_numpy(), loss))
        by_time.append(Trace(label, thin["seconds"].to_numpy(), loss))
    return [
        Cell(
            chart,
            _titled(chart.title, "" if losses else "appear with the first run"),
            chart.y,
            found,
            None,
            looks,
        )
        for chart, found in ((_BY_ITERATION, by_iteration), (_BY_TIME, by_time))
    ]


def _titled(title: str, words: str) -> str:
    return f'<b>{title}</b><br><span style="font-size:12px">{words}</span>'


# ---- cells -> figure


def grid(cells: Sequence[Cell], theme: str = "light") -> go.Figure:
    """One figure of all cells, two in a row. Its traces are those of the cells in their order, its
    annotations their titles.
    """
    ink, across = tokens(theme), 2 if len(cells) > 1 else 1
    places = _places(cells)
    rows = max(places, default=0) // across + 1
    made = go.Figure(
        layout={
            "height": HEIGHT * rows,
            "autosize": True,
            "margin": {"l": 60, "r": 60 if any(one.chart.y2 for one in cells) else 24, "t": 56,
                       "b": 44},
            "paper_bgcolor": ink["ground"],
            "plot_bgcolor": ink["ground"],
            "font": {"family": ink["font"], "size": 12, "color": ink["ink"]},
            "hovermode": "x",
            "uirevision": "keep",  # a zoom outlives an update
        }
    )  # fmt: skip
    for place, one in zip(places, cells, strict=True):
        _place(made, one, place, (rows, across), ink)
    return made


def _places(cells: Sequence[Cell]) -> list[int]:
    """Each cell's number in the grid; the two of a comparison stand beside each other."""
    places: list[int] = []
    for one in cells:
        free = places[-1] + 1 if places else 0
        places.append(free + (free % 2 if one.chart is _BY_ITERATION else 0))
    return places


def _place(
    made: go.Figure, one: Cell, place: int, shape: tuple[int, int], ink: Mapping[str, str]
) -> None:
    """Put a cell into the figure: axes, title, legend, lines. It has two y axes for itself."""
    (rows, across), (row, column) = shape, divmod(place, shape[1])
    inside = HEIGHT * rows - 100  # pixels between the margins
    top = 1 - row * HEIGHT / inside
    left, right = column * (1 + GAP) / across, (column + 1) * (1 + GAP) / across - GAP
    x, y = (f"x{place + 1}", f"y{2 * place + 1}") if place else ("x", "y")
    y2 = f"y{2 * place + 2}"
    axis = {
        "gridcolor": ink["rule"], "linecolor": ink["edge"], "zerolinecolor": ink["rule"],
        "tickfont": {"color": ink["ink-2"]}, "rangemode": "tozero",
    }  # fmt: skip
    quiet = {"font": {"color": ink["ink-2"], "size": 12}, "standoff": 6}
    span = [max(top - (HEIGHT - 100) / inside, 0), top]
    made.update_layout({
        _axis(x): {**axis, "title": {**quiet, "text": one.chart.x}, "domain": [left, right],
                   "anchor": y, "range": None if one.until is None else [0, one.until]},
        _axis(y): {**axis, "title": {**quiet, "text": one.y}, "domain": span, "anchor": x,
                   "tickformat": one.chart.format, "range": [0, 1] if one.empty else None,
                   "autorangeoptions": {"include": one.chart.least}},
    })  # fmt: skip
    if one.chart.y2:
        made.update_layout({_axis(y2): {
            **axis, "tickmode": "auto", "nticks": 5, "overlaying": y, "side": "right",
            "anchor": x, "showgrid": False,
            "title": {"text": one.chart.y2, "standoff": 6,
                      "font": {"color": ink[one.chart.lines[1][0]], "size": 12}},
        }})  # fmt: skip
    legend = f"legend{place + 1 if place else ''}"
    made.update_layout({legend: {  # in the corner where losses rarely are
        "x": right, "xanchor": "right", "y": top, "yanchor": "top", "bgcolor": "rgba(0,0,0,0)",
        "traceorder": "normal",
    }})  # fmt: skip
    made.add_annotation(
        text=one.title, x=left, xref="paper", xanchor="left", xshift=-46, y=top, yref="paper",
        yanchor="bottom", yshift=6, showarrow=False, align="left",
    )  # fmt: skip
    for number, trace in enumerate(one.traces):
        aside = one.chart.y2 and number % 2 == 1
        made.add_trace(
            _line(one, number, ink).update(
                xaxis=x, yaxis=y2 if aside else y, legend=legend,
                showlegend=_has_key(one),
                hovertemplate=("%{x:.1f} s: %{y:,.0f} ns" if aside else one.chart.hover)
                + f"<extra>{trace.name}</extra>",
            )
        )  # fmt: skip


def _has_key(one: Cell) -> bool:
    """The title is a chart's key, unless the task has metrics of its own; of a comparison's two
    charts the first has it.
    """
    if one.looks:
        return one.chart is _BY_ITERATION
    return len(one.traces) > len(one.chart.lines)


def _line(one: Cell, number: int, ink: Mapping[str, str]) -> go.Scatter:
    """The ``number``-th line of a cell."""
    trace, lines = one.traces[number], one.chart.lines
    drawn = go.Scatter(x=trace.x, y=trace.y, name=trace.name)
    if one.looks:
        return drawn.update(one.looks[number])
    token, look = lines[number % len(lines)]
    if number >= len(lines):  # a task's second metric
        token = f"s{number // len(lines) % 8}"
    return drawn.update(look).update(line_color=ink[token], marker_color=ink[token])


def _axis(name: str) -> str:
    """The layout's name of an axis: "yaxis2" of "y2"."""
    return f"{name[0]}axis{name[1:]}"


@cache
def tokens(theme: str) -> Mapping[str, str]:
    """The stage's colours by token, and its font, from its own stylesheet."""
    if theme not in ("light", "dark"):
        raise ValueError(f"theme {theme!r}: it is light or dark")
    text, at = stylesheet(), ("light", "dark").index(theme)
    pairs = re.findall(r"--([\w-]+):\s*light-dark\((#\w+),\s*(#\w+)\)", text)
    font = re.search(r"--font:\s*([^;]+);", text)
    return {name: both[at] for name, *both in pairs} | {"font": font[1] if font else "sans-serif"}
