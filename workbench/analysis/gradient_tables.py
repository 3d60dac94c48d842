"""Tables of gradients and versions: the fate of each gradient at its server, each rank's version.

Moments are milliseconds since the run's first recorded event, as in tables.py.
"""

from __future__ import annotations

import polars as pl

from workbench.analysis.tables import event_origin, moment

DOING = ("forward", "backward", "push", "pull", "wait")  # kinds of rows, as they are named

p = pl.col


def gradients(events: pl.DataFrame | pl.LazyFrame) -> pl.DataFrame:
    """Return a row per gradient that a server received: see ``Run.gradients``."""
    kind, name, began = p("kind").cast(pl.String), p("name").cast(pl.String), event_origin(events)
    metric = kind == "metric"
    dropped = metric & (name == "dropped")
    rows = events.lazy()
    workers = rows.filter(metric, name.is_in(["samples", "loss"]), p("iteration") >= 0)
    computed = workers.group_by("iteration", worker="rank").agg(
        samples=p("value").filter(name == "samples").first().cast(pl.Int64),
        loss=p("value").filter(name == "loss").first(),
    )
    return (
        rows.filter((kind == "apply") | dropped)
        .select(
            "iteration",
            "version",
            server="rank",
            worker="peer",
            at_ms=moment("end_ns", began),
            dropped=dropped,
            staleness=pl.when(~dropped).then(p("value").cast(pl.Int64, strict=False)),
        )
        .join(computed, on=["worker", "iteration"], how="left")
        .select(
            *("server", "worker", "iteration", "at_ms"),
            *("staleness", "dropped", "samples", "loss", "version"),
        )
        .sort("at_ms", "server", "worker")
        .collect()
    )


def versions(events: pl.DataFrame | pl.LazyFrame, at_ms: float | None = None) -> pl.DataFrame:
    """Return a row per worker, as of a moment: see ``Run.versions``."""
    kind, began = p("kind").cast(pl.String), event_origin(events)
    start, end = moment("start_ns", began), moment("end_ns", began)
    rows = events.lazy().with_columns(kind=kind)
    if at_ms is None:
        at_ms = float(events.lazy().select(end.max()).collect().item() or 0.0)
    past = rows.filter(end <= at_ms)
    newest = past.filter(p("kind") == "apply").select(p("version").max()).collect().item()
    held = (
        past.filter(p("kind") == "pull")
        .sort("end_ns")
        .group_by("rank")
        .agg(p("version").last(), pulled_ms=end.last())
    )
    now = rows.filter(start <= at_ms, end > at_ms, p("kind").is_in(DOING)).sort("start_ns")
    doing = now.group_by("rank").agg(doing=p("kind").first())
    behind = pl.lit(newest or 0, pl.Int64) - p("version")
    table = held.join(doing, on="rank", how="left").with_columns(behind=behind).sort("rank")
    return table.select("rank", "version", "behind", "pulled_ms", "doing").collect()
