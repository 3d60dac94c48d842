"""The chart of a sharded model: what each rank holds of it, against a rank that keeps it whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from workbench.analysis.chart_cells import LINE, Cell, Chart, titled, tokens
from workbench.analysis.points import Trace
from workbench.analysis.shards import KEEP
from workbench.common.units import print_size

NAME = "held"
NAMED = 8  # ranks that have a line each; of more there are two: the most and the least
EMPTY = "appears with the first iteration"
_PLAN: dict[str, Any] = {"mode": "lines", "line": {"width": 1.5, "dash": "dot"}}
_BYTES: dict[str, Any] = {"tickformat": "~s", "ticksuffix": "B"}
CHARTS: Mapping[str, Chart] = {
    NAME: Chart(
        "Held of the model by each rank",
        "seconds",
        "bytes, without activations",
        (("s0", LINE), ("ideal", _PLAN)),
        "%{x:.3f} s: %{y:.4s}B",
        across={"rangemode": "normal"},
        up=_BYTES,
    ),
}


def cell(columns: pl.DataFrame, theme: str = "light") -> Cell:
    """Return the chart from the columns of ``held.curve``: steps, constant between two changes."""
    chart, ink, p = CHARTS[NAME], tokens(theme), pl.col
    if not columns.height:
        return Cell(chart, titled(chart.title, EMPTY), chart.y, [Trace("", _no(), _no())])
    tops = columns.group_by("rank").agg(p("model").max()).sort("rank")
    ranks = tops["rank"].to_list()
    if len(ranks) > NAMED:
        far = tops.sort("model")["rank"]
        ranks = sorted({far[0], far[-1]})
    traces, looks = [], []
    for at, rank in enumerate(ranks):
        of_rank = columns.filter(p("rank") == rank)
        color = ink[f"s{(rank if len(tops) <= NAMED else at) % 8}"]
        traces.append(
            Trace(f"rank {rank}", of_rank["seconds"].to_numpy(), of_rank["model"].to_numpy())
        )
        looks.append(LINE | {"line": {"width": 1.5, "shape": "hv", "color": color}})
    whole = columns["unsharded"][0]
    if whole is not None:
        span = columns["seconds"].to_numpy()
        traces.append(
            Trace("unsharded", np.array([span.min(), span.max()]), np.full(2, float(whole)))
        )
        looks.append(_PLAN | {"line": {"width": 1.5, "dash": "dot", "color": ink["ideal"]}})
    cut = int(columns["iteration"].to_numpy().min()) > 0
    title = chart.title + (f", newest {KEEP} iterations" if cut else "")
    return Cell(chart, titled(title, _caption(columns, whole, ink)), chart.y, traces, looks=looks)


def _caption(columns: pl.DataFrame, whole: int | None, ink: Mapping[str, str]) -> str:
    model, held = (columns[name].to_numpy() for name in ("model", "held"))
    text = f"at most {_size(model.max())}"
    if whole:
        sign = f'<span style="color:{ink["ideal"]}">┅</span>'
        text += f", {model.max() / whole:.0%} of {sign} unsharded {_size(whole)}"
    return f"{text} · with activations {_size(held.max())}"


def _size(nbytes: float) -> str:
    return print_size(int(float(f"{nbytes:.4g}")))


def _no() -> Any:
    return np.empty(0)
