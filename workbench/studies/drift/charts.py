"""Charts of trainings against the sequential one: losses and parameters, in float32 and float64.

Both dtypes have the same scale, so that a difference that shrinks with precision is seen to fall.
``losses`` and ``table`` are the report's (studies/drift/drift.py); ``names`` are its subjects,
then its mutants.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
import polars as pl

from workbench.analysis.chart_cells import Cell, Chart, titled, tokens
from workbench.analysis.comparison import DASHES
from workbench.analysis.points import Numbers, Trace, places, thin_out
from workbench.views.pages.figures import grid

DTYPES = ("float32", "float64")
# Decades that the axes show. What is equal to the last bit stands on the lowest, which says 0.
LOSS_DECADES, ULP_DECADES = (-18, 2), (-10, 11)
MARKERS = ("circle", "square", "diamond", "triangle-up", "x", "star")


@dataclass(frozen=True)
class Axis:
    """A logarithmic axis: from which power of ten to which, and what stands at its ticks."""

    decades: tuple[int, int]
    every: int

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Power of ten, and its label."""
        first, last = self.decades
        at = range(first + self.every // 2, last + 1, self.every)
        return [(float(first), "0"), *((float(one), _power(one)) for one in at)]


LOSS, ULPS = Axis(LOSS_DECADES, 4), Axis(ULP_DECADES, 4)


def cells_of(
    losses: pl.DataFrame,
    table: pl.DataFrame,
    names: Sequence[str],
    at: Sequence[int],
    theme: str = "light",
) -> list[Cell]:
    """Return four charts: losses by iteration, and parameters by updates (``at``), in both dtypes.

    The last line is the median parameter of the first training.
    """
    looks = looks_of(names, theme)
    result: list[Cell] = []
    for what, axis in (("Loss", LOSS), ("Parameters", ULPS)):
        for dtype in DTYPES:
            lines = [_line(what, one, dtype, losses, table, axis) for one in names]
            drawn = [looks[one] for one in names]
            if what == "Parameters":
                lines.append(_median(names[0], dtype, table))
                drawn.append(_thin(looks[names[0]]))
            number, until = len(result), max(at[-1], 2)
            result.append(
                Cell(
                    _chart(what, dtype, axis, at),
                    titled(f"{what} in {dtype}", WORDS[what]),
                    UNITS[what],
                    lines,
                    until,
                    drawn,
                    key=number == 0,
                    begins=number % 2 == 0,
                )
            )
    return result


WORDS = {
    "Loss": "distance from the sequential loss, before each update",
    "Parameters": "the furthest after so many updates; thin: the median",
}
UNITS = {"Loss": "|Δ loss|", "Parameters": "ulps of float32"}


def _chart(what: str, dtype: str, axis: Axis, at: Sequence[int]) -> Chart:
    first, last = axis.decades
    powers, labels = zip(*axis.ticks, strict=True)
    up = {
        "type": "log",
        "range": [first, last],
        "autorange": False,
        "tickvals": [10.0**at for at in powers],
        "ticktext": labels,
    }
    hover = "%{x}: %{y:.2e}" if what == "Loss" else "%{x} updates: %{y:,.3g} ulps"
    across: dict[str, Any] = {}
    if what == "Parameters":
        edges = [math.log10(at[0]) - 0.03, math.log10(at[-1]) + 0.03]
        across = {"type": "log", "tickvals": [*at], "range": edges, "autorange": False}
    x = "iteration" if what == "Loss" else "updates"
    return Chart(f"{what} in {dtype}", x, UNITS[what], (), hover, least=None, up=up, across=across)


def _line(
    what: str, name: str, dtype: str, losses: pl.DataFrame, table: pl.DataFrame, axis: Axis
) -> Trace:
    if what == "Loss":
        of_subject = losses.filter(subject=name, dtype=dtype)
        thin, _ = thin_out("drift", of_subject.select("iteration", "difference"))
        return Trace(name, places(thin), _without_zeros(thin["difference"], axis))
    of_subject = table.filter(subject=name, dtype=dtype).sort("iterations")
    return Trace(
        name, of_subject["iterations"].to_numpy(), _without_zeros(of_subject["ulps_max"], axis)
    )


def _median(name: str, dtype: str, table: pl.DataFrame) -> Trace:
    of_subject = table.filter(subject=name, dtype=dtype).sort("iterations")
    return Trace(
        "", of_subject["iterations"].to_numpy(), _without_zeros(of_subject["ulps_median"], ULPS)
    )


def _thin(look: dict[str, Any]) -> dict[str, Any]:
    line = look["line"] | {"width": 1, "dash": "solid"}
    return {"mode": "lines", "line": line, "hoverinfo": "skip"}


def _without_zeros(column: pl.Series, axis: Axis) -> Numbers:
    """Return the column with each 0 raised to the least value of the logarithmic axis."""
    raised: Numbers = np.maximum(column.to_numpy(), 10.0 ** axis.decades[0])
    return raised


def looks_of(names: Sequence[str], theme: str) -> dict[str, dict[str, Any]]:
    """Return the line styles: ink for the subject; for each other training a color, dash and
    marker.
    """
    ink, result = tokens(theme), dict[str, dict[str, Any]]()
    for number, name in enumerate(names):
        color = ink[f"s{(number - 1) % 8}"] if number else ink["ink"]
        line = {"color": color, "width": 2 if number else 3, "dash": DASHES[number % len(DASHES)]}
        mark = {"size": 7, "symbol": MARKERS[number % len(MARKERS)], "color": color}
        result[name] = {"mode": "lines+markers", "line": line, "marker": mark}
    return result


def figure(
    losses: pl.DataFrame,
    table: pl.DataFrame,
    names: Sequence[str],
    at: Sequence[int],
    theme: str = "light",
) -> go.Figure:
    """Return the same charts as Plotly's."""
    cells = cells_of(losses, table, names, at, theme)
    result = grid(cells, theme)
    for number, cell in enumerate(cells):
        x, y = (f"{number + 1}", f"{2 * number + 1}") if number else ("", "")
        result.update_layout({f"yaxis{y}": cell.chart.up, f"xaxis{x}": cell.chart.across})
    below = {"orientation": "h", "x": 0, "xanchor": "left", "y": -0.11, "yanchor": "top"}
    for place in ("x", "x2"):  # losses have too many points for marks
        result.update_traces(mode="lines", selector={"xaxis": place})
    return result.update_layout(legend=below, margin_b=90, height=result.layout.height + 46)


def _power(exponent: int) -> str:
    raised = str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{raised}" if exponent else "1"
