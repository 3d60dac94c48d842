"""Graphs graph by hand whose paths are known, as rows of the event table; tests only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from tests.synthetic import table
from workbench.analysis.critical_path.dependencies import Builder, Dependencies
from workbench.analysis.critical_path.retiming import lengths
from workbench.analysis.critical_path.spans import spans_of
from workbench.store.table import SCHEMA

UNIT = 1_000_000  # ns
NOTHING = {
    name: "" if dtype in (pl.String, pl.Categorical) else float("nan") if dtype.is_float() else -1
    for name, dtype in SCHEMA.items()
}
Rows = list[dict[str, object]]


def row(rank: int, kind: str, start: float, end: float, **more: Any) -> dict[str, object]:
    """Return a row of iteration 1; times in units."""
    times = {"start_ns": round(start * UNIT), "end_ns": round(end * UNIT)}
    place = {"rank": rank, "kind": kind, "iteration": 1, "generation": 0, "lane": "compute"}
    return {**NOTHING, **place, **times, **more}


def exchange(kind: str, rank: int, peer: int, at: float, step: int = 0, **more: Any) -> Any:
    """Return a message's row, without a duration of its own."""
    call = {"collective": "all_reduce", "group": "default", "op": 0, "lane": "comm"}
    key = {"peer": peer, "step": step, "chunk": 0, "slot": 0, "nbytes": UNIT}
    return row(rank, kind, at, at, **{**call, **key, **more})


def two_ranks() -> Rows:
    """Rank 0 computes 5, rank 1 computes 3, then they exchange: 1."""
    rows = []
    for rank, units in ((0, 5), (1, 3)):
        rows.append(row(rank, "forward", 0, units))
        rows.append(exchange("send", rank, 1 - rank, units, seq=0))
        rows.append(exchange("recv", rank, 1 - rank, (5, 6)[rank], seq=1))
        rows.append(row(rank, "optimizer", (5, 6)[rank], (5, 6)[rank], seq=2))
    return rows


def ring(ranks: int) -> Rows:
    """All-reduce in 2(p - 1) steps of one unit each, the latency of every link."""
    rows = [row(rank, "forward", -1, 0) for rank in range(ranks)]
    for step in range(2 * (ranks - 1)):
        for rank in range(ranks):
            rows.append(exchange("send", rank, (rank + 1) % ranks, step, step, seq=2 * step))
            rows.append(
                exchange("recv", rank, (rank - 1) % ranks, step + 1, step, seq=2 * step + 1)
            )
    return rows


# stage 0 and stage 1 of 1F1B, two microbatches: kind, microbatch, start of its unit
STAGES = (
    (("forward", 0, 0), ("forward", 1, 1), ("backward", 0, 3), ("backward", 1, 5)),
    (("forward", 0, 1), ("backward", 0, 2), ("forward", 1, 3), ("backward", 1, 4)),
)


def pipeline() -> Rows:
    """Two stages, two microbatches, 1F1B, forward and backward of one unit, no transfer."""
    rows: Rows = []
    for rank, actions in enumerate(STAGES):
        for kind, microbatch, start in actions:
            rows.append(row(rank, kind, start, start + 1, microbatch=microbatch))
            sends = kind == ("forward", "backward")[rank]
            name = {"forward": "activation", "backward": "gradient"}[kind]
            if sends:
                way = dict(name=name, microbatch=microbatch, collective="p2p", op=microbatch)
                at = {**way, "step": 0 if kind == "forward" else 1}
                rows.append(exchange("send", rank, 1 - rank, start + 1, lane="send", **at))
                rows.append(exchange("recv", 1 - rank, rank, start + 1, lane="recv", **at))
    return rows


def buckets() -> Rows:
    """Two ranks, backward of 6 with a bucket that is full after 4; its exchange takes 5, and the
    optimizer waits for it: 9.
    """
    rows = []
    call = {"op": 3, "name": "bucket 0", "collective": "all_reduce", "group": "default"}
    for rank in (0, 1):
        rows.append(row(rank, "backward", 0, 6))
        rows.append(row(rank, "metric", 4, 4, name="bucket full", value=0.0))
        rows.append(row(rank, "collective", 4, 9, **{**call, "lane": "comm"}))
        rows.append(exchange("send", rank, 1 - rank, 4, op=3, seq=0))
        rows.append(exchange("recv", rank, 1 - rank, 9, op=3, seq=1))
        rows.append(row(rank, "optimizer", 9, 9, seq=2))
    return rows


def server() -> Rows:
    """Worker 1 computes 2 and pushes, server 0 applies for 1 and answers, the worker computes 2."""
    message = {"collective": "p2p", "lane": "send"}
    return [
        row(1, "forward", 0, 2),
        exchange("send", 1, 0, 2, **message),
        exchange("recv", 0, 1, 2, **message),
        row(0, "apply", 2, 3, peer=1),
        exchange("send", 0, 1, 3, 1, **message),
        exchange("recv", 1, 0, 3, 1, **message),
        row(1, "backward", 3, 5),
    ]


def operations() -> Rows:
    """Rank 0 computes 5, rank 1 computes 3; their all-reduce, of which no message is recorded, ends
    2 after the last has come.
    """
    rows = []
    call = {"collective": "all_reduce", "group": "default", "op": 0, "lane": "comm"}
    for rank, units in ((0, 5), (1, 3)):
        rows.append(row(rank, "forward", 0, units))
        rows.append(row(rank, "collective", units, 7, **call))
        rows.append(row(rank, "optimizer", 7, 7))
    return rows


def built(rows: Rows, latency: float = 0, slots: int = 99, **more: Any) -> Dependencies:
    """Return the dependencies of rows; ``latency`` of every link, in units."""
    pace = paced(latency)
    return Builder(spans_of(table(rows)), pace, slots, **more).build()


def paced(latency: float) -> Callable[[int, int], tuple[int, float]]:
    return lambda source, target: (round(latency * UNIT), 0.0)


def length(graph: Dependencies, ns: list[int] | None = None) -> float:
    """Return when the last computing ends, in units; of a ring, the last receive."""
    times, _ = graph.moments.earliest(ns)
    ends = [times[moment] for _, moment in graph.ends[1]]
    return max(ends if max(ends) > 0 else times) / UNIT


def changed(
    graph: Dependencies,
    latency: float = 0,
    links: dict[tuple[int, int], tuple[float, float]] | None = None,
    compute: dict[int, float] | None = None,
) -> float:
    """Return the same with other links, by (latency, units that a message occupies it), and
    factors on computing.
    """
    paces = {way: (round(a * UNIT), b) for way, (a, b) in (links or {}).items()}
    return length(graph, lengths(graph, paced(latency), paces, compute or {}))
