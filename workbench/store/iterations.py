"""Sums over training's rows: steps of the ranks, iterations of the run. Pure functions.

For one rank and one iteration:

    step      from the start of its first row to the end of its last one
    compute   the union of its spans forward, backward, weight_grad, optimizer, load, and of
              metrics that took time
    comm.     the union of its outer spans, what it waited inside included
    hidden    where both happen at once
    exposed   comm. - hidden: communication and waiting that no computing hides
    hidable   of DDP's buckets (store/overlap.py says why): the smaller of what all but the last
              one take to communicate, and of backward from when the first one is full
    asked     how long it stood still for examples that it had asked a server for, until it had them
    load      the union of its load spans: what it stands still for its examples otherwise

No time counts in which a reader held the ranks. Rows of computing, metrics and outer spans
(collective, push, pull) say all of it: a tenth of all.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

COMPUTE = ("forward", "backward", "weight_grad", "optimizer", "load", "metric")
OUTER = ("collective", "push", "pull")
SPLITS = ("minibatch", "validation")  # the phase of a metric that the task measured
MANY = 64  # pieces of a table; then they become one

ROWS = pl.Schema(
    {
        "rank": pl.Int32(),
        "iteration": pl.Int64(),
        "kind": pl.String(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "name": pl.String(),
        "phase": pl.String(),
        "value": pl.Float64(),
    }
)
_STEP = ["rank", "iteration"]


def steps(rows: pl.DataFrame, holds: Sequence[tuple[int, int]] = ()) -> pl.DataFrame:
    """Return one row per rank and iteration: start_ns, end_ns, step_ns, compute_ns,
    communication_ns, hidden_ns, hidable_ns (null: no buckets), asked_ms, load_ms, loss, samples,
    ended. ``holds``: when a reader held the ranks (store/holds.py).
    """
    table = _steps(rows.with_columns(_unheld(name, holds) for name in ("start_ns", "end_ns")))
    if not holds:
        return table
    lasting = rows.filter(pl.col("end_ns") > pl.col("start_ns"))
    at = lasting.group_by(_STEP).agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    return table.drop("start_ns", "end_ns").join(at, on=_STEP, how="left")


def _unheld(name: str, holds: Sequence[tuple[int, int]]) -> pl.Expr:
    """Return the moments of this column on a clock that stands during the holds."""
    moment = pl.col(name)
    for begin, end in holds:
        moment = moment - (pl.col(name).clip(begin, end) - begin)
    return moment


def _steps(rows: pl.DataFrame) -> pl.DataFrame:
    p = pl.col
    metric, lasts = p("kind") == "metric", p("end_ns") > p("start_ns")
    spans = rows.filter(lasts)
    compute = union(spans.filter(p("kind").is_in(COMPUTE)), "compute_ns")
    outer = spans.filter(p("kind").is_in(OUTER))
    moved, both = union(outer, "communication_ns"), union(spans, "both_ns")
    loads = union(spans.filter(p("kind") == "load"), "load_ns").select(
        *_STEP, load_ms=p("load_ns") / 1e6
    )
    table = (
        rows.filter(metric)
        .group_by(_STEP)
        .agg(
            p("value").filter(p("name") == "loss").last().alias("loss"),
            p("value").filter(p("name") == "samples").last().alias("samples"),
            p("value").filter(p("name") == "stall").sum().alias("asked_ms"),
            (p("name") == "runqueue").any().alias("ended"),
        )
    )
    return (
        spans.group_by(_STEP)
        .agg(p("start_ns").min(), p("end_ns").max())
        .join(compute, on=_STEP, how="left")
        .join(moved, on=_STEP, how="left")
        .join(both, on=_STEP, how="left")
        .join(_hidable(rows, outer), on=_STEP, how="left")
        .join(table, on=_STEP, how="left")
        .join(loads, on=_STEP, how="left")
        .with_columns(
            p("asked_ms", "load_ms").fill_null(0.0),
            p("compute_ns", "communication_ns").fill_null(0),
            p("ended").fill_null(False),
            step_ns=p("end_ns") - p("start_ns"),
        )
        .with_columns(hidden_ns=p("compute_ns") + p("communication_ns") - p("both_ns"))
        .drop("both_ns")
    )


def union(
    spans: pl.DataFrame, name: str, by: Sequence[str] = ("rank", "iteration")
) -> pl.DataFrame:
    """Compute how long at least one of an iteration's spans lasts."""
    p, step = pl.col, [*by]
    return (
        spans.sort(*step, "start_ns")
        .with_columns(p("end_ns").cum_max().shift(1).over(step).alias("before"))
        .with_columns(
            (p("end_ns") - pl.max_horizontal("start_ns", "before")).clip(0).alias("own_ns")
        )
        .group_by(step)
        .agg(p("own_ns").sum().alias(name))
    )


def _hidable(rows: pl.DataFrame, outer: pl.DataFrame) -> pl.DataFrame:
    """Compute how much of the buckets' communication the backward pass could hide."""
    p, took = pl.col, pl.col("end_ns") - pl.col("start_ns")
    moved = (
        outer.filter(p("name").cast(pl.String).str.starts_with("bucket "))
        .sort("start_ns")
        .with_columns(last=p("name").last().over(_STEP))
        .group_by(_STEP)
        .agg(early=took.filter(p("name") != p("last")).sum())
    )
    return (
        rows.group_by(_STEP)
        .agg(
            full=p("start_ns").filter(p("name") == "bucket full").min(),
            back=p("end_ns").filter(p("kind") == "backward").max(),
        )
        .drop_nulls()
        .join(moved, on=_STEP)
        .select(*_STEP, hidable_ns=pl.min_horizontal("early", (p("back") - p("full")).clip(0)))
    )


def iterations(steps: pl.DataFrame) -> pl.DataFrame:
    """Add up the ranks' iterations to the run's; ``merged`` adds such tables to each other."""
    p = pl.col
    weight = p("samples").fill_null(1.0)
    return (
        steps.group_by("iteration")
        .agg(
            p("start_ns").min(),
            p("end_ns").max(),
            pl.len().cast(pl.Int64).alias("ranks"),
            p("step_ns", "compute_ns", "communication_ns", "hidden_ns").sum(),
            p("hidable_ns").sum(),
            (p("loss") * weight).filter(weight > 0).sum().alias("loss_sum"),
            weight.filter(p("loss").is_not_null()).sum().alias("loss_weight"),
            p("samples").sum(),
            p("asked_ms", "load_ms").sum(),
        )
        .sort("iteration")
    )


def merge(older: pl.DataFrame, newer: pl.DataFrame) -> pl.DataFrame:
    """Merge two tables of ``iterations``. Costs what the newer one touches."""
    if not newer.height or not older.height:
        return newer if not older.height else older
    first = older["iteration"].search_sorted(newer["iteration"][0])
    least, most = {"start_ns"}, {"end_ns"}
    touched = (
        pl.concat([older[first:], newer])
        .group_by("iteration")
        .agg(
            pl.col(name).min()
            if name in least
            else pl.col(name).max()
            if name in most
            else pl.col(name).sum()
            for name in older.columns
            if name != "iteration"
        )
        .sort("iteration")
    )
    whole = pl.concat([older[:first], touched], rechunk=False)
    return whole.rechunk() if whole.n_chunks() > MANY else whole


def metrics(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the task's own metrics, by split, with sums for the sample-weighted mean."""
    p = pl.col
    samples = rows.filter(p("name") == "samples").select(*_STEP, p("value").alias("samples"))
    weight = p("samples").fill_null(1.0)
    return (
        rows.filter((p("kind") == "metric") & p("phase").is_in(SPLITS))
        .join(samples.unique(_STEP), on=_STEP, how="left")
        .group_by("iteration", metric="name", split="phase")
        .agg(
            (p("value") * weight).sum().alias("value_sum"),
            weight.sum().alias("weight"),
        )
        .sort("iteration", "metric", "split")
    )
