"""Tables of collective calls, of ranks' parts in them, and of waits.

Times are milliseconds; those of moments count from the run's first recorded event. Groups of
metrics and of control do not train and are left out, but for grants, which a worker waits for.
"""

from __future__ import annotations

import polars as pl

from workbench.analysis.arrivals import (
    CALL,
    NOT_TRAINING,
    arrivals,
    bare,
    messages_of,
    parts,
    waits_by_arrival,
)
from workbench.analysis.servers import GRANTS
from workbench.analysis.tables import event_origin, lasts, moment

LAST = ["last", "late_ms", "own_ms"]
NAMED = ["number", "iteration", "collective", "algorithm", "name", "nbytes"]

p = pl.col


def calls(events: pl.DataFrame | pl.LazyFrame, iteration: int | None = None) -> pl.DataFrame:
    """Return a row per collective call: see ``Run.calls``."""
    began = event_origin(events)
    # Ranks that called different operations, or with other sizes, have rows apart.
    what = p("collective").alias("what"), pl.when("settled").then(-1).otherwise("nbytes")
    first, last = p("start_ns").min(), p("end_ns").max()
    table = _numbered(events, iteration).group_by(*CALL, what[0], what[1].alias("size"))
    came = arrivals(events).lazy().select(*CALL, *LAST)
    times = ("took_ms", "together_ms")
    return (
        table.agg(
            *(p(name).sort_by("rank").first() for name in NAMED),
            members=p("rank").sort(),
            ranks=pl.len().cast(pl.Int64),
            completed=p("settled").first(),
            start_ms=(first - began) * 1e-6,
            end_ms=(last - began) * 1e-6,
            took_ms=(last - first) * 1e-6,
            together_ms=(last - p("start_ns").max()) * 1e-6,
        )
        .join(came, on=CALL, how="left")
        .with_columns(
            *(pl.when("completed").then(one).alias(one) for one in times),
            members=pl.when(~p("completed")).then("members"),
        )
        .select(*CALL, *NAMED, "ranks", "start_ms", "end_ms", *times, *LAST, "completed", "members")
        .sort("start_ms", *CALL)
        .collect()
    )


def call_parts(events: pl.DataFrame | pl.LazyFrame, iteration: int | None = None) -> pl.DataFrame:
    """Return a row per rank's part in a call: see ``Run.calls(by_rank=True)``."""
    messages = messages_of(events)
    blocked = messages.filter(p("kind").cast(pl.String) == "wait").group_by(*CALL, "rank")
    spans = waits_by_arrival(bare(events)).select(*CALL, "rank", by_span="waited_ms")
    return (
        _numbered(events, iteration)
        .join(blocked.agg(blocked=lasts().sum()), on=[*CALL, "rank"], how="left")
        .join(messages.select(*CALL, unblocked=0.0).unique(), on=CALL, how="left")
        .join(spans, on=[*CALL, "rank"], how="left")
        .select(
            *CALL,
            "rank",
            *NAMED,
            start_ms=moment("start_ns", event_origin(events)),
            took_ms=lasts(),
            waited_ms=pl.coalesce("blocked", "unblocked", "by_span"),
            completed="settled",
        )
        .sort("start_ms", *CALL, "rank")
        .collect()
    )


def _numbered(events: pl.DataFrame | pl.LazyFrame, iteration: int | None) -> pl.LazyFrame:
    return parts(events).filter(_of(iteration)).with_columns(number=p("op") + 1)


def waits(events: pl.DataFrame | pl.LazyFrame, iteration: int | None = None) -> pl.DataFrame:
    """Return columns rank, peer, what, waits, waited_ms, longest_ms, late_ms: see ``Run.waits``."""
    kind, lane = p("kind").cast(pl.String), p("lane").cast(pl.String)
    grants, group = lane == GRANTS, p("group").cast(pl.String)
    rows = events.lazy().filter(
        kind == "wait", ~p("group").cast(pl.String).is_in(NOT_TRAINING) | grants, _of(iteration)
    )
    name = p("collective").cast(pl.String)
    what = pl.when(grants).then(pl.lit("grant")).when(name == "p2p").then(pl.lit("message"))
    came = parts(events).select(*CALL, peer="rank", came="start_ns")
    # A rank that never came to a call was late for as long as the others waited for it.
    until = pl.min_horizontal(p("came").fill_null(p("end_ns")), "end_ns")
    late = pl.when(~p("what").is_in(["grant", "message"])).then(
        (until - p("start_ns")).clip(0) * 1e-6
    )
    recorded = (
        rows.select(
            "generation",
            "op",
            "rank",
            "peer",
            "start_ns",
            "end_ns",
            group=group,
            what=what.otherwise(name),
            waited_ms=lasts(),
        )
        .join(came, on=[*CALL, "peer"], how="left")
        .select("rank", "peer", "what", "waited_ms", late_ms=late)
    )
    spans = waits_by_arrival(bare(events)).filter(
        _of(iteration), p("peer") >= 0, p("rank") != p("peer")
    )
    spans = spans.select("rank", "peer", "waited_ms", what="collective", late_ms="waited_ms")
    return (
        pl.concat([recorded, spans.select(recorded.collect_schema().names())])
        .group_by("rank", "peer", "what")
        .agg(
            waits=pl.len().cast(pl.Int64),
            waited_ms=p("waited_ms").sum(),
            longest_ms=p("waited_ms").max(),
            late_ms=pl.when(p("late_ms").count() > 0).then(p("late_ms").sum()),
        )
        .sort("rank", "peer", "what")
        .collect()
    )


def _of(iteration: int | None) -> pl.Expr:
    return pl.lit(True) if iteration is None else p("iteration") == iteration
