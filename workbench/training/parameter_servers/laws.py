"""The laws of a run with a parameter server, checked on its event table alone.

A server decides by the clocks that it knows. So the lead of a worker at the start of iteration c is
c minus the lowest clock of the live workers. Both are read from that server's own rows, at the
moment of its grant: the send to the worker in group "control". Where that row is missing (a view
without group "control"), the worker's own ``clock`` row replaces it. It comes later, so such a lead
may be too small, never too large.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from workbench.experiment.spec import Experiment
from workbench.laws.violation import Violation, report
from workbench.theory.provenance import plain_texts
from workbench.training.parameter_servers.placement import Placement, held, place

__all__ = [
    "applies_never_overlap",
    "bound_kept",
    "bytes_exact",
    "check_server",
    "dropped_samples",
    "every_push_counts_once",
    "leads",
    "own_updates_are_seen",
    "queue_waits",
    "staleness_is_told",
    "versions_consecutive",
]

PAIR = ["server", "worker", "iteration"]


def check_server(
    events: pl.DataFrame,
    exp: Experiment,
    *,
    elements: Sequence[int],
    bound: int | None = None,
    complete: bool = True,
) -> list[Violation]:
    """Check every law of this file that applies.

    ``elements``: of each model. ``bound``: the policy's; None if it has none. ``complete``: no
    worker was lost or stopped.
    """
    events = plain_texts(events)
    servers, models = exp.options.get("servers", 1), exp.options.get("models", 1)
    return [
        *([] if bound is None else bound_kept(events, bound, servers, models)),
        *applies_never_overlap(events),
        *every_push_counts_once(events, complete=complete),
        *versions_consecutive(events, servers, models),
        *staleness_is_told(events),
        *own_updates_are_seen(events),
        *bytes_exact(
            events,
            elements,
            servers,
            exp.options.get("placement", "even"),
            itemsize=8 if exp.dtype == "float64" else 4,
            iterations=exp.iterations if complete else None,
        ),
    ]


# -- leads --


def leads(events: pl.DataFrame, servers: int = 1, models: int = 1) -> pl.DataFrame:
    """Return each started iteration's lead over the slowest worker.

    Columns server, worker, iteration, at_ns, lead. Workers wait only for workers of the same model.
    A worker counts until its server's "lost" row, or until its farewell.
    """
    events = plain_texts(events)
    starts = _starts(events, servers)
    outcomes = _outcomes(events).sort("at_ns")
    workers = starts["worker"].unique().sort().to_list()
    lost = {
        (row["rank"], row["peer"]): row["start_ns"]
        for row in events.filter(pl.col("kind") == "detect", pl.col("name") == "lost")
        .sort("start_ns", descending=True)
        .iter_rows(named=True)
    }
    clocks = {
        (server, worker): outcomes.filter(pl.col("server") == server, pl.col("worker") == worker)[
            "at_ns"
        ]
        for server in range(servers)
        for worker in workers
    }
    parts = []
    for (server, worker), mine in starts.group_by("server", "worker", maintain_order=True):
        at = mine["at_ns"]
        mates = [one for one in workers if (one - worker) % models == 0]
        slowest = pl.Series([2**62] * len(at), dtype=pl.Int64)
        for mate in mates:
            clock = clocks[server, mate].search_sorted(at, side="right").cast(pl.Int64)
            gone = at > lost.get((server, mate), 2**62)
            clock = pl.select(pl.when(gone).then(2**62).otherwise(clock)).to_series()
            slowest = pl.select(pl.min_horizontal(slowest, clock)).to_series()
        parts.append(mine.with_columns(lead=pl.col("iteration") - slowest))
    return pl.concat(parts) if parts else starts.with_columns(lead=pl.lit(0, pl.Int64))


def bound_kept(
    events: pl.DataFrame, bound: int, servers: int = 1, models: int = 1
) -> list[Violation]:
    """Check that no iteration started more than ``bound`` ahead of the slowest worker."""
    result = leads(events, servers, models)
    return report(
        "bound kept",
        result.filter(pl.col("lead") > bound).sort("at_ns"),
        lambda row: (
            f"server {row['server']} let worker {row['worker']} start iteration "
            f"{row['iteration'] + 1}, {row['lead']} ahead of the slowest: at most {bound} is "
            "allowed"
        ),
    )


# -- what a server does with gradients --


def applies_never_overlap(events: pl.DataFrame) -> list[Violation]:
    """Check that a server makes one update at a time."""
    events = plain_texts(events)
    spans = events.filter(pl.col("kind") == "apply").sort("rank", "start_ns", "end_ns")
    before = pl.col("end_ns").cum_max().shift(1).over("rank").alias("before")
    bad = spans.with_columns(before).filter(pl.col("start_ns") < pl.col("before"))
    return report(
        "applies never overlap",
        bad,
        lambda row: (
            f"server {row['rank']} began the update by worker {row['peer']}'s iteration "
            f"{row['iteration'] + 1} {row['before'] - row['start_ns']:,} ns before the one before "
            "ended"
        ),
    )


def every_push_counts_once(events: pl.DataFrame, *, complete: bool = True) -> list[Violation]:
    """Check that each push was applied, or dropped and counted, exactly once.

    Where not ``complete``, a worker's last push may be missing.
    """
    events = plain_texts(events)
    pushed = _pushes(events).group_by(PAIR).agg(pushes=pl.len())
    outcomes = _outcomes(events).group_by(PAIR).agg(taken=pl.len())
    both = pushed.join(outcomes, on=PAIR, how="full", coalesce=True).with_columns(
        pl.col("pushes", "taken").fill_null(0)
    )
    bad = both.filter(pl.col("pushes") != pl.col("taken"))
    if not complete:
        last = pl.col("iteration") == pl.col("iteration").max().over("server", "worker")
        bad = both.filter((pl.col("taken") > 1) | (~last & (pl.col("pushes") != pl.col("taken"))))
    return report(
        "every push counts once",
        bad.sort(PAIR),
        lambda row: (
            f"worker {row['worker']} pushed iteration {row['iteration'] + 1} to server "
            f"{row['server']} {row['pushes']} times, which applied it or left it out "
            f"{row['taken']} times"
        ),
    )


def versions_consecutive(
    events: pl.DataFrame, servers: int = 1, models: int = 1
) -> list[Violation]:
    """Check that the updates of a shard make versions 1, 2, 3, ..., and rows of one update end
    together.
    """
    events = plain_texts(events)
    rows = events.filter(pl.col("kind") == "apply").with_columns(
        model=(pl.col("peer") - servers) % models
    )
    shard = ["rank", "model"]
    result = (
        rows.group_by(*shard, "version")
        .agg(pl.col("end_ns").min(), ends=pl.col("end_ns").n_unique())
        .sort(*shard, "end_ns", "version")
    )
    step = pl.col("version") - pl.col("version").shift(1, fill_value=0).over(shard)
    bad = result.with_columns(step=step).filter((pl.col("step") != 1) | (pl.col("ends") > 1))
    return report(
        "versions consecutive",
        bad,
        lambda row: (
            f"server {row['rank']}, model {row['model']}: version {row['version']} comes after "
            f"version {row['version'] - row['step']}, and its rows have {row['ends']} ends"
        ),
    )


def staleness_is_told(events: pl.DataFrame) -> list[Violation]:
    """Check the recorded staleness: the updates that the gradient missed, version made - 1 -
    pulled.
    """
    events = plain_texts(events)
    rows = _pushes(events).join(_outcomes(events).filter(~pl.col("dropped")), on=PAIR)
    missed = pl.col("made") - 1 - pl.col("pulled")
    bad = rows.with_columns(missed=missed).filter(pl.col("missed") != pl.col("staleness"))
    return report(
        "staleness is told",
        bad.sort(PAIR),
        lambda row: (
            f"server {row['server']} says {row['staleness']:g} of worker {row['worker']}'s "
            f"iteration {row['iteration'] + 1}, which was computed on version {row['pulled']} and "
            f"made version {row['made']}: {row['missed']}"
        ),
    )


def own_updates_are_seen(events: pl.DataFrame) -> list[Violation]:
    """Check that a worker pulls a version that contains its own last update."""
    events = plain_texts(events)
    result = _outcomes(events).select(*PAIR[:2], pl.col("iteration") + 1, "made")
    bad = _pulls(events).join(result, on=PAIR).filter(pl.col("pulled") < pl.col("made"))
    return report(
        "own updates are seen",
        bad.sort(PAIR),
        lambda row: (
            f"worker {row['worker']} pulled version {row['pulled']} from server {row['server']} "
            f"for iteration {row['iteration'] + 1}: its own push had made version {row['made']}"
        ),
    )


def dropped_samples(events: pl.DataFrame) -> pl.DataFrame:
    """Return the gradients that were dropped as too stale: columns server, pushes, samples."""
    rows = plain_texts(events).filter(pl.col("kind") == "metric", pl.col("name") == "dropped")
    return (
        rows.group_by(server="rank")
        .agg(pushes=pl.len(), samples=pl.col("value").sum().cast(pl.Int64))
        .sort("server")
    )


def queue_waits(events: pl.DataFrame) -> pl.DataFrame:
    """Return each push's wait from its last byte sent to the start of its update.

    Columns server, worker, iteration, wait_ns. 0 where the server began before the worker's call
    returned. In lockstep (bsp) it includes the wait for the other workers' gradients.
    """
    events = plain_texts(events)
    left = _pushes(events).select(*PAIR, "left_ns")
    rows = _outcomes(events).join(left, on=PAIR).sort("at_ns")
    wait = pl.max_horizontal(pl.col("begun_ns") - pl.col("left_ns"), 0)
    return rows.select(*PAIR, wait_ns=wait)


# -- what passes through a server --


def bytes_exact(
    events: pl.DataFrame,
    elements: Sequence[int],
    servers: int = 1,
    placement: Placement = "even",
    *,
    itemsize: int = 4,
    iterations: int | None = None,
) -> list[Violation]:
    """Check that each push and pull carries its server's share, and that no other training bytes
    pass.

    ``elements``: of each model. ``iterations``: those that every worker completed. Each server then
    received and sent iterations·share bytes with every worker: 2·W·share·L per iteration.
    """
    events = plain_texts(events)
    shares = [
        [held(ranges) * itemsize for ranges in place(count, servers, placement)]
        for count in elements
    ]
    sent = events.filter(
        pl.col("kind") == "send", pl.col("collective") == "p2p", pl.col("group") == "default"
    )
    workers = sorted({*_pushes(events)["worker"].to_list(), *_pulls(events)["worker"].to_list()})
    result = []
    for server in range(servers):
        for worker in workers:
            share = shares[(worker - servers) % len(elements)][server]
            ways = (
                ("push", _pushes(events), (worker, server)),
                ("pull", _pulls(events), (server, worker)),
            )
            for way, rows, (source, target) in ways:
                mine = rows.filter(pl.col("server") == server, pl.col("worker") == worker)
                times = len(mine) if iterations is None else iterations
                expected = (times, times * share)
                recorded = (len(mine), mine["nbytes"].sum())
                moved = sent.filter(pl.col("rank") == source, pl.col("peer") == target)
                if recorded != expected or (
                    iterations is not None and moved["nbytes"].sum() != expected[1]
                ):
                    result.append(
                        Violation(
                            "bytes exact",
                            f"worker {worker} and server {server}: {recorded[0]} {way} rows of "
                            f"{recorded[1]:,} B, {moved['nbytes'].sum():,} B sent; expected "
                            f"{times} of {share:,} B",
                            rank=server,
                        )
                    )
    return result


# -- rows --


def _outcomes(events: pl.DataFrame) -> pl.DataFrame:
    """Return the pushes that a server applied or dropped.

    Columns PAIR, made, staleness, begun_ns, at_ns, dropped.
    """
    dropped = (pl.col("kind") == "metric") & (pl.col("name") == "dropped")
    return events.filter((pl.col("kind") == "apply") | dropped).select(
        "iteration",
        server="rank",
        worker="peer",
        made="version",
        staleness="value",
        begun_ns="start_ns",
        at_ns="end_ns",
        dropped=dropped,
    )


def _pushes(events: pl.DataFrame) -> pl.DataFrame:
    return _between(events, "push")


def _pulls(events: pl.DataFrame) -> pl.DataFrame:
    return _between(events, "pull")


def _between(events: pl.DataFrame, kind: str) -> pl.DataFrame:
    return events.filter(pl.col("kind") == kind).select(
        "iteration", "nbytes", server="peer", worker="rank", pulled="version", left_ns="end_ns"
    )


def _starts(events: pl.DataFrame, servers: int) -> pl.DataFrame:
    """Return when each server let each worker start: columns server, worker, iteration, at_ns."""
    clocks = events.filter(pl.col("kind") == "clock").select(
        "iteration", worker="rank", started="start_ns"
    )
    each = clocks.join(pl.DataFrame({"server": range(servers)}, {"server": pl.Int32}), how="cross")
    grants = events.filter(
        pl.col("kind") == "send", pl.col("group") == "control", pl.col("rank") < servers
    ).select(server="rank", worker="peer", iteration="op", at_ns="start_ns")
    return (
        each.join(grants, on=PAIR, how="left")
        .with_columns(pl.coalesce("at_ns", "started").alias("at_ns"))
        .sort("server", "worker", "iteration")
        .select(*PAIR, "at_ns")
    )
