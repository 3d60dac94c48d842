"""Charts of a run's curves, as plain Plotly figures: loss, accuracy, throughput, communication,
overhead.

    select(store, name) -> columns (curves.py) -> cell (cells.py) -> figure(store, name)

A figure is a grid of cells, a chart each: a notebook's live charts are one widget, because each
widget of Plotly's brings 5 MB of JavaScript to the page. Features of plotly.js 3 only: that is what
Panel ships.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import polars as pl

from workbench.store import Store
from workbench.views import cells, held_cells, mixed_cells, served_cells, staged_cells
from workbench.views.cells import Cell, asked, tokens
from workbench.views.compared import compared
from workbench.views.curves import SERVED, select
from workbench.views.pictured import pictured

CHARTS = {
    **cells.CHARTS, **served_cells.CHARTS, **staged_cells.CHARTS, **mixed_cells.CHARTS,
    **held_cells.CHARTS,
}  # fmt: skip
HEIGHT = 260  # of a row of cells
GAP = 0.16  # between two cells of a row, of the width


def known(name: str) -> str:
    """The name of a chart. Raises ValueError, which names the charts, for another one."""
    if name not in CHARTS:
        raise ValueError(f"there is no chart {name!r}; there are {', '.join(CHARTS)}")
    return name


def cell(
    name: str, columns: pl.DataFrame, theme: str = "light", dropped: int = 0, asked: int = 0
) -> Cell:
    """A chart with what it shows now, from the columns of its curve."""
    if name in SERVED:
        return served_cells.cell(name, columns, theme)
    if name in mixed_cells.CHARTS:
        return mixed_cells.cell(columns, theme)
    if name in held_cells.CHARTS:
        return held_cells.cell(columns, theme)
    if name in staged_cells.CHARTS:
        return staged_cells.cell(name, columns, theme)
    return cells.cell(name, columns, theme, dropped, asked)


def figure(
    store: Store, name: str, theme: str = "light", record_ns: float | None = None
) -> go.Figure:
    """The chart of a curve, from what ``store`` has now. ``theme``: light or dark.

    ``record_ns``: what writing one record cost, where that is known (run.overhead()).
    Raises ValueError, which names the charts that there are.
    """
    columns = select(store, known(name), record_ns)
    made = draw(name, columns, theme, store.dropped, asked(store))
    if name not in cells.CHARTS:
        return made
    return pictured(made, cell(name, columns, "light", store.dropped, asked(store)))


def draw(
    name: str, columns: pl.DataFrame, theme: str = "light", dropped: int = 0, iterations: int = 0
) -> go.Figure:
    """The figure of a curve's columns. ``iterations``: how many the run is to do, if known."""
    return grid([cell(name, columns, theme, dropped, iterations)], theme)


def comparison(losses: Mapping[str, pl.DataFrame], theme: str = "light") -> go.Figure:
    """Losses of several runs against iterations (left) and against seconds (right).

    ``losses``: a run's label -> columns iteration, seconds, loss.
    """
    return grid(compared(losses, theme), theme)


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
            "margin": {"l": 60, "r": 60 if any(one.chart.y2 for one in cells) else 24, "t": 56,
                       "b": 44},
            "paper_bgcolor": ink["ground"],
            "plot_bgcolor": ink["ground"],
            "font": {"family": ink["font"], "size": 12, "color": ink["ink"]},
            "hovermode": "x",
            "barmode": "stack",
            "bargap": 0.3,
            "uirevision": "keep",  # a zoom outlives an update
        }
    )  # fmt: skip
    for place, one in zip(places, cells, strict=True):
        _place(made, one, place, (rows, across), ink)
    return made.update_layout(scales(cells))


def scales(cells: Sequence[Cell]) -> dict[str, dict[str, Any]]:
    """Where the axes of a grid begin and end, by their names in its layout: what is set, and what
    Plotly is to find out from the points.
    """
    found: dict[str, dict[str, Any]] = {}
    for place, one in zip(_places(cells), cells, strict=True):
        x, y, _ = _axes(place)
        found[_axis(x)] = _range(one.until)
        found[_axis(y)] = _range(1 if one.empty else None)
    return found


def _range(until: int | None) -> dict[str, Any]:
    return {"autorange": True} if until is None else {"autorange": False, "range": [0, until]}


def _axes(place: int) -> tuple[str, str, str]:
    """Plotly's names of a place's x axis and its two y axes."""
    x, y = (f"x{place + 1}", f"y{2 * place + 1}") if place else ("x", "y")
    return x, y, f"y{2 * place + 2}"


def _places(cells: Sequence[Cell]) -> list[int]:
    """Each cell's number in the grid; the two of a comparison stand beside each other."""
    places: list[int] = []
    for one in cells:
        free = places[-1] + 1 if places else 0
        places.append(free + (free % 2 if one.begins else 0))
    return places


def _place(
    made: go.Figure, one: Cell, place: int, shape: tuple[int, int], ink: Mapping[str, str]
) -> None:
    """Put a cell into the figure: axes, title, legend, lines. It has two y axes for itself."""
    (rows, across), (row, column) = shape, divmod(place, shape[1])
    inside = HEIGHT * rows - 100  # pixels between the margins
    top = 1 - row * HEIGHT / inside
    left, right = column * (1 + GAP) / across, (column + 1) * (1 + GAP) / across - GAP
    x, y, y2 = _axes(place)
    axis: dict[str, Any] = {
        "gridcolor": ink["rule"], "linecolor": ink["edge"], "zerolinecolor": ink["rule"],
        "tickfont": {"color": ink["ink-2"]}, "rangemode": "tozero",
    }  # fmt: skip
    quiet: dict[str, Any] = {"font": {"color": ink["ink-2"], "size": 12}, "standoff": 6}
    span = [max(top - (HEIGHT - 100) / inside, 0), top]
    made.update_layout({
        _axis(x): {**axis, "title": {**quiet, "text": one.chart.x}, "domain": [left, right],
                   "anchor": y, **one.chart.across},
        _axis(y): {**axis, "title": {**quiet, "text": one.y}, "domain": span, "anchor": x,
                   "tickformat": one.chart.format, **one.chart.up,
                   "autorangeoptions": {"include": one.chart.least}},
    })  # fmt: skip
    if one.chart.y2:
        made.update_layout({_axis(y2): {
            **axis, "tickmode": "auto", "nticks": 5, "overlaying": y, "side": "right",
            "anchor": x, "showgrid": False,
            "title": {"text": one.chart.y2, "standoff": 6,
                      "font": {"color": ink[one.chart.lines[one.chart.aside][0]], "size": 12}},
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
        aside = one.chart.y2 and number == one.chart.aside
        made.add_trace(
            _line(one, number, ink).update(
                xaxis=x, yaxis=y2 if aside else y, legend=legend,
                showlegend=bool(trace.name) and _has_key(one),
                hovertemplate=_hover(one, trace.name, bool(aside)),
            )
        )  # fmt: skip


def _has_key(one: Cell) -> bool:
    """The title is a chart's key, unless the task has metrics of its own."""
    return one.key or (not one.looks and len(one.traces) > len(one.chart.lines))


def _hover(one: Cell, name: str, aside: bool) -> str | None:
    """What pointing at a line says; nothing of one without a name."""
    words = one.chart.hover2 if aside else one.chart.hover
    return f"{words}<extra>{name}</extra>" if name else None


def _line(one: Cell, number: int, ink: Mapping[str, str]) -> go.Scatter | go.Bar:
    """The ``number``-th line of a cell, or its bars."""
    trace, lines = one.traces[number], one.chart.lines
    if one.looks:
        return go.Scatter(x=trace.x, y=trace.y, name=trace.name, **one.looks[number])
    token, look = lines[number % len(lines)]
    if look.get("type") == "bar":
        return go.Bar(x=trace.x, y=trace.y, name=trace.name, marker=_bar(ink, token, look))
    drawn = go.Scatter(x=trace.x, y=trace.y, name=trace.name)
    if number >= len(lines):  # a task's second metric
        token = f"s{number // len(lines) % 8}"
    return drawn.update(look).update(line_color=ink[token], marker_color=ink[token])


def _bar(ink: Mapping[str, str], token: str, look: Mapping[str, Any]) -> dict[str, Any]:
    """Solid, or open: hatched on the ground."""
    if not look.get("open"):
        return {"color": ink[token]}
    hatch = {"shape": "/", "size": 6, "fgcolor": ink[token], "bgcolor": ink["ground"]}
    return {"color": ink[token], "pattern": hatch, "line": {"color": ink[token], "width": 1}}


def _axis(name: str) -> str:
    """The layout's name of an axis: "yaxis2" of "y2"."""
    return f"{name[0]}axis{name[1:]}"
