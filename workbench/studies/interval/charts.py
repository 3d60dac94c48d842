"""The study as two charts against the interval: time per useful iteration, and where it goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go
import polars as pl

from workbench.analysis.chart_cells import Cell, Chart, titled, tokens
from workbench.analysis.points import Trace
from workbench.studies.interval.table import Costs, best_of
from workbench.views.pages.figures import grid

HOVER = "every %{x} iterations: %{y:.2f} ms"
CHARTS = {
    "total": Chart("Time per useful iteration", "iterations between checkpoints", "ms", (), HOVER),
    "parts": Chart("Where it goes", "iterations between checkpoints", "ms", (), HOVER),
}
PARTS = {  # column -> name, token of its color
    "checkpoint_s": ("waiting for checkpoints", "comm"),
    "lost_s": ("work lost and done again", "wait"),
    "recovery_s": ("recovery", "optimizer"),
}
POINTS = 60  # of the curve of theory
Look = dict[str, Any]


def figure(table: pl.DataFrame, costs: Costs | None, theme: str = "light") -> go.Figure:
    """Return both charts."""
    return grid(cells(table, costs, theme), theme)


def cells(table: pl.DataFrame, costs: Costs | None, theme: str = "light") -> list[Cell]:
    """Return both charts, as data."""
    ink = tokens(theme)
    return [_total(table, costs, ink), _parts(table, ink)]


def _total(table: pl.DataFrame, costs: Costs | None, ink: Mapping[str, str]) -> Cell:
    drawn: list[tuple[Trace, Look]] = []
    if table.height:
        if costs is not None:
            drawn += _theory(table, costs, ink)
        x, y = table["every"].to_numpy(), table["seconds"].to_numpy() * 1e3
        reach = {
            "type": "data",
            "symmetric": False,
            "color": ink["ink"],
            "thickness": 1.25,
            "array": table["seconds_most"].to_numpy() * 1e3 - y,
            "arrayminus": y - table["seconds_least"].to_numpy() * 1e3,
        }
        drawn.append((Trace("measured", x, y), _line(ink["ink"], dots=True) | {"error_y": reach}))
        key = f"{_key(drawn)} · least with {best_of(table)}"
    else:
        key = "appears with the first run"
    return _cell("total", table, drawn, key)


def _parts(table: pl.DataFrame, ink: Mapping[str, str]) -> Cell:
    x = table["every"].to_numpy()
    drawn = [
        (Trace(name, x, table[column].to_numpy() * 1e3), _line(ink[token], dots=True))
        for column, (name, token) in PARTS.items()
        if table.height
    ]
    return _cell("parts", table, drawn, _key(drawn) or "appears with the first run")


def _theory(table: pl.DataFrame, costs: Costs, ink: Mapping[str, str]) -> list[tuple[Trace, Look]]:
    """Return the curve of the first-order model, and Young's and Daly's intervals as uprights."""
    every = table["every"].to_numpy()
    x = np.geomspace(every.min(), every.max(), POINTS)
    y = np.array([costs.expected(one) for one in x]) * 1e3
    lines = [(Trace("first-order model", x, y), _line(ink["ideal"], width=1.25))]
    top = max(float(y.max()), float(table["seconds_most"].to_numpy().max()) * 1e3)
    for name, at, dash in (("Young", costs.young, "dash"), ("Daly", costs.daly, "dot")):
        if every.min() <= at <= every.max():
            upright = Trace(f"{name}: {at:.3g}", np.array([at, at]), np.array([0.0, top]))
            lines.append((upright, _line(ink["ideal"], width=1.25, dash=dash)))
    return lines


def _line(color: str, *, dots: bool = False, width: float = 2, dash: str = "solid") -> Look:
    look: Look = {"mode": "lines", "line": {"color": color, "width": width, "dash": dash}}
    return look | {"mode": "lines+markers", "marker": {"size": 7, "color": color}} if dots else look


def _key(drawn: list[tuple[Trace, Look]]) -> str:
    marks = {"solid": "—", "dash": "╌", "dot": "┈"}
    return " · ".join(
        f'<span style="color:{look["line"]["color"]}">'
        f"{'●' if 'markers' in look['mode'] else marks[look['line']['dash']]}</span> {trace.name}"
        for trace, look in drawn
    )


def _cell(name: str, table: pl.DataFrame, drawn: list[tuple[Trace, Look]], key: str) -> Cell:
    ticks = table["every"].to_list()
    across: dict[str, Any] = {}
    if ticks:
        words = [f"{one:g}" for one in ticks]
        across = {"type": "log", "tickmode": "array", "tickvals": ticks, "ticktext": words}
    chart = Chart(**{**vars(CHARTS[name]), "across": across})
    traces, looks = [trace for trace, _ in drawn], [look for _, look in drawn]
    return Cell(chart, titled(chart.title, key), chart.y, traces, looks=looks)
