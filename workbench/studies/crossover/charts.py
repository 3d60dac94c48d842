"""Time against size of algorithms, both logarithmic: dots measured, lines predicted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go
import polars as pl

from workbench.analysis.chart_cells import Cell, Chart, titled, tokens
from workbench.analysis.points import Trace
from workbench.views.pages.figures import grid

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "x", "star")
TICKS = {"KiB": 10, "MiB": 20, "GiB": 30}  # powers of two that have names


def figure(table: pl.DataFrame, operation: str, theme: str = "light") -> go.Figure:
    """Return a Plotly figure: wider than a run's charts, with its key in the upper left."""
    result = grid([cell(table, operation, theme)], theme)
    return result.update_layout(
        height=420, hovermode="closest", legend={"x": 0.01, "xanchor": "left"}
    )


def cell(table: pl.DataFrame, operation: str, theme: str = "light") -> Cell:
    """Return the chart: each algorithm's predicted line and measured dots, in one color."""
    ink, traces, looks = tokens(theme), list[Trace](), list[dict[str, Any]]()
    for number, part in enumerate(table.partition_by("algorithm", maintain_order=True)):
        name, x = part["algorithm"][0], part["bytes"].to_numpy()
        predicted, measured = (
            part[kind].fill_null(np.nan).to_numpy() * 1e3 for kind in ("predicted", "measured")
        )
        any_dots = bool(np.isfinite(measured).any())
        traces.append(Trace("" if any_dots else f"{name}, predicted", x, predicted))
        looks.append(_line(number, ink))
        if any_dots:
            traces.append(Trace(name, x, measured))
            looks.append(_dots(number, ink))
    chart = Chart(
        f"{operation.replace('_', '-')}: time of a call",
        "bytes",
        "ms",
        (),
        "%{x:,} bytes: %{y:.4g} ms",
        least=None,
        across={"type": "log", **_ticks(table)},
        up={"type": "log", "dtick": 1, "tickformat": "~g"},
    )
    words = "dots measured (median), lines predicted; both axes are logarithmic"
    return Cell(chart, titled(chart.title, words), "ms", traces, looks=looks, key=True)


def _line(number: int, ink: Mapping[str, str]) -> dict[str, Any]:
    return {"mode": "lines", "line": {"color": ink[f"s{number % 8}"], "width": 1.5}}


def _dots(number: int, ink: Mapping[str, str]) -> dict[str, Any]:
    symbol = SYMBOLS[number % len(SYMBOLS)]
    color = ink[f"s{number % 8}"]
    return {
        "mode": "markers",
        "line": {"color": color, "width": 1.5},
        "marker": {"size": 9, "color": color, "symbol": symbol},
    }


def _ticks(table: pl.DataFrame) -> dict[str, Any]:
    """Return ticks at round sizes: 1 KiB, 16 KiB, ..."""
    if not table.height:
        return {}
    low, high = (int(np.log2(float(v))) for v in (table["bytes"].min(), table["bytes"].max()))  # type: ignore[arg-type]
    every = range(low + low % 2, high + 1, 2)
    return {"tickvals": [2**k for k in every], "ticktext": [named(k) for k in every]}


def named(k: int) -> str:
    """Return 2^k bytes as text: "64 KiB"."""
    unit, power = max(
        ((u, p) for u, p in TICKS.items() if p <= k), key=lambda one: one[1], default=("B", 0)
    )
    return f"{2 ** (k - power)} {unit}"
