"""The chart of a ledger: the bytes of the rank that holds most, kinds upon each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from workbench.analysis.chart_cells import LINE, Cell, Chart, titled, tokens
from workbench.analysis.ledgers import KEEP
from workbench.analysis.points import Trace
from workbench.common.units import print_size

NAME = "river"
EMPTY = "appears with the first iteration"
# From the ground up: what stays first. Kind -> the color's token.
COLORS = {
    "parameters": "forward",
    "optimizer state": "optimizer",
    "communication buffers": "comm",
    "being sent": "comm",
    "gathered parameters": "weight-grad",
    "gradients": "backward",
    "unreduced gradients": "wait",
    "activations": "edge",
}
CHARTS: Mapping[str, Chart] = {
    NAME: Chart(
        "Memory from moment to moment",
        "seconds",
        "bytes",
        (("edge", LINE),),
        "%{x:.3f} s: %{y:.4s}B",
        across={"rangemode": "normal"},
        up={"tickformat": "~s", "ticksuffix": "B"},
    ),
}


def cell(columns: pl.DataFrame, theme: str = "light") -> Cell:
    """Return the chart from the columns of ``ledgers.river``: steps, constant between changes."""
    chart, ink = CHARTS[NAME], tokens(theme)
    if not columns.height:
        return Cell(chart, titled(chart.title, EMPTY), chart.y, [Trace("", _no(), _no())])
    seconds, looks = columns["seconds"].to_numpy(), list[dict[str, Any]]()
    kinds = [kind for kind in COLORS if kind in columns.columns and columns[kind].to_numpy().any()]
    for kind in kinds:
        color = ink[COLORS[kind]]
        line = {"width": 0.5, "shape": "hv", "color": color}
        looks.append({"mode": "lines", "stackgroup": "held", "line": line, "fillcolor": color})
    traces = [Trace(kind, seconds, columns[kind].to_numpy()) for kind in kinds]
    limit = columns["limit"][0]
    total = columns.select(pl.sum_horizontal(kinds)).to_series().to_numpy()
    if limit is not None and limit < 2 * total.max():  # one far above would flatten all else
        ends = np.array([seconds.min(), seconds.max()])
        traces.append(Trace("memory_limit", ends, np.full(2, float(limit))))
        looks.append({"mode": "lines", "line": {"width": 2, "dash": "dot", "color": ink["fault"]}})
    cut = f", newest {KEEP} iterations" * (int(columns["iteration"].to_numpy().max()) >= KEEP)
    title = titled(chart.title + cut, _caption(columns, kinds, int(total.argmax()), ink))
    return Cell(chart, title, chart.y, traces, looks=looks)


def _caption(columns: pl.DataFrame, kinds: list[str], at: int, ink: Mapping[str, str]) -> str:
    """Return the peak in words, which are the key of the colors too."""
    held = {kind: float(columns[kind][at]) for kind in kinds}
    total, limit = sum(held.values()), columns["limit"][0]
    text = f"most {_size(total)} on rank {columns['rank'][0]}"
    if limit is not None:
        text += f", {total / limit:.0%} of {_mark(ink['fault'], '┅')} {_size(limit)}"
    largest = sorted(kinds, key=lambda kind: -held[kind])
    names = (f"{kind} {held[kind] / total:.0%}" if held[kind] else kind for kind in largest)
    signs = (_mark(ink[COLORS[kind]], "■") for kind in largest)
    return f"{text} · {' '.join(map(' '.join, zip(signs, names, strict=True)))}"


def _mark(color: str, sign: str) -> str:
    return f'<span style="color:{color}">{sign}</span>'


def _size(nbytes: float) -> str:
    return print_size(int(float(f"{nbytes:.4g}")))


def _no() -> Any:
    return np.empty(0)
