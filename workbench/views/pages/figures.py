"""Charts of a run's curves, as plain Plotly figures: loss, accuracy, throughput, communication,
overhead.

    select(store, name) -> columns (curves.py) -> cell (cells.py) -> figure(store, name)

A figure is a grid of cells, a chart each: a notebook's live charts are one widget, because each
widget of Plotly's brings 5 MB of JavaScript to the page. Features of plotly.js 3 only, which
plotly 6 ships.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import polars as pl

from workbench.analysis import (
    actor_charts,
    ledger_chart,
    replica_charts,
    server_charts,
    shard_charts,
    stage_charts,
)
from workbench.analysis import chart_cells as cells
from workbench.analysis.chart_cells import Cell, iterations_of, tokens
from workbench.analysis.comparison import compared
from workbench.analysis.curves import SERVED, select
from workbench.common.errors import SpecError
from workbench.store.event_store import Store
from workbench.views.pages.figure_with_still import with_picture

CHARTS = {
    **cells.CHARTS,
    **server_charts.CHARTS,
    **stage_charts.CHARTS,
    **ledger_chart.CHARTS,
    **replica_charts.CHARTS,
    **shard_charts.CHARTS,
    **actor_charts.CHARTS,
}
HEIGHT = 260  # of a row of cells
GAP = 0.16  # between two cells of a row, of the width


def known(name: str) -> str:
    """Return the name of a chart. Raises SpecError, which names the charts, for another one."""
    if name not in CHARTS:
        raise SpecError(f"there is no chart {name!r}; there are {', '.join(CHARTS)}")
    return name


def cell(
    name: str, columns: pl.DataFrame, theme: str = "light", dropped: int = 0, iterations: int = 0
) -> Cell:
    """Return a chart with what it shows now, from the columns of its curve."""
    if name in SERVED:
        return server_charts.cell(name, columns, theme)
    if name in replica_charts.CHARTS:
        return replica_charts.cell(columns, theme)
    if name in shard_charts.CHARTS:
        return shard_charts.cell(columns, theme)
    if name == ledger_chart.NAME:
        return ledger_chart.cell(columns, theme)
    if name in actor_charts.CHARTS:
        return actor_charts.cell(name, columns, theme)
    if name in stage_charts.CHARTS:
        return stage_charts.cell(name, columns, theme)
    return cells.cell(name, columns, theme, dropped, iterations)


def figure(
    store: Store, name: str, theme: str = "light", record_ns: float | None = None
) -> go.Figure:
    """Draw the chart of a curve, from what ``store`` has now. ``theme``: light or dark.

    ``record_ns``: what writing one record cost, where that is known (run.overhead()).
    Raises SpecError, which names the charts that there are.
    """
    columns = select(store, known(name), record_ns)
    drawn = draw(name, columns, theme, store.dropped, iterations_of(store))
    if name not in cells.CHARTS:
        return drawn
    return with_picture(drawn, cell(name, columns, "light", store.dropped, iterations_of(store)))


def draw(
    name: str, columns: pl.DataFrame, theme: str = "light", dropped: int = 0, iterations: int = 0
) -> go.Figure:
    """Draw the figure of a curve's columns. ``iterations``: how many the run is to do, if known."""
    return grid([cell(name, columns, theme, dropped, iterations)], theme)


def comparison(
    losses: Mapping[str, pl.DataFrame], theme: str = "light", deciding: Sequence[Cell] = ()
) -> go.Figure:
    """Draw the losses of several runs against iterations (left) and against seconds (right).

    ``losses``: a run's label -> columns iteration, seconds, loss. ``deciding``: charts above them.
    """
    return grid([*deciding, *compared(losses, theme)], theme)


def grid(cells: Sequence[Cell], theme: str = "light", ground: str = "") -> go.Figure:
    """Draw one figure of all charts, two in a row. Its traces are those of the charts in their
    order, its annotations their titles. ``ground``: the page's own color, else the theme's.
    """
    ink, across = tokens(theme), 2 if len(cells) > 1 else 1
    ground = ground or ink["ground"]
    places = _places(cells)
    rows = max(places, default=0) // across + 1
    whole = go.Figure(
        layout={
            "height": HEIGHT * rows,
            "margin": {
                "l": 60,
                "r": 60 if any(one.chart.y2 for one in cells) else 24,
                "t": 56,
                "b": 44,
            },
            "paper_bgcolor": ground,
            "plot_bgcolor": ground,
            "font": {"family": ink["font"], "size": 12, "color": ink["ink"]},
            "hovermode": "x",
            "barmode": "stack",
            "bargap": 0.3,
            "uirevision": "keep",  # a zoom outlives an update
        }
    )
    for place, one in zip(places, cells, strict=True):
        _place(whole, one, place, (rows, across), ink)
    return whole.update_layout(scales(cells))


def scales(cells: Sequence[Cell]) -> dict[str, dict[str, Any]]:
    """Return the ranges of a grid's axes, by name: set ones, or those that Plotly finds itself."""
    axes: dict[str, dict[str, Any]] = {}
    for place, one in zip(_places(cells), cells, strict=True):
        x, y, _ = _axes(place)
        axes[_axis(x)] = _range(one.until)
        axes[_axis(y)] = _range(1 if one.empty else one.most)
    return axes


def _range(until: float | None) -> dict[str, Any]:
    return {"autorange": True} if until is None else {"autorange": False, "range": [0, until]}


def _axes(place: int) -> tuple[str, str, str]:
    """Return Plotly's names of a panel's x axis and its two y axes."""
    x, y = (f"x{place + 1}", f"y{2 * place + 1}") if place else ("x", "y")
    return x, y, f"y{2 * place + 2}"


def _places(cells: Sequence[Cell]) -> list[int]:
    """Return each chart's number in the grid; the two of a comparison stand beside each other."""
    places: list[int] = []
    for one in cells:
        free = places[-1] + 1 if places else 0
        places.append(free + (free % 2 if one.begins else 0))
    return places


def _place(
    whole: go.Figure, one: Cell, place: int, shape: tuple[int, int], ink: Mapping[str, str]
) -> None:
    """Put a cell into the figure: axes, title, legend, lines. It has two y axes for itself."""
    (rows, across), (row, column) = shape, divmod(place, shape[1])
    inside = HEIGHT * rows - 100  # pixels between the margins
    top = 1 - row * HEIGHT / inside
    left, right = column * (1 + GAP) / across, (column + 1) * (1 + GAP) / across - GAP
    span = [max(top - (HEIGHT - 100) / inside, 0), top]
    whole.update_layout(_panel_axes(one, place, [left, right], span, ink))
    legend = f"legend{place + 1 if place else ''}"
    whole.update_layout(
        {
            legend: {  # in the corner where lines rarely are
                "x": right,
                "xanchor": "right",
                "y": span[0] if one.chart.key_below else top,
                "yanchor": "bottom" if one.chart.key_below else "top",
                "bgcolor": "rgba(0,0,0,0)",
                "traceorder": "normal",
            }
        }
    )
    whole.add_annotation(
        text=one.title,
        x=left,
        xref="paper",
        xanchor="left",
        xshift=-46,
        y=top,
        yref="paper",
        yanchor="bottom",
        yshift=6,
        showarrow=False,
        align="left",
    )
    x, y, y2 = _axes(place)
    for number, trace in enumerate(one.traces):
        aside = one.chart.y2 and number == one.chart.aside
        whole.add_trace(
            _line(one, number, ink).update(
                xaxis=x,
                yaxis=y2 if aside else y,
                legend=legend,
                showlegend=bool(trace.name) and _has_key(one),
                hovertemplate=_hover(one, trace.name, bool(aside)),
            )
        )


def _panel_axes(
    one: Cell, place: int, across: Sequence[float], up: Sequence[float], ink: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """Return the axes of a cell, by name; ``across`` and ``up``: its share of the figure."""
    x, y, y2 = _axes(place)
    axis: dict[str, Any] = {
        "gridcolor": ink["rule"],
        "linecolor": ink["edge"],
        "zerolinecolor": ink["rule"],
        "tickfont": {"color": ink["ink-2"]},
        "rangemode": "tozero",
    }
    quiet: dict[str, Any] = {"font": {"color": ink["ink-2"], "size": 12}, "standoff": 6}
    axes = {
        _axis(x): {
            **axis,
            "title": {**quiet, "text": one.chart.x},
            "domain": across,
            "anchor": y,
            **one.chart.across,
        },
        _axis(y): {
            **axis,
            "title": {**quiet, "text": one.y},
            "domain": up,
            "anchor": x,
            "tickformat": one.chart.format,
            **one.chart.up,
            "autorangeoptions": {"include": one.chart.least},
        },
    }
    if one.chart.y2:
        line_ink = ink[one.chart.lines[one.chart.aside][0]]
        axes[_axis(y2)] = {
            **axis,
            "tickmode": "auto",
            "nticks": 5,
            "overlaying": y,
            "side": "right",
            "anchor": x,
            "showgrid": False,
            "title": {
                "text": one.chart.y2,
                "standoff": 6,
                "font": {"color": line_ink, "size": 12},
            },
        }
    return axes


def _has_key(one: Cell) -> bool:
    """Return whether a chart needs a key: its title is one, unless the task has own metrics."""
    return one.key or (not one.looks and len(one.traces) > len(one.chart.lines))


def _hover(one: Cell, name: str, aside: bool) -> str | None:
    """Return the text for pointing at a line; "" for one without a name."""
    words = one.chart.hover2 if aside else one.chart.hover
    return f"{words}<extra>{name}</extra>" if name else None


def _line(one: Cell, number: int, ink: Mapping[str, str]) -> go.Scatter | go.Bar:
    """Return the ``number``-th line of a chart, or its bars."""
    trace, lines = one.traces[number], one.chart.lines
    if one.looks:
        own = dict(one.looks[number])
        kind = go.Bar if own.pop("type", "") == "bar" else go.Scatter
        return kind(x=trace.x, y=trace.y, name=trace.name, **own)
    token, look = lines[number % len(lines)]
    if look.get("type") == "bar":
        return go.Bar(x=trace.x, y=trace.y, name=trace.name, marker=_bar(ink, token, look))
    drawn = go.Scatter(x=trace.x, y=trace.y, name=trace.name)
    if number >= len(lines):  # a task's second metric
        token = f"s{number // len(lines) % 8}"
    return drawn.update(look).update(line_color=ink[token], marker_color=ink[token])


def _bar(ink: Mapping[str, str], token: str, look: Mapping[str, Any]) -> dict[str, Any]:
    """Style a bar: solid, or open, that is hatched on the ground in this way."""
    if not look.get("open"):
        return {"color": ink[token]}
    hatch = {"shape": look["open"], "size": 6, "fgcolor": ink[token], "bgcolor": ink["ground"]}
    return {"color": ink[token], "pattern": hatch, "line": {"color": ink[token], "width": 1}}


def _axis(name: str) -> str:
    """Return the layout's name of an axis: "yaxis2" of "y2"."""
    return f"{name[0]}axis{name[1:]}"
