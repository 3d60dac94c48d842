"""A study as charts against the number of ranks: speed-up, efficiency, communication, cost.

Dots are measured, a line a series; thin black is theory (the ideal, Amdahl's line); gray is what
this machine can do at most, measured too: nothing that computes gets above it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go
import polars as pl

from workbench.analysis.chart_cells import Cell, Chart, titled, tokens
from workbench.analysis.comparison import DASHES
from workbench.analysis.points import Trace
from workbench.views.pages.figures import grid

IDEAL, AMDAHL = "ideal", "Amdahl, from the first two"
CEILINGS = {
    "compute_ceiling": "this machine: computing",
    "memory_ceiling": "this machine: copying memory",
}
CHARTS = {
    "speed_up": Chart("Speed-up", "ranks", "times as fast", (), "%{x} ranks: %{y:.2f}"),
    "efficiency": Chart(
        "Efficiency", "ranks", "of the ideal", (), "%{x} ranks: %{y:.0%}", ".0%", least=1.0
    ),
    "exposed_share": Chart(
        "Exposed communication", "ranks", "share of a step", (), "%{x} ranks: %{y:.1%}", ".0%"
    ),
    "rank_seconds": Chart(
        "All ranks' time together", "ranks", "ms an iteration", (), "%{x} ranks: %{y:.1f} ms"
    ),
}
SCALE = {"rank_seconds": 1e3}
Look = dict[str, Any]


def figure(table: pl.DataFrame, theme: str = "light") -> go.Figure:
    """Return the four charts; the legend is at the upper left, where lines rarely are."""
    result = grid(cells(table, theme), theme)
    return result.update_layout(legend={"x": 0.01, "xanchor": "left"})


def cells(table: pl.DataFrame, theme: str = "light") -> list[Cell]:
    """Return the four charts."""
    return [_cell(name, table, theme) for name in CHARTS]


def _cell(name: str, table: pl.DataFrame, theme: str) -> Cell:
    ink, chart = tokens(theme), CHARTS[name]
    result: list[tuple[Trace, Look]] = []
    if name == "speed_up" and table.height:
        result += _machine(table, ink)
        result += _theory(table, ink)
    for number, part in enumerate(table.partition_by("series", maintain_order=True)):
        label = part["series"][0] or "measured"
        x = part["ranks"].to_numpy()
        y = part[name].fill_null(np.nan).to_numpy() * SCALE.get(name, 1)
        result.append((Trace(label, x, y), _measured(name, part, number, ink)))
    words = "appears with the first run" if not table.height else _key(name)
    ticks = {"tickvals": table["ranks"].unique().sort().to_list()} if table.height else {}
    drawn = Chart(**{**vars(chart), "across": ticks})
    return Cell(
        drawn,
        titled(chart.title, words),
        chart.y,
        [trace for trace, _ in result],
        looks=[look for _, look in result],
        key=name == "speed_up",
        begins=name == "speed_up",
    )


def _key(name: str) -> str:
    if name == "speed_up":
        return "dots measured, bars from the least to the most; thin: theory; grey: this machine"
    return {"rank_seconds": "what an iteration costs"}.get(name, "median over the repeats")


def _measured(name: str, part: pl.DataFrame, number: int, ink: Mapping[str, str]) -> Look:
    color = ink[f"s{number % 8}"]
    look: Look = {
        "mode": "lines+markers",
        "marker": {"size": 8, "color": color},
        "line": {"color": color, "width": 2, "dash": DASHES[number % len(DASHES)]},
    }
    if name == "speed_up":
        middle = part["speed_up"].to_numpy()
        look["error_y"] = {
            "type": "data",
            "symmetric": False,
            "color": color,
            "thickness": 1.25,
            "array": part["speed_up_most"].to_numpy() - middle,
            "arrayminus": middle - part["speed_up_least"].to_numpy(),
        }
    return look


def _theory(table: pl.DataFrame, ink: Mapping[str, str]) -> list[tuple[Trace, Look]]:
    """Return the ideal line; and Amdahl's, if there is just one series."""
    first = table.partition_by("series", maintain_order=True)[0]
    thin: Look = {"mode": "lines", "line": {"color": ink["ideal"], "width": 1}}
    dashed: Look = {"mode": "lines", "line": {"color": ink["ideal"], "width": 1, "dash": "dash"}}
    lines = [(Trace(IDEAL, first["ranks"].to_numpy(), first["ideal"].to_numpy()), thin)]
    if table["series"].n_unique() == 1 and first["amdahl"].null_count() == 0:
        line = Trace(AMDAHL, first["ranks"].to_numpy(), first["amdahl"].to_numpy())
        lines.append((line, dashed))
    return lines


def _machine(table: pl.DataFrame, ink: Mapping[str, str]) -> list[tuple[Trace, Look]]:
    """Return what this machine's processes reach at most by themselves."""
    first = table.unique("ranks").sort("ranks")
    result = []
    for (column, label), dash in zip(CEILINGS.items(), ("solid", "dot"), strict=True):
        if first[column].null_count() == 0:
            look: Look = {
                "mode": "lines",
                "line": {"color": ink["edge"], "width": 5, "dash": dash},
                "opacity": 0.55,
            }
            result.append((Trace(label, first["ranks"].to_numpy(), first[column].to_numpy()), look))
    return result
