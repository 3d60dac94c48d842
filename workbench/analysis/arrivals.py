"""Arrivals: which rank comes last to a collective, how late it is, and how much of that is its own.

A rank is late only if it had time to be there. One whose previous call has just ended was kept by
that call: a slow link staggers the ranks of a ring, and no rank is slow. So

    late   how long after the last but one it came: for so long all others wait for it alone
    free   since its previous call began or ended, whichever was later: its own time
    own    min(late, free - median of the others' free): how much longer it took than they did
"""

from __future__ import annotations

import polars as pl

from workbench.recording.events import FAILED

NOT_TRAINING = ("metrics", "control")  # groups whose bytes are not training's
CALL = ("generation", "group", "op")  # what makes a call one call, on all of its ranks
MOST = 0.5  # of a lateness: a rank that has caused so much of it is late
# Operations that no rank ends before all have come: their spans alone tell which ranks wait.
MEETINGS = ("all_reduce", "barrier", "all_gather", "reduce_scatter", "all_to_all")
FROM_ROOT, TO_ROOT = ("broadcast", "scatter"), ("reduce", "gather")

p = pl.col


def spoken(collective: str) -> str:
    """Return an operation's name in a sentence: "all-reduce"."""
    return collective.replace("_", "-")


def parts(events: pl.DataFrame | pl.LazyFrame) -> pl.LazyFrame:
    """Return a row per rank's part in a call, with ``first_ns`` and ``last_ns``: when the first and
    the last rank came to it, and ``settled``: all went through the same call, without an error.
    """
    texts = [p(name).cast(pl.String) for name in ("kind", "group", "collective", "phase", "name")]
    rows = events.lazy().with_columns(*texts, p("algorithm").cast(pl.String))
    rows = rows.filter(p("kind") == "collective", ~p("group").is_in(NOT_TRAINING))
    return rows.with_columns(
        first_ns=p("start_ns").min().over(CALL),
        last_ns=p("start_ns").max().over(CALL),
        settled=~(p("phase") == FAILED).any().over(CALL)
        & (p("collective").n_unique().over(CALL) == 1),
    )


def arrivals(events: pl.DataFrame | pl.LazyFrame) -> pl.DataFrame:
    """Return a row per call of several ranks that none of them failed in, by its start.

    generation, group, op, collective, name; ranks; last: the rank that came last; late_ms, own_ms:
    see above. What a rank did before its first call is its own.
    """
    free = _free(events)
    rows = parts(events).filter("settled").join(free, on=[*CALL, "rank"], how="left").collect()
    others = rows.sort("start_ns").group_by(CALL, maintain_order=True)
    last = p("rank").last()
    table = others.agg(
        p("collective", "name").last(),
        ranks=pl.len().cast(pl.Int64),
        last=last,
        start_ns=p("start_ns").min(),
        late=p("start_ns").last() - p("start_ns").get(-2, null_on_oob=True),
        free=p("free").last(),
        usual=p("free").slice(0, pl.len() - 1).median(),
    ).filter(p("ranks") > 1)
    own = pl.min_horizontal("late", p("free") - p("usual")).clip(0).fill_null(p("late"))
    return table.select(
        *CALL,
        "collective",
        "name",
        "ranks",
        "last",
        late_ms=p("late") * 1e-6,
        own_ms=own * 1e-6,
        start_ns="start_ns",
    ).sort("start_ns", *CALL)


def _free(events: pl.DataFrame | pl.LazyFrame) -> pl.LazyFrame:
    """Return for each rank's part in a call how long it had been outside of calls: null before the
    first one.
    """
    kind = p("kind").cast(pl.String)
    rows = events.lazy().filter(kind.is_in(["collective", "send", "recv", "wait"]))
    ends = rows.select("rank", at="end_ns", ended="end_ns").sort("at")
    group = p("group").cast(pl.String)
    calls = rows.filter(kind == "collective", ~group.is_in(NOT_TRAINING))
    calls = calls.select("generation", "op", "rank", "start_ns", group=group).sort("start_ns")
    before = p("start_ns").shift(1).over("rank", order_by="start_ns")
    return (
        calls.with_columns(began=before)
        .join_asof(ends, left_on="start_ns", right_on="at", by="rank", check_sortedness=False)
        .select(*CALL, "rank", free=p("start_ns") - pl.max_horizontal("began", "ended"))
    )


def waits_by_arrival(events: pl.DataFrame | pl.LazyFrame) -> pl.LazyFrame:
    """Return ``parts`` with ``peer``, the rank that each had to wait for, and ``waited_ms``, until
    that one came: what spans alone tell. None is awaited (-1) by a rank that only gives its part;
    which one it would have to wait for is not known (null) for operations not listed here.
    """
    rows = parts(events).filter("settled")
    root, me = p("peer"), p("rank")
    last = me.sort_by("start_ns").last().over(CALL)
    awaited = (
        pl.when(p("collective").is_in(MEETINGS))
        .then(last)
        .when(p("collective").is_in(FROM_ROOT) & (root >= 0))
        .then(pl.when(me == root).then(-1).otherwise(root))
        .when(p("collective").is_in(TO_ROOT) & (root >= 0))
        .then(pl.when(me == root).then(last).otherwise(-1))
    )
    came_of_root = p("start_ns").filter(me == root).first().over(CALL)
    came = pl.when(p("collective").is_in(FROM_ROOT)).then(came_of_root).otherwise("last_ns")
    until = pl.min_horizontal(pl.max_horizontal(came, "start_ns"), "end_ns")
    waited = pl.when(awaited >= 0).then(until - p("start_ns")).otherwise(0) * 1e-6
    return rows.with_columns(peer=awaited, waited_ms=pl.when(awaited.is_not_null()).then(waited))


def messages_of(events: pl.DataFrame | pl.LazyFrame) -> pl.LazyFrame:
    """Return the rows of messages inside of calls."""
    kind, group = p("kind").cast(pl.String), p("group").cast(pl.String)
    rows = events.lazy().filter(kind.is_in(["send", "recv", "wait"]), ~group.is_in(NOT_TRAINING))
    return rows.filter(p("collective").cast(pl.String) != "p2p").with_columns(group=group)


def bare(events: pl.DataFrame | pl.LazyFrame) -> pl.LazyFrame:
    """Return the rows of calls of which no message was recorded: operations, and no more."""
    rows = events.lazy().filter(p("kind").cast(pl.String) == "collective")
    rows = rows.with_columns(group=p("group").cast(pl.String))
    return rows.join(messages_of(events).select(CALL).unique(), on=CALL, how="anti")
