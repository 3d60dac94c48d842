"""Sums over a parameter server's rows: clocks, staleness, waiting, bytes, progress. Pure
functions.

``rows`` are those that ``WANTED`` picks of the event table. Times in the columns are seconds since
the first worker began.

    clocks      where each was: a worker's iteration when all servers had granted it; the slowest's
    staleness   updates that a gradient had missed when it was applied
    waiting     a worker's time: computing, else moving bytes, else waiting for a grant, else none
    servers     what went through each server, and what queued there
    progress    loss by updates, seconds and minibatches
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from workbench.experiment.options import stored_options
from workbench.experiment.stored import settings
from workbench.experiment.traits import stored_traits
from workbench.store.iterations import COMPUTE
from workbench.training.parameter_servers.clocks import rule_stored

GRANTS = "recv:control"  # the lane in which a worker waits for a grant
METRICS = ("loss", "samples", "queue", "dropped", "slack", "elements")  # of servers
KINDS = tuple(dict.fromkeys(("apply", "clock", "push", "pull", "detect", "wait", *COMPUTE)))
ROWS = pl.Schema(
    {
        "rank": pl.Int32(),
        "kind": pl.String(),
        "name": pl.String(),
        "phase": pl.String(),
        "peer": pl.Int32(),
        "iteration": pl.Int64(),
        "version": pl.Int64(),
        "nbytes": pl.Int64(),
        "value": pl.Float64(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
    }
)


def row_filter() -> pl.Expr:
    """Return the filter for event rows of a parameter server."""
    kind, text = pl.col("kind").cast(pl.String), pl.col("name").cast(pl.String)
    spans = kind.is_in([one for one in KINDS if one not in ("wait", "metric")])
    grants = (kind == "wait") & (pl.col("lane").cast(pl.String) == GRANTS)
    server_metrics = (
        (kind == "metric") & text.is_in(METRICS) & (pl.col("phase").cast(pl.String) == "")
    )
    return (spans & (pl.col("iteration") >= 0)) | grants | server_metrics | (kind == "detect")


def pick(events: pl.DataFrame | pl.LazyFrame) -> pl.DataFrame:
    """Return the rows of a parameter server, with the columns of ROWS."""
    return (
        events.lazy().filter(row_filter()).select(pl.col(name).cast(ROWS[name]) for name in ROWS)
    ).collect()


def bound(metadata: Mapping[str, str]) -> int | None:
    """Return by how many clocks a worker may lead the slowest; None: no bound, or none known."""
    high: int | None = rule_stored(metadata, stored_options(settings(metadata)))["high"]
    return high


def serves(spec: Mapping[str, Any]) -> bool:
    """Return whether ranks of a stored experiment are servers of parameters."""
    return stored_traits(spec.get("strategy")).serves == "parameters"


def is_served(rows: pl.DataFrame) -> bool:
    """Return whether there is a server in this run."""
    return bool(rows["kind"].is_in(["apply", "clock"]).any())


def _of(rows: pl.DataFrame, kind: str, *names: str) -> pl.DataFrame:
    result = rows.filter(pl.col("kind") == kind)
    return result.filter(pl.col("name").is_in(names)) if names else result


def _workers(rows: pl.DataFrame) -> list[int]:
    return sorted(_of(rows, "clock")["rank"].unique().to_list())


def origin(rows: pl.DataFrame) -> int:
    """Return when the first worker began."""
    ranks = _workers(rows)
    of_ranks = rows.filter(pl.col("rank").is_in(ranks))
    return int(of_ranks["start_ns"].to_numpy().min()) if of_ranks.height else 0


def _seconds(column: str, origin: int) -> pl.Expr:
    return (pl.col(column) - origin) * 1e-9


def clocks(rows: pl.DataFrame) -> pl.DataFrame:
    """Return columns what, worker, seconds, until_s, clock.

    what: "worker", from ``seconds`` on in iteration ``clock``; "slowest", the iterations of every
    live
    worker that all servers have received (worker -1); "wait", for the grant of ``clock``.
    """
    p, began = pl.col, origin(rows)
    columns = ["what", "worker", "seconds", "until_s", "clock"]
    at = _seconds("end_ns", began)
    clock_rows = _of(rows, "clock").sort("rank", "end_ns")
    steps = clock_rows.select(
        what=pl.lit("worker"), worker="rank", seconds=at, until_s=at, clock=p("iteration")
    )
    waits = (
        _of(rows, "wait")
        .filter(p("end_ns") > p("start_ns"))
        .sort("end_ns")
        .join_asof(
            clock_rows.sort("end_ns").select("rank", "end_ns", reached="iteration"),
            on="end_ns",
            by="rank",
            check_sortedness=False,
        )
        .select(
            what=pl.lit("wait"),
            worker="rank",
            seconds=_seconds("start_ns", began),
            until_s=at,
            clock=p("reached").fill_null(-1),
        )
    )
    slowest = _taken_in(rows).select(
        what=pl.lit("slowest"), worker=pl.lit(-1, pl.Int32), seconds=at, until_s=at, clock="clock"
    )
    return pl.concat([one.select(columns) for one in (steps, slowest, waits)])


def _taken_in(rows: pl.DataFrame) -> pl.DataFrame:
    """Return clock, end_ns: when all servers had that many iterations of every live worker."""
    p, workers = pl.col, _workers(rows)
    table = pl.concat([_of(rows, "apply"), _of(rows, "metric", "dropped")])
    servers = table["rank"].n_unique()
    each = (
        table.group_by("peer", "iteration")
        .agg(p("end_ns").max(), servers=p("rank").n_unique())
        .filter(p("servers") == servers)
        .select("peer", "iteration", "end_ns")
    )
    for worker, when in _of(rows, "detect", "lost").group_by("peer").agg(p("end_ns").min()).rows():
        # From then on no worker waits for it: as if all that it still had to do were in.
        last = each.filter(p("peer") == worker)["iteration"].max()
        missing = each.filter(p("iteration") > (-1 if last is None else last))["iteration"].unique()
        each = pl.concat(
            [
                each,
                pl.DataFrame(
                    {
                        "peer": [worker] * len(missing),
                        "iteration": missing,
                        "end_ns": [when] * len(missing),
                    },
                    schema=each.schema,
                ),
            ]
        )
    return (
        each.group_by("iteration")
        .agg(p("end_ns").max(), workers=pl.len())
        .filter(p("workers") == len(workers))
        .sort("iteration")
        .select(clock=p("iteration") + 1, end_ns=p("end_ns").cum_max())
    )


def staleness(rows: pl.DataFrame) -> pl.DataFrame:
    """Return columns staleness, gradients, from the first server: each gets every gradient."""
    applied = _of(rows, "apply")
    first = applied["rank"].min()
    return (
        applied.filter(pl.col("rank") == (-1 if first is None else first))
        .group_by(staleness=pl.col("value").cast(pl.Int64))
        .agg(gradients=pl.len().cast(pl.Int64))
        .sort("staleness")
    )


def updates_made(rows: pl.DataFrame) -> int:
    """Return the updates of the server with the most; 0 if there is none."""
    return int(_of(rows, "apply")["version"].max() or 0)  # type: ignore[arg-type]


def dropped(rows: pl.DataFrame) -> int:
    """Return the number of samples whose gradients one server left out."""
    drops = _of(rows, "metric", "dropped")
    first = drops["rank"].min()
    return int(drops.filter(pl.col("rank") == first)["value"].sum()) if drops.height else 0


def waiting(rows: pl.DataFrame) -> pl.DataFrame:
    """Return columns worker, wall_s and its shares; a moment counts for the first that applies.

    compute_s, communication_s (a push or pull is under way), blocked_s (waits for a grant),
    other_s.
    """
    workers = _workers(rows)
    schema = dict.fromkeys(
        ("wall_s", "compute_s", "communication_s", "blocked_s", "other_s"), pl.Float64()
    )
    result = []
    lasting = rows.filter(pl.col("end_ns") > pl.col("start_ns"))
    classes = [list(COMPUTE), ["push", "pull"], ["wait"]]
    for worker in workers:
        of_worker = lasting.filter(pl.col("rank") == worker)
        parts = [of_worker.filter(pl.col("kind").is_in(kinds)) for kinds in classes]
        result.append((worker, *_shared_out(parts)))
    return pl.DataFrame(result, schema={"worker": pl.Int32(), **schema}, orient="row")


def _shared_out(parts: list[pl.DataFrame]) -> tuple[float, ...]:
    """Return seconds from first start to last end, then of each share without the earlier ones.

    The last number is the rest.
    """
    starts, ends = ([part[name].to_numpy() for part in parts] for name in ("start_ns", "end_ns"))
    if not sum(map(len, starts)):
        return (0.0,) * (len(parts) + 2)
    moments = np.concatenate([*starts, *ends])
    first = moments.min()
    depth = np.zeros((len(parts), len(moments)), np.int8)
    sizes = [len(one) for one in starts]
    for row, (begin, size) in enumerate(zip(np.cumsum([0, *sizes]), sizes, strict=False)):
        depth[row, begin : begin + size] = 1
        depth[row, sum(sizes) + begin : sum(sizes) + begin + size] = -1
    order = np.argsort(moments, kind="stable")
    lasts = np.diff(moments[order], append=moments[order[-1]])
    open_ = np.cumsum(depth[:, order], axis=1, dtype=np.int64) > 0
    seconds, earlier = [], np.zeros(len(moments), bool)
    for row in open_:
        seconds.append(float(lasts[row & ~earlier].sum()) * 1e-9)
        earlier |= row
    whole = float(moments.max() - first) * 1e-9
    return (whole, *seconds, max(whole - sum(seconds), 0.0))


def servers(rows: pl.DataFrame) -> pl.DataFrame:
    """Return columns server, elements, in_bytes, out_bytes, queue, queue_most, busy_s.

    in_bytes: pushed to it; out_bytes: pulled from it; queue: mean number of pushes that waited when
    one was handled; busy_s: updating.
    """
    p = pl.col
    moved = (
        rows.filter(p("kind").is_in(["push", "pull"]))
        .group_by(server="peer")
        .agg(
            in_bytes=p("nbytes").filter(p("kind") == "push").sum(),
            out_bytes=p("nbytes").filter(p("kind") == "pull").sum(),
        )
    )
    table = (
        rows.filter((p("kind") == "apply") | p("name").is_in(["queue", "elements"]))
        .group_by(server="rank")
        .agg(
            elements=p("value").filter(p("name") == "elements").sum().cast(pl.Int64),
            queue=p("value").filter(p("name") == "queue").mean(),
            queue_most=p("value").filter(p("name") == "queue").max(),
            busy_s=(p("end_ns") - p("start_ns")).filter(p("kind") == "apply").sum() * 1e-9,
        )
    )
    return (
        table.join(moved, on="server", how="full", coalesce=True)
        .sort("server")
        .select(
            "server",
            p("elements").fill_null(0),
            p("in_bytes").fill_null(0),
            p("out_bytes").fill_null(0),
            p("queue").fill_null(0.0),
            p("queue_most").fill_null(0.0),
            p("busy_s").fill_null(0.0),
        )
    )


def progress(rows: pl.DataFrame) -> pl.DataFrame:
    """Return columns iteration, updates, seconds, loss: a row per as many gradients as workers.

    iteration  minibatches of samples that were computed before, by any worker
    updates    of the parameters (of the first server): of the newest that a gradient was for
    seconds    until the last of these gradients was computed
    loss       their mean over samples
    """
    p, workers, keys = pl.col, max(len(_workers(rows)), 1), ["rank", "iteration"]
    samples = _of(rows, "metric", "samples").select(*keys, samples="value").unique(keys)
    weight = p("samples").fill_null(1.0)
    losses = _of(rows, "metric", "loss").join(samples, on=keys, how="left")
    # In lockstep an iteration's losses are together, though some may come after one of the next.
    pairs = losses.select("version", "iteration").n_unique()
    together = pairs == losses["version"].n_unique() == losses["iteration"].n_unique()
    order = ["version", "end_ns", "rank"] if together else ["end_ns", "rank"]
    return (
        losses.sort(order)
        .with_row_index("at")
        .group_by(iteration=(p("at") // workers).cast(pl.Int64), maintain_order=True)
        .agg(
            updates=p("version").max().cast(pl.Float64),
            seconds=_seconds("end_ns", origin(rows)).max(),
            loss=(p("value") * weight).sum() / weight.sum(),
            many=pl.len(),
        )
        .filter(p("many") == workers)
        .select("iteration", p("updates", "seconds").cum_max(), "loss")
    )
