"""The actions of a pipeline's schedule, as recorded in a run's event table."""

from __future__ import annotations

import polars as pl

from workbench.training.pipelines.schedule import Schedule

KINDS = ("forward", "backward", "weight_grad")


def letter() -> pl.Expr:
    """Return the letter of a row's action, as a schedule has it: F, B, or I and W."""
    kind, name = pl.col("kind").cast(pl.String), pl.col("name").cast(pl.String)
    return (
        pl.when(kind == "forward")
        .then(pl.lit("F"))
        .when(kind == "weight_grad")
        .then(pl.lit("W"))
        .when(name == "input")
        .then(pl.lit("I"))
        .otherwise(pl.lit("B"))
    )


def actions(events: pl.DataFrame, schedule: Schedule, each: int | None = None) -> pl.DataFrame:
    """Return one row per completed action, by replica, iteration and start.

    Columns replica, place (rank in the pipeline), rank (of all), iteration, action ("0F3"), stage,
    what ("F", "B", "I", "W"), microbatch, start_ns, end_ns, version. Without a flush the schedule
    numbers microbatches across iterations, ``each`` per iteration, and all rows are in iteration
    -1.
    """
    p, ranks = pl.col, schedule.ranks
    rows = events.filter(
        p("kind").cast(pl.String).is_in(KINDS), p("microbatch") >= 0, p("iteration") >= 0
    )
    microbatch, iteration = p("microbatch").cast(pl.Int64), p("iteration")
    if not schedule.flush:
        each = each or 1 + int(rows.select(p("microbatch").max()).item() or 0)
        microbatch, iteration = iteration * each + microbatch, pl.lit(-1, pl.Int64)
    return (
        rows.select(
            "rank",
            "stage",
            "start_ns",
            "end_ns",
            "version",
            what=letter(),
            microbatch=microbatch,
            iteration=iteration,
            replica=p("rank") // ranks,
            place=p("rank") % ranks,
        )
        .with_columns(action=pl.format("{}{}{}", "stage", "what", "microbatch"))
        .sort("replica", "iteration", "start_ns", "end_ns")
    )
