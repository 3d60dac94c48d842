"""The charts of a pipeline: why stages idle, what they hold, how long they take; and the memory of
each rank, whatever the strategy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from workbench.analysis.chart_cells import LINE, Cell, Chart, titled, tokens
from workbench.analysis.points import Numbers, Trace
from workbench.common.units import print_size

ALIKE = 1.02  # stages whose times differ by less have no slowest one
NAMED = 8  # ranks: of more no title names them
EMPTY = "appears with a pipeline's first iteration"
NO_MEMORY = "appears with the first iteration"
# Why a stage idles: a column of the curve -> words, the color's token, and the hatch, which are
# those of the pipeline's picture.
IDLE = {
    "warm_up": ("warm-up and drain", "edge", "/"),
    "imbalance": ("imbalance", "wait", "\\"),
    "communication": ("communication", "ink-2", "-"),
    "fault": ("fault", "fault", "x"),
    "idle": ("idle", "ink-3", "."),
}
_BAR: dict[str, Any] = {"type": "bar"}
_PLAN: dict[str, Any] = {"mode": "lines", "line": {"width": 2, "dash": "dot"}}
_MARK: dict[str, Any] = {
    "mode": "markers",
    "marker": {"size": 10, "symbol": "diamond"},
    "cliponaxis": False,
}
_EACH: dict[str, Any] = {"type": "category"}
_BYTES: dict[str, Any] = {"tickformat": "~s", "ticksuffix": "B"}
CHARTS: Mapping[str, Chart] = {
    "bubble": Chart(
        "Why the ranks idle",
        "rank",
        "share of an iteration",
        (
            *((token, _BAR | {"open": hatch}) for _, token, hatch in IDLE.values()),
            ("ideal", _PLAN),
        ),
        "%{x}: %{y:.1%}",
        ".0%",
        across=_EACH,
    ),
    "stages": Chart(
        "Time of each stage",
        "stage",
        "ms a microbatch",
        (("forward", _BAR), ("backward", _BAR), ("weight-grad", _BAR), ("ink", _MARK)),
        "stage %{x}: %{y:.2f} ms",
        across=_EACH,
    ),
    "activations": Chart(
        "Activations held",
        "seconds",
        "bytes",
        (("s0", LINE), ("ideal", _PLAN)),
        "%{x:.3f} s: %{y:.4s}B",
        across={"rangemode": "normal"},
        up=_BYTES,
    ),
    "memory": Chart(
        "Most memory held by each rank",
        "rank",
        "bytes",
        (("ink-2", _BAR), ("fault", _PLAN)),
        "rank %{x}: %{y:.4s}B",
        across=_EACH,
        up=_BYTES,
    ),
}


def cell(name: str, columns: pl.DataFrame, theme: str = "light") -> Cell:
    """Return a chart of a pipeline, or of memory, from the columns of its curve (staged.py)."""
    chart, ink = CHARTS[name], tokens(theme)
    if name == "activations":
        return _activations(columns, ink)
    marks = [_mark(ink[token], look) for token, look in chart.lines]
    nothing = NO_MEMORY if name == "memory" else EMPTY
    words = _WORDS[name](columns).format(*marks) if columns.height else nothing
    return Cell(chart, titled(chart.title, words), chart.y, _TRACES[name](columns))


def _mark(color: str, look: Mapping[str, Any]) -> str:
    sign = "◆" if look is _MARK else "┅" if look is _PLAN else "■"
    return f'<span style="color:{color}">{sign}</span>'


def _names(column: pl.Series) -> Numbers:
    return np.array([str(one) for one in column])


def _size(nbytes: float) -> str:
    """Return the size, rounded to four digits."""
    return print_size(int(float(f"{nbytes:.4g}")))


# ---- why stages idle


def _bubble(columns: pl.DataFrame) -> list[Trace]:
    """Return a bar per rank, one for all, and a line for the schedule's own bubble."""
    names = np.array([*map(str, columns["rank"]), *(["all"] if columns.height else [])])
    traces = []
    for part, (words, *_) in IDLE.items():
        each = columns[part].to_numpy()
        each = np.append(each, each.mean()) if len(each) else each
        # What is nowhere has no outline; a bar of nothing keeps its place in a pile.
        traces.append(Trace(words, names, each if (each > 0).any() else each * np.nan))
    planned = columns["planned"].fill_null(np.nan).to_numpy()
    return [*traces, Trace("the schedule alone", names, np.full(len(names), planned[:1]))]


def _bubble_caption(columns: pl.DataFrame) -> str:
    means = {part: float(columns[part].to_numpy().mean()) for part in IDLE}
    key = " ".join(
        f"{{{at}}} {words}"
        for at, (part, (words, *_)) in enumerate(IDLE.items())
        if means[part] > 0 or (part not in ("fault", "idle") and not means["idle"])
    )
    planned = columns["planned"][0]
    against = "" if planned is None else f", plan {{{len(IDLE)}}} {planned:.1%}"
    return f"idle {sum(means.values()):.1%}{against} · {key}"


# ---- what each stage takes


def _stages(columns: pl.DataFrame) -> list[Trace]:
    """Return bars of forward and backward; input and weight gradient where they are separate."""
    names = _names(columns["stage"])
    forward, first, weight = (
        columns[name].fill_null(0).to_numpy() for name in ("forward_ms", "input_ms", "weight_ms")
    )
    whole = columns["backward_ms"].fill_null(0).to_numpy()
    pads = columns["pad_ms"].fill_null(np.nan).to_numpy()
    back = np.where(first > 0, first, whole)
    apart = np.where(first > 0, weight, 0)
    return [
        Trace("forward", names, forward),
        Trace("input gradient" if first.any() else "backward", names, back),
        Trace("weight gradient", names, apart),
        Trace("padded to", names, pads),
    ]


def _stages_caption(columns: pl.DataFrame) -> str:
    forward, back, weight, pads = (trace.y for trace in _stages(columns))
    whole = forward + back + weight
    at = int(whole.argmax())
    key = "{0} F {1} I {2} W" if weight.any() else "{0} forward {1} backward"
    key += " {3} padded to" if np.isfinite(pads).all() else ""
    if whole[at] < ALIKE * whole.min():
        return f"{key} · all alike, {whole.mean():.1f} ms"
    times = f"{whole[at]:.1f} ms, {whole[at] / whole.mean():.2f}× the mean"
    return f"{key} · slowest: stage {columns['stage'][at]}, {times}"


# ---- what they hold


def _activations(columns: pl.DataFrame, ink: Mapping[str, str]) -> Cell:
    """Return a step line per rank, and a dotted line at the schedule's maximum."""
    chart, p = CHARTS["activations"], pl.col
    held = columns.filter(p("what") == "bytes")
    traces, looks = [], []
    ranks = sorted(held["rank"].unique())
    for rank in ranks:
        of_rank, color = held.filter(p("rank") == rank), ink[f"s{rank % 8}"]
        x = of_rank["seconds"].to_numpy()
        traces.append(Trace(f"rank {rank}", x, of_rank["value"].to_numpy()))
        looks.append(LINE | {"line": {"width": 2, "shape": "hv", "color": color}})
        most = of_rank["most"][0]
        if most is not None:
            traces.append(Trace("", x[[0, -1]], np.array([most, most], float)))
            looks.append(_PLAN | {"line": {"width": 1.5, "dash": "dot", "color": color}})
    words = _activations_caption(columns, ink) if ranks else EMPTY
    return Cell(chart, titled(chart.title, words), chart.y, traces, looks=looks)


def _activations_caption(columns: pl.DataFrame, ink: Mapping[str, str]) -> str:
    p = pl.col
    each = (
        columns.filter(p("what") == "in flight")
        .group_by("stage")
        .agg(p("rank").first(), p("value").max(), p("most").first())
        .sort("stage")
    )
    held = _size(columns.filter(p("what") == "bytes")["value"].to_numpy().max())
    if each.height > NAMED:
        return f"at most {held} on a rank, dotted: the schedule's most"
    text = " ".join(
        f'<span style="color:{ink[f"s{rank % 8}"]}">━</span> {int(value)}'
        + ("" if most is None else f"/{int(most)}")
        for _, rank, value, most in each.iter_rows()
    )
    return f"at most {held} · microbatches in flight, of the schedule's most: {text}"


# ---- memory


def _memory(columns: pl.DataFrame) -> list[Trace]:
    names, limit = _names(columns["rank"]), columns["limit"].drop_nulls()
    line = names if len(limit) else names[:0]
    return [
        Trace(
            "parameters, gradients, optimiser state, activations",
            names,
            columns["nbytes"].to_numpy(),
        ),
        Trace("limit", line, np.full(len(line), limit[0] if len(limit) else 0.0)),
    ]


def _memory_caption(columns: pl.DataFrame) -> str:
    most, limit = columns["nbytes"].to_numpy(), columns["limit"][0]
    at = int(most.argmax())
    text = f"most {_size(most[at])} on rank {columns['rank'][at]}"
    if limit is None:
        return text
    return f"{text}, {most[at] / limit:.0%} of {{1}} the limit {_size(limit)}"


_TRACES: Mapping[str, Any] = {"bubble": _bubble, "stages": _stages, "memory": _memory}
_WORDS: Mapping[str, Any] = {
    "bubble": _bubble_caption,
    "stages": _stages_caption,
    "memory": _memory_caption,
}
