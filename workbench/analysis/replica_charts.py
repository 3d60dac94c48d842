"""The chart of replicas that mix: how far they are from their mean, against mixing alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from workbench.analysis.chart_cells import LINE, Cell, Chart, titled, tokens
from workbench.analysis.points import MOST_POINTS, Trace, places

NAME = "disagreement"
_THIN: dict[str, Any] = {"mode": "lines", "line": {"width": 1}}
_PLAN: dict[str, Any] = {"mode": "lines", "line": {"width": 1.5, "dash": "dot"}}
_LINES = {  # words -> column
    "all (root mean square)": "rms",
    "nearest": "nearest",
    "furthest": "furthest",
    "mixing alone": "alone",
}
CHARTS: Mapping[str, Chart] = {
    NAME: Chart(
        "Disagreement",
        "iteration",
        "distance, estimated",
        (("ink", LINE), ("edge", _THIN), ("edge", _THIN), ("ideal", _PLAN)),
        "iteration %{x}: %{y:.3g}",
        least=None,
    ),
}
EMPTY = "appears with the first iteration of all ranks"


def cell(columns: pl.DataFrame, theme: str = "light") -> Cell:
    """Return the chart from the columns of ``mixed.disagreement``.

    It is logarithmic where a theory predicts a decrease by a factor per iteration.
    """
    chart, ink = CHARTS[NAME], tokens(theme)
    each = -(-columns.height // MOST_POINTS) or 1
    # Of a saw's teeth every point counts: of so many iterations the last one is shown.
    thin = columns.gather_every(each, (columns.height - 1) % each) if columns.height else columns
    x = places(thin)
    planned = bool(columns["alone"].is_not_nan().any()) if columns.height else False
    lines = [Trace(words, x, _on_axis(thin[name], planned)) for words, name in _LINES.items()]
    if planned:
        chart = replace(chart, up={"type": "log", "dtick": 1})
    if not columns.height:
        return Cell(chart, titled(chart.title, EMPTY), chart.y, lines)
    mark = '<span style="color:{}">{}</span>'
    words = f"{columns['rms'][-1]:.3g} {mark.format(ink['ink'], '━')} all, "
    words += f"{mark.format(ink['edge'], '─')} nearest and furthest"
    words += f", {mark.format(ink['ideal'], '┅')} mixing alone" if planned else ""
    often = f", one of {each} iterations" if each > 1 else ""
    return Cell(chart, titled(chart.title + often, words), chart.y, lines)


def _on_axis(column: pl.Series, logarithmic: bool) -> Any:
    """Return values for the axis; a logarithmic axis has no place for 0."""
    values = column.to_numpy()
    return np.where(values > 0, values, np.nan) if logarithmic else values
