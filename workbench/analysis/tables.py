"""Tables of a run that are asked for again and again: bytes, iterations, metrics, a queue.

Times are milliseconds; those of moments count from the run's first recorded event. Groups of
metrics and of control do not train and are left out.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import polars as pl

from workbench.analysis.arrivals import NOT_TRAINING

COMPUTING = ("load", "forward", "backward", "weight_grad", "optimizer")  # kinds of rows

p = pl.col


def traffic(
    events: pl.DataFrame | pl.LazyFrame, iteration: int | None = None, by_peer: bool = False
) -> pl.DataFrame:
    """Return payload bytes of training, by rank or by rank and peer: see ``Run.bytes``."""
    rows = _training(events, "send", "recv", iteration=iteration)
    sends = p("kind") == "send"
    if by_peer:
        message = pl.when(p("name") == "").then(pl.lit("message")).otherwise("name")
        what = pl.when(p("collective") == "p2p").then(message).otherwise("collective")
        key = ["rank", "peer", "what", "group"]
        sums = rows.filter(sends).group_by("rank", "peer", "group", what=what)
        table = sums.agg(sent=p("nbytes").sum(), messages=pl.len().cast(pl.Int64))
        return table.sort(key).select(*key, "sent", "messages").collect()
    return (
        rows.group_by("rank")
        .agg(
            sent=p("nbytes").filter(sends).sum(),
            received=p("nbytes").filter(~sends).sum(),
            through=p("nbytes").sum(),
            messages=sends.sum().cast(pl.Int64),
        )
        .sort("rank")
        .collect()
    )


def iterations(events: pl.DataFrame | pl.LazyFrame) -> pl.DataFrame:
    """Return columns rank, iteration, start_ms, took_ms, computing_ms: see ``Run.iterations``."""
    kind, began = p("kind").cast(pl.String), event_origin(events)
    rows = events.lazy().filter(kind.is_in(COMPUTING), p("iteration") >= 0)
    table = rows.group_by("generation", "rank", "iteration").agg(
        start_ms=moment("start_ns", began).min(), computing_ms=lasts().sum()
    )
    order = ["generation", "rank", "iteration"]
    took = p("start_ms").shift(-1).over("generation", "rank", order_by="iteration") - p("start_ms")
    table = table.with_columns(took_ms=took).sort(order)
    return table.select(*order[1:], "start_ms", "took_ms", "computing_ms").collect()


def metrics(events: pl.DataFrame | pl.LazyFrame, name: str) -> pl.DataFrame:
    """Return columns rank, iteration, generation, at_ms, value: see ``Run.metrics``."""
    named = _kind(events, "metric").filter(p("name").cast(pl.String) == name)
    at_ms = moment("end_ns", event_origin(events))
    columns = ("rank", "iteration", "generation")
    return named.select(*columns, at_ms=at_ms, value="value").sort("at_ms", *columns).collect()


def queue(events: pl.DataFrame | pl.LazyFrame) -> pl.DataFrame:
    """Return a row per push that a server took in: see ``Run.queue``."""
    began, key = event_origin(events), ["server", "worker", "iteration"]
    nth = p("at_ns").cum_count().over(key)
    pushes = _kind(events, "push").select("iteration", server="peer", worker="rank", at_ns="end_ns")
    sends = _training(events, "send").select(
        server="peer", worker="rank", at_ns="end_ns", arrived="end_ns"
    )
    applies = _kind(events, "apply").select(
        "iteration", "start_ns", "end_ns", server="rank", worker="peer", at_ns="end_ns"
    )
    arrived = (
        pushes.sort("at_ns")
        .join_asof(sends.sort("at_ns"), on="at_ns", by=["server", "worker"], check_sortedness=False)
        .with_columns(nth=nth)
    )
    table = (
        applies.sort("at_ns")
        .with_columns(nth=nth)
        .join(arrived, on=[*key, "nth"])
        # The sender notes its end a little after the server may have begun.
        .with_columns(arrived=pl.min_horizontal("arrived", "start_ns"))
        .select(
            *key,
            arrived_ms=moment("arrived", began),
            waited_ms=(p("start_ns") - p("arrived")) * 1e-6,
            update_ms=lasts(),
            end_ms=moment("end_ns", began),
        )
        .sort("arrived_ms", *key)
        .collect()
    )
    return table.with_columns(_blockers(table))


def _blockers(table: pl.DataFrame) -> pl.Series:
    """Return for each push the workers whose updates ran at its server while it waited.

    A server makes one update after the other: those of a time are neighbors in its list.
    """
    rows = table.select(
        "server",
        "worker",
        "arrived_ms",
        begun=p("end_ms") - p("update_ms"),
        end="end_ms",
        held=p("waited_ms") > 0,
    ).rows()
    updates: dict[int, list[tuple[float, float, int]]] = {}
    for server, worker, _, begun, end, _ in rows:
        updates.setdefault(server, []).append((begun, end, worker))
    for each in updates.values():
        each.sort()
    ends = {server: [end for _, end, _ in each] for server, each in updates.items()}
    blockers = []
    for server, worker, came, begun, _, held in rows:
        here = updates[server]
        first, last = bisect_right(ends[server], came), bisect_left(here, (begun,))
        others = {other for _, _, other in here[first:last]} if held else set()
        blockers.append(sorted(others - {worker}))
    return pl.Series("blockers", blockers, dtype=pl.List(pl.Int32))


def _is_training() -> pl.Expr:
    return ~p("group").cast(pl.String).is_in(NOT_TRAINING)


def _of(iteration: int | None) -> pl.Expr:
    return pl.lit(True) if iteration is None else p("iteration") == iteration


def _kind(events: pl.DataFrame | pl.LazyFrame, *kinds: str) -> pl.LazyFrame:
    return events.lazy().filter(p("kind").cast(pl.String).is_in(kinds))


def _training(
    events: pl.DataFrame | pl.LazyFrame, *kinds: str, iteration: int | None = None
) -> pl.LazyFrame:
    """Return rows of training, with text for what is stored as categories."""
    texts = [p(name).cast(pl.String) for name in ("kind", "group", "collective", "algorithm")]
    texts.append(p("name").cast(pl.String))
    return _kind(events, *kinds).filter(_is_training(), _of(iteration)).with_columns(texts)


def event_origin(events: pl.DataFrame | pl.LazyFrame) -> int:
    """Return when the run's first event began, in ns: 0 ms of every moment here."""
    return int(events.lazy().select(p("start_ns").min()).collect().item() or 0)


def lasts() -> pl.Expr:
    """Return how long a row lasts, in milliseconds."""
    return (p("end_ns") - p("start_ns")) * 1e-6


def moment(column: str, began: int) -> pl.Expr:
    """Return a column of ns as milliseconds since ``began``."""
    return (p(column) - began) * 1e-6
