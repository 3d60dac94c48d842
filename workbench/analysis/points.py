"""Columns of a curve as what a chart shows: few enough points, and the newest numbers in words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

Numbers = npt.NDArray[np.number[Any]]
MOST_POINTS = 400
EMPTY_WORDS = "appears with the first iteration"


@dataclass(frozen=True)
class Trace:
    """One line of a chart: its name, and its points (NaN where the value is unknown)."""

    name: str
    x: Numbers
    y: Numbers


def traces(name: str, columns: pl.DataFrame) -> list[Trace]:
    """Return the lines of a chart from the columns of its curve, at most MOST_POINTS each."""
    thin, _ = thin_out(name, columns)
    if name == "accuracy":
        return _metric_lines(thin)
    return [
        Trace(words, places(thin) if x == "iteration" else thin[x].to_numpy(), _as_floats(thin[y]))
        for words, x, y in _lines(name, thin)
    ]


def places(columns: pl.DataFrame) -> Numbers:
    """Return where the iterations stand on an axis: charts count them from 1, as people do."""
    return columns["iteration"].to_numpy() + 1


def _as_floats(column: pl.Series) -> Numbers:
    return column.fill_null(math.nan).to_numpy()


def _lines(name: str, columns: pl.DataFrame) -> list[tuple[str, str, str]]:
    """Return each line's name, and the columns of its x and y."""
    match name:
        case "throughput":
            speed = _speed(columns)
            return [(f"{speed.split('_')[0]} a second", "iteration", speed)]
        case "communication":
            return [
                ("computing", "iteration", "compute_ms"),
                ("communication and waiting", "iteration", "exposed_ms"),
            ]
        case "overlap":
            return [
                ("hidden behind computing", "iteration", "hidden_ms"),
                ("exposed", "iteration", "exposed_ms"),
                ("could be hidden", "iteration", "hidable_ms"),
            ]
        case "input":
            return [
                ("stands still for examples", "iteration", "stall_ms"),
                ("the whole step", "iteration", "step_ms"),
            ]
        case "overhead":
            return [
                ("events per second", "seconds", "events_per_s"),
                ("ns a record", "seconds", "record_ns"),
            ]
    return [(name, "iteration", name)]


def _metric_lines(thin: pl.DataFrame) -> list[Trace]:
    """Return two lines per metric: during training, and of the validation at the end."""
    result = []
    for metric in thin["metric"].unique(maintain_order=True).to_list() or ["accuracy"]:
        for split in ("minibatch", "validation"):
            points = thin.filter(metric=metric, split=split)
            words = split if metric == "accuracy" else f"{metric}, {split}"
            result.append(Trace(words, places(points), points["value"].to_numpy()))
    return result


def _speed(columns: pl.DataFrame) -> str:
    """Return the column of speed: iterations if samples were not counted (in old records)."""
    unknown = columns.height and columns["samples_per_s"].null_count() == columns.height
    return "iterations_per_s" if unknown else "samples_per_s"


def thin_out(name: str, columns: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Return the columns thinned to MOST_POINTS rows, and the number of rows merged into one.

    The number is a power of two, so that points of a growing curve rarely move.
    """
    p, many = pl.col, 1
    while columns.height > MOST_POINTS * many:
        many *= 2
    if many == 1:
        return columns, many
    if name == "overhead":
        return _means(columns.with_row_index("at"), p("at") // many), many
    part = p("iteration") // many
    if name == "throughput":
        took = columns.group_by(part.alias("part"), maintain_order=True).agg(
            p("iteration").last(),
            p("seconds").last(),
            p("took_s").sum(),
            pl.len().alias("iterations_per_s"),
            _sum(p("samples_per_s") * p("took_s")),
        )
        rates = [p(rate) / p("took_s") for rate in ("iterations_per_s", "samples_per_s")]
        return took.with_columns(rates), many
    if name == "accuracy":
        keys = [part.alias("part"), "metric", "split"]
        return columns.group_by(keys, maintain_order=True).agg(pl.all().last()), many
    return _means(columns, part), many


def _sum(expression: pl.Expr) -> pl.Expr:
    """Return a sum that is null, not 0, where all values are null."""
    return pl.when(expression.count() > 0).then(expression.sum())


def _means(columns: pl.DataFrame, part: pl.Expr) -> pl.DataFrame:
    """Return the means of each group of rows, at its last iteration."""
    last = {"iteration", "seconds"}
    return columns.group_by(part.alias("part"), maintain_order=True).agg(
        pl.col(name).last() if name in last else pl.col(name).mean()
        for name in columns.columns
        if name != "at"
    )


def caption(name: str, columns: pl.DataFrame, dropped: int = 0) -> str:
    """Return the newest numbers as text; {0} and {1} stand for the marks of the chart's lines."""
    match name:
        case "loss":
            return _loss(columns)
        case "accuracy":
            return _accuracy(columns)
        case "throughput":
            return _throughput(_recent(columns))
        case "communication":
            return _communication(_recent(columns))
        case "overlap":
            return _overlap(_recent(columns))
        case "input":
            return _input(_recent(columns))
    return _recording(_recent(columns), dropped)


def _recent(columns: pl.DataFrame) -> pl.DataFrame:
    """Return the newest fifth, because one value is noisy."""
    return columns.tail(-(-columns.height // 5))


def _loss(columns: pl.DataFrame) -> str:
    if not columns.height:
        return EMPTY_WORDS
    last = columns.row(-1, named=True)
    return f"{last['loss']:.4f} in iteration {last['iteration'] + 1:,}"


def _accuracy(columns: pl.DataFrame) -> str:
    newest = {row["split"]: row for row in columns.iter_rows(named=True)}
    if not newest:
        return "{0} minibatch, {1} validation: " + EMPTY_WORDS
    lines = []
    for mark, split in (("{0}", "minibatch"), ("{1}", "validation")):
        if row := newest.get(split):
            share = row["metric"] == "accuracy"
            value = f"{row['value']:.1%}" if share else f"{row['metric']} {row['value']:.4g}"
            lines.append(f"{mark} {split} {value}")
        else:
            lines.append(f"{mark} {split} at the end")
    return ", ".join(lines)


def _throughput(recent: pl.DataFrame) -> str:
    if not recent.height:
        return EMPTY_WORDS
    speed = _speed(recent)
    took = recent["took_s"].to_numpy()
    rate = (recent[speed].to_numpy() * took).sum() / took.sum()
    return f"{rate:,.0f} {speed.split('_')[0]} a second"


def _communication(recent: pl.DataFrame) -> str:
    if not recent.height:
        return "{1} communication and waiting, {0} computing: " + EMPTY_WORDS
    many, parts = recent.height, ("step_ms", "compute_ms", "exposed_ms")
    step, computing, exposed = (float(recent[part].to_numpy().sum()) for part in parts)
    return (
        f"{{1}} communication and waiting {exposed / many:.2f} ms, "
        f"{{0}} computing {computing / many:.2f} ms · {exposed / step:.0%} of a step · "
        "waits for a core are in both"
    )


def _input(recent: pl.DataFrame) -> str:
    if not recent.height:
        return "{0} stands still for examples, {1} step: " + EMPTY_WORDS
    stall, step = (float(recent[part].to_numpy().mean()) for part in ("stall_ms", "step_ms"))
    return (
        f"{{0}} a worker stands still for examples {stall:.2f} ms of a {{1}} step of {step:.2f} ms"
    )


def _overlap(recent: pl.DataFrame) -> str:
    if not recent.height:
        return "{0} hidden behind computing, {1} exposed: " + EMPTY_WORDS
    parts = ("hidden_ms", "exposed_ms", "hidable_ms")
    hidden, exposed, could = (float(recent[part].to_numpy().mean()) for part in parts)
    limit = f"{{2}} {could:.2f} ms that could be"
    return f"{{0}} hidden {hidden:.2f} of {limit}, {{1}} exposed {exposed:.2f} ms"


def _recording(recent: pl.DataFrame, dropped: int) -> str:
    if not recent.height:
        return EMPTY_WORDS
    rate = f"{recent['events_per_s'].to_numpy().mean():,.0f} events/s"
    lost = f"{dropped:,} dropped"
    if recent["record_ns"].null_count():
        return f"{rate} · {lost}"
    cost, share = recent["record_ns"][-1], recent["share"].to_numpy().mean()
    return f"{rate} · {cost:,.0f} ns each · {share:.1%} of the ranks' time · {lost}"
