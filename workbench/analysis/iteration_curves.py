"""Curves of iterations: columns from the table of iterations that all ranks have finished.

``shown`` is that table (store/iterations.py), with ``seconds``: when each iteration ended.
Times are means over ranks.
"""

from __future__ import annotations

import polars as pl


def loss(shown: pl.DataFrame) -> pl.DataFrame:
    """Return the mean loss over each minibatch, before its update."""
    p = pl.col
    return shown.filter(p("loss_weight") > 0).select(
        "iteration", "seconds", loss=p("loss_sum") / p("loss_weight")
    )


def accuracy(shown: pl.DataFrame, metrics: pl.DataFrame) -> pl.DataFrame:
    """Return the task's own metrics: of minibatches, and of the validation samples at the end."""
    p, shown = pl.col, shown.select("iteration", "seconds")
    last = shown.tail(1)
    by_split = metrics.group_by("iteration", "metric", "split").agg(
        (p("value_sum").sum() / p("weight").sum()).alias("value")
    )
    ended = p("split") == "validation"
    parts = [
        by_split.filter(~ended).join(shown, on="iteration"),
        by_split.filter(ended).drop("iteration").join(last, how="cross"),
    ]
    columns = ["iteration", "seconds", "metric", "split", "value"]
    return pl.concat([one.select(columns) for one in parts]).sort("metric", "split", "iteration")


def throughput(shown: pl.DataFrame) -> pl.DataFrame:
    """Return how long each iteration took, and the iterations and samples per second."""
    p = pl.col
    return (
        shown.with_columns(took_s=p("seconds").diff().fill_null(p("seconds")))
        .filter(p("took_s") > 0)
        .select(
            "iteration",
            "seconds",
            "took_s",
            iterations_per_s=1 / p("took_s"),
            samples_per_s=pl.when(p("samples") > 0).then(p("samples") / p("took_s")),
        )
    )


def communication(shown: pl.DataFrame) -> pl.DataFrame:
    """Return the time of an iteration, its computing, and exposed communication and waiting."""
    p, per_rank = pl.col, 1e6 * pl.col("ranks")
    return shown.select(
        "iteration",
        "seconds",
        step_ms=p("step_ns") / per_rank,
        compute_ms=p("compute_ns") / per_rank,
        exposed_ms=(p("communication_ns") - p("hidden_ns")) / per_rank,
    )


def overlap(shown: pl.DataFrame) -> pl.DataFrame:
    """Return the communication that computing hides, what is exposed, and what could be hidden."""
    p, per_rank = pl.col, 1e6 * pl.col("ranks")
    return shown.select(
        "iteration",
        "seconds",
        hidden_ms=p("hidden_ns") / per_rank,
        exposed_ms=(p("communication_ns") - p("hidden_ns")) / per_rank,
        hidable_ms=p("hidable_ns") / per_rank,
    )


def input_wait(shown: pl.DataFrame) -> pl.DataFrame:
    """Return the time that ranks wait for examples, beside the time of an iteration."""
    p = pl.col
    input_ms = pl.when(p("asked_ms") > 0).then("asked_ms").otherwise("load_ms")
    return shown.select(
        "iteration",
        "seconds",
        stall_ms=input_ms / p("ranks"),
        step_ms=p("step_ns") / (1e6 * p("ranks")),
    )


BY_NAME = {
    "loss": loss,
    "throughput": throughput,
    "communication": communication,
    "overlap": overlap,
    "input": input_wait,
}
