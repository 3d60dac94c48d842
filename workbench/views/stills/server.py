"""A still picture of a parameter server: its servers and workers at a busy moment.

``select`` finds the moment and what each did then; svg_server.py draws it. All of it is rows: a
message is a push or a pull that was under way, a gradient waits at a server from the end of its
push to the start of its update, a worker waits between two rows of group "control".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

import numpy as np
import polars as pl

from workbench.analysis import servers as served
from workbench.views.pages.link_facts import made_links

RECENT_ITERATIONS = 8  # of these the busiest moment is shown
_TIMES = ("compute", "communication", "blocked")


@dataclass(frozen=True)
class Message:
    """A push of a worker's or a pull; ``share`` of the time that it took is over."""

    kind: str
    worker: int
    server: int
    share: float


@dataclass(frozen=True)
class Served:
    """``words`` say which moment it is, "" if there is none yet."""

    servers: tuple[tuple[int, float, int], ...]  # rank, share of the parameters, version
    workers: tuple[tuple[int, int, int], ...]  # rank, iteration, version held; -1: none yet
    messages: tuple[Message, ...] = ()
    waiting: tuple[int, ...] = ()  # workers that wait for a grant
    words: str = ""
    queued: tuple[tuple[int, int], ...] = ()  # (server, worker) of pushes that wait there
    # worker, and shares of its time lately: computing, push and pull, waiting for a grant
    times: tuple[tuple[int, float, float, float], ...] = ()
    bound: int | None = None  # clocks by which a worker may lead the slowest; None: no wall
    pushes: str = "gradient"  # what a worker pushes
    made_links: Mapping[tuple[int, int], bool] = field(default_factory=dict)  # emulated, either way

    @property
    def newest(self) -> int:
        """The newest version at any server."""
        return max((version for *_, version in self.servers), default=0)


def select(rows: pl.LazyFrame, run_facts: dict[str, Any]) -> Served | None:
    """Return the picture's data; None where nothing was served, or for actors too: they have a
    picture of their own, with their servers.

    ``run_facts``: the store's, for the time before there are rows.
    """
    p = pl.col
    if run_facts.get("roles"):
        return None
    if not (run_facts["server"] or rows.filter(p("kind") == "clock").head(1).collect().height):
        return None
    newest = rows.filter(p("kind") == "clock").select(p("iteration").max()).collect().item()
    if newest is None:
        return _before(run_facts["ranks"], run_facts["server"]["servers"])
    kind = p("kind").cast(pl.String)
    moves = kind.is_in(["push", "pull"])
    lately = served.pick(rows.filter(p("iteration") >= newest - RECENT_ITERATIONS))
    queue = _queue(lately)
    recent = pl.concat(
        [lately.filter(moves).select("start_ns", "end_ns"), queue.select("start_ns", "end_ns")]
    )
    done = lately.filter(moves).group_by("rank").agg(p("end_ns").max())["end_ns"].min()
    recent = recent.filter(p("start_ns") < done)  # later not all of them train
    at = _busiest(recent["start_ns"].to_numpy(), recent["end_ns"].to_numpy())
    # A slow worker is in a much earlier iteration: from here on by time.
    under_way = (p("start_ns") <= at) & (at < p("end_ns"))
    told_of = kind.is_in(["clock", "apply"])
    elements = p("name").cast(pl.String) == "elements"
    result = served.pick(rows.filter(under_way | told_of | elements))
    now = result.filter(moves & under_way)
    waits = result.filter((p("kind") == "wait") & under_way)
    workers = _newest(result, "clock", at)
    pushes, pulls = (now.filter(p("kind") == kind).height for kind in ("push", "pull"))
    blocked = waits["rank"].n_unique()
    queued = tuple(queue.filter(under_way).select("server", "worker").sort("server").iter_rows())
    began = served.origin(served.pick(rows.filter(p("iteration") <= 0)))
    pushed = (run_facts["server"] or {}).get("pushes", "gradient")
    in_queue = f", {_count(len(queued), f'{pushed} waits', f'{pushed}s wait')}" if queued else ""
    return Served(
        servers=_servers(result, at),
        workers=tuple(workers.select("rank", "iteration", "version").iter_rows()),
        messages=tuple(
            Message(kind, rank, peer, (at - start) / max(1, end - start))
            for kind, rank, peer, start, end in now.select(
                "kind", "rank", "peer", "start_ns", "end_ns"
            ).iter_rows()
        ),
        waiting=tuple(sorted(waits["rank"].unique().to_list())),
        words=f"{(at - began) / 1e9:.3f} s: {_count(pushes, 'push', 'pushes')} and "
        f"{_count(pulls, 'pull', 'pulls')} on the way{in_queue}, {_count(blocked, 'worker waits')}",
        queued=queued,
        times=_times(lately),
        bound=(run_facts["server"] or {}).get("high"),
        pushes=pushed,
        made_links=made_links(
            run_facts, ((a, b) for a, b in permutations(range(run_facts["ranks"]), 2))
        ),
    )


def _queue(rows: pl.DataFrame) -> pl.DataFrame:
    """Return when each gradient that was applied waited at its server: server, worker, start_ns,
    end_ns.
    """
    key = ["iteration", "server", "worker"]
    pushes = rows.filter(kind="push").select("iteration", "end_ns", server="peer", worker="rank")
    applies = rows.filter(kind="apply").select(
        "iteration", server="rank", worker="peer", begun="start_ns"
    )
    return (
        pushes.join(applies, on=key)
        .select("server", "worker", start_ns="end_ns", end_ns="begun")
        .filter(pl.col("end_ns") > pl.col("start_ns"))
    )


def _times(rows: pl.DataFrame) -> tuple[tuple[int, float, float, float], ...]:
    """Return each worker's shares of its time in these rows."""
    table = served.waiting(rows).filter(pl.col("wall_s") > 0)
    parts = [pl.col(f"{name}_s") / pl.col("wall_s") for name in _TIMES]
    return tuple(table.select("worker", *parts).iter_rows())


def _count(many: int, one: str, several: str = "workers wait") -> str:
    return f"{many} {one if many == 1 else several}"


def _before(ranks: int, servers: int) -> Served:
    return Served(
        servers=tuple((rank, 1 / servers, 0) for rank in range(servers)),
        workers=tuple((rank, -1, -1) for rank in range(servers, ranks)),
    )


def _newest(rows: pl.DataFrame, kind: str, at: int) -> pl.DataFrame:
    """Return each rank's last row of this kind by then."""
    so_far = rows.filter((pl.col("kind") == kind) & (pl.col("end_ns") <= at))
    return so_far.sort("end_ns").group_by("rank").last().sort("rank")


def _servers(rows: pl.DataFrame, at: int) -> tuple[tuple[int, float, int], ...]:
    table = rows.filter(pl.col("name") == "elements")
    held = dict(table.group_by("rank").agg(pl.col("value").sum()).iter_rows())
    result = dict(_newest(rows, "apply", at).select("rank", "version").iter_rows())
    whole = sum(held.values()) or 1
    return tuple((rank, held[rank] / whole, result.get(rank, 0)) for rank in sorted(held))


def _busiest(start: np.ndarray[Any, Any], end: np.ndarray[Any, Any]) -> int:
    """Return the latest middle of a message at which most are under way; 0 if there is none."""
    middles = np.sort((start + end) // 2)
    load = np.searchsorted(np.sort(start), middles, "right") - np.searchsorted(
        np.sort(end), middles, "right"
    )
    return int(middles[len(load) - 1 - load[::-1].argmax()]) if len(middles) else 0
