"""The charts of a parameter server: clocks, staleness, waiting, bytes per server, loss.

The loss is shown by updates and by time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from workbench.analysis.chart_cells import LINE, Cell, Chart, titled, tokens
from workbench.analysis.points import Trace, thin_out
from workbench.common.units import print_size

NEWEST = 16  # iterations of the fastest worker that the staircase shows
NAMED = 8  # workers: of more no title names them
BARS = 40  # of the histogram, at most
EMPTY = "appears with a server's first update"
_BAR: dict[str, Any] = {"type": "bar"}
_OPEN: dict[str, Any] = _BAR | {"open": "/"}  # waiting is never solid
_MARK: dict[str, Any] = {
    "mode": "markers",
    "marker": {"size": 10, "symbol": "diamond"},
    "cliponaxis": False,
}
_EACH: dict[str, Any] = {"type": "category"}
CHARTS: Mapping[str, Chart] = {
    "updates": Chart(
        "Loss, by updates",
        "updates of the parameters",
        "loss",
        (("ink", LINE),),
        "update %{x:,.0f}: %{y:.4f}",
    ),
    "time": Chart("Loss, by time", "seconds", "loss", (("ink", LINE),), "%{x:.2f} s: %{y:.4f}"),
    "clocks": Chart(
        "Clocks",
        "seconds",
        "iteration",
        (("ink-3", LINE), ("wait", LINE)),
        "%{x:.3f} s: iteration %{y:.0f}",
        least=None,
        across={"rangemode": "normal"},
        up={"rangemode": "normal"},
    ),
    "staleness": Chart(
        "Staleness of gradients",
        "updates made since the pull",
        "gradients",
        (("ink-2", _BAR),),
        "%{y:,} gradients missed %{x} updates",
        across=_EACH,
    ),
    "waiting": Chart(
        "Where the workers' time went",
        "worker (rank)",
        "share of its time",
        (("forward", _BAR), ("comm", _BAR), ("wait", _OPEN), ("track", _BAR)),
        "worker %{x}: %{y:.1%}",
        ".0%",
        least=1.0,
        across=_EACH,
    ),
    "servers": Chart(
        "Bytes and queue of each server",
        "server (rank)",
        "bytes",
        (("comm", _BAR), ("comm", _OPEN), ("ink", _MARK)),
        "server %{x}: %{y:.4s}B",
        "~s",
        y2="gradients that wait, mean (◆)",
        aside=2,
        hover2="server %{x}: %{y:.2f} wait",
        across=_EACH,
    ),
}


def cell(name: str, columns: pl.DataFrame, theme: str = "light") -> Cell:
    """Return a chart of a parameter server, from the columns of its curve (served.py)."""
    chart, ink = CHARTS[name], tokens(theme)
    if name == "clocks":
        return _clocks(columns, theme)
    many = 1
    if name in ("updates", "time"):
        columns, many = thin_out("loss", columns)
    lines: Sequence[Trace] = _TRACES[name](columns)
    marks = [f'<span style="color:{ink[token]}">{chart.mark}</span>' for token, _ in chart.lines]
    each = f", a point for {many} minibatches" if many > 1 else ""
    words = _WORDS[name](columns).format(*marks) if columns.height else EMPTY
    return Cell(chart, titled(chart.title + each, words), chart.y, [*lines])


# ---- the loss


def _loss_by(column: str) -> Any:
    def lines(columns: pl.DataFrame) -> list[Trace]:
        return [Trace("loss", columns[column].to_numpy(), columns["loss"].to_numpy())]

    return lines


def _loss_caption(columns: pl.DataFrame) -> str:
    last = columns.row(-1, named=True)
    return f"{last['loss']:.4f} after {last['updates']:,.0f} updates, {last['seconds']:.1f} s"


# ---- clocks


def _clocks(columns: pl.DataFrame, theme: str) -> Cell:
    """Return a staircase per worker, in a band from the slowest to the bound; dotted in waits."""
    chart, ink, p = CHARTS["clocks"], tokens(theme), pl.col
    workers = sorted(columns.filter(p("what") == "worker")["worker"].unique())
    shown, begin, end = _newest(columns)
    limit = columns["bound"][0] if columns.height else None
    slowest = _stairs(shown.filter(p("what") == "slowest"), begin, end)
    traces, looks = [Trace("the slowest", *slowest)], [_step(ink["ink-3"], 1)]
    if limit is not None:
        x, y = slowest
        traces.append(Trace("the wall", x, y + limit))
        r, g, b = (int(ink["ink-3"][at : at + 2], 16) for at in (1, 3, 5))
        band = {"fill": "tonexty", "fillcolor": f"rgba({r},{g},{b},0.14)"}
        looks.append(_step(ink["wait"], 2) | band)
    for worker in workers:
        of_worker = shown.filter((p("what") == "worker") & (p("worker") == worker))
        traces.append(Trace(f"worker {worker}", *_stairs(of_worker, begin, end)))
        looks.append(_step(ink[f"s{worker % 8}"], 2))
    waits = shown.filter(p("what") == "wait")
    gap = np.full(waits.height, np.nan)
    x = np.column_stack([waits["seconds"].to_numpy(), waits["until_s"].to_numpy(), gap]).ravel()
    y = np.repeat(waits["clock"].to_numpy().astype(float), 3)
    traces.append(Trace("waits", x, y))
    dots = {"color": ink["wait"], "width": 5, "dash": "2px,2px"}
    looks.append({"mode": "lines", "line": dots})
    words = _clocks_caption(columns, limit, [(w, ink[f"s{w % 8}"]) for w in workers])
    return Cell(chart, titled(chart.title, words), chart.y, traces, looks=looks)


def _newest(columns: pl.DataFrame) -> tuple[pl.DataFrame, float, float]:
    """Return the rows of the time in which the fastest worker began its newest iterations."""
    p = pl.col
    steps = columns.filter(p("what") == "worker")
    if not steps.height:
        return columns, 0.0, 0.0
    top = int(steps["clock"].to_numpy().max())
    fastest = steps.filter(p("clock") >= max(top - NEWEST, 0)).sort("seconds")
    begin = float(fastest["seconds"][0])
    end = float(fastest.filter(p("clock") == top)["seconds"][0])
    before = p("seconds") <= end
    points = columns.filter((p("what") != "wait") & before)
    waits = columns.filter((p("what") == "wait") & (p("until_s") >= begin) & before)
    return pl.concat([points, waits]), begin, end


def _stairs(steps: pl.DataFrame, begin: float, end: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the steps from ``begin`` to ``end``, with the clock at both ends."""
    ordered = steps.sort("seconds", "clock")
    x, y = ordered["seconds"].to_numpy(), ordered["clock"].to_numpy().astype(float)
    first = int(np.searchsorted(x, begin, "right")) - 1
    if first >= 0:
        x, y = np.concatenate([[begin], x[first + 1 :]]), y[first:]
    if len(x) and x[-1] < end:
        x, y = np.append(x, end), np.append(y, y[-1])
    return x, y


def _step(color: str, width: float) -> dict[str, Any]:
    return {"mode": "lines", "line": {"color": color, "width": width, "shape": "hv"}}


def _clocks_caption(
    columns: pl.DataFrame, limit: int | None, colors: Sequence[tuple[int, str]]
) -> str:
    steps = columns.filter(pl.col("what") == "worker")
    if not steps.height:
        return EMPTY
    top = int(steps["clock"].to_numpy().max())
    part = f"the fastest's newest {NEWEST} iterations, " if top > NEWEST else ""
    wall = "no wall" if limit is None else f"wall {limit} ahead of the slowest"
    if len(colors) > NAMED:
        return f"{part}{wall}, dotted: waits"
    marks = " ".join(f'<span style="color:{color}">━</span> {w}' for w, color in colors)
    return f"{part}{wall}, dotted: waits · {marks}"


# ---- bars


def _staleness(columns: pl.DataFrame) -> list[Trace]:
    if not columns.height:
        return [Trace("gradients", np.zeros(0), np.zeros(0))]
    versions, counts = (columns[name].to_numpy() for name in ("staleness", "gradients"))
    width = -(-(int(versions.max()) + 1) // BARS)
    bars = int(versions.max()) // width + 1
    heights = np.bincount(versions // width, counts, bars)
    names = [str(n) if width == 1 else f"{n * width}–{(n + 1) * width - 1}" for n in range(bars)]
    return [Trace("gradients", np.array(names), heights)]


def _staleness_caption(columns: pl.DataFrame) -> str:
    versions, counts = (columns[name].to_numpy() for name in ("staleness", "gradients"))
    mean = float(np.average(versions, weights=counts))
    return f"mean {mean:.2f}, most {int(versions.max())} · {int(counts.sum()):,} gradients"


def _waiting(columns: pl.DataFrame) -> list[Trace]:
    names = np.array([str(one) for one in columns["worker"]])
    whole = np.maximum(columns["wall_s"].to_numpy(), 1e-12)
    parts = {
        "computing": "compute_s",
        "push and pull": "communication_s",
        "waits for a grant": "blocked_s",
        "rest": "other_s",
    }
    return [Trace(words, names, columns[part].to_numpy() / whole) for words, part in parts.items()]


def _waiting_caption(columns: pl.DataFrame) -> str:
    parts = ("compute_s", "communication_s", "blocked_s", "other_s")
    shares = [float((columns[part] / columns["wall_s"]).to_numpy().mean()) for part in parts]
    rows = zip(("computing", "push and pull", "waits for a grant", "rest"), shares, strict=True)
    return ", ".join(f"{{{at}}} {words} {share:.0%}" for at, (words, share) in enumerate(rows))


def _servers(columns: pl.DataFrame) -> list[Trace]:
    names = np.array([str(one) for one in columns["server"]])
    sources = {"pushed to it": "in_bytes", "pulled from it": "out_bytes", "queue": "queue"}
    return [Trace(words, names, columns[column].to_numpy()) for words, column in sources.items()]


def _servers_caption(columns: pl.DataFrame) -> str:
    moved = (columns["in_bytes"] + columns["out_bytes"]).to_numpy()
    at = int(moved.argmax())
    size = print_size(int(float(f"{moved[at]:.4g}")))
    return f"{{0}} pushed, {{1}} pulled: {size} at server {columns['server'][at]}, the busiest"


_TRACES: Mapping[str, Any] = {
    "updates": _loss_by("updates"),
    "time": _loss_by("seconds"),
    "staleness": _staleness,
    "waiting": _waiting,
    "servers": _servers,
}
_WORDS: Mapping[str, Any] = {
    "updates": _loss_caption,
    "time": _loss_caption,
    "staleness": _staleness_caption,
    "waiting": _waiting_caption,
    "servers": _servers_caption,
}
