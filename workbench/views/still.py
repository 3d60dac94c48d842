"""A run as one still picture: what a notebook shows where widgets do not run (drawn by svg.py).

    who sends to whom in the newest complete call, at its busiest moment · the loss · one sentence

All marks are rows: an edge is a pair of ranks with a send, a cell on it a chunk between its send's
start and its receive's end. Before there are rows, places and words are there already.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from workbench.store import Store
from workbench.views import still_server
from workbench.views.facts import facts, in_a_line

KEY = ["generation", "group", "op"]  # of a collective
RECENT_CALLS = 64  # of each group are looked at
POINTS = 240  # of the loss curve


@dataclass(frozen=True)
class Flight:
    """A chunk on its way: ``share`` of the time between its send and its receive is over."""

    source: int
    target: int
    step: int
    chunk: int
    share: float


@dataclass(frozen=True)
class Still:
    """What the picture shows. ``call`` says in words which call the ring shows, "" if none."""

    ranks: int
    sentence: str
    call: str = ""
    links: tuple[tuple[int, int], ...] = ()  # who sent to whom in that call
    flights: tuple[Flight, ...] = ()
    waiting: tuple[int, ...] = ()
    iterations: int = -1
    losses: tuple[tuple[int, float], ...] = ()  # iteration, mean over the ranks
    failed: bool = False
    served: still_server.Served | None = None  # in place of the ring, where servers are


def select(store: Store) -> Still:
    """What is known of the run at this moment, from its rows and its metadata."""
    told, p = facts(store.metadata), pl.col
    rows = store.scan()
    losses = (
        rows.filter((p("kind") == "metric") & (p("name") == "loss") & (p("iteration") >= 0))
        .group_by("iteration").agg(p("value").mean()).sort("iteration").collect()
    )  # fmt: skip
    ranks = told["ranks"] or int(rows.select(p("rank").max()).collect().item() or 0) + 1
    error = in_a_line(store.metadata.get("error", "")) if store.metadata.get("error") else ""
    over = "ok" in store.metadata
    return Still(
        ranks=ranks,
        sentence=error or _sentence(ranks, told["iterations"], losses, over),
        iterations=told["iterations"],
        losses=_thinned([row for row in losses.iter_rows() if math.isfinite(row[1])]),
        failed=bool(error),
        served=still_server.select(rows, told),
        **_newest_call(rows),
    )


def _sentence(ranks: int, iterations: int, losses: pl.DataFrame, over: bool) -> str:
    who, are = (f"{ranks} processes", "are") if ranks > 1 else ("1 process", "is")
    if not losses.height:
        told = "left no loss behind" if over else f"{are} about to train one model"
        return f"{who} {told}."
    iteration, loss = losses.row(-1)
    together = "one model together" if ranks > 1 else "a model"
    if over:
        return f"{who} trained {together}: {iteration + 1} iterations, loss {loss:.3g} at the end."
    of = f" of {iterations}" if iterations > 0 else ""
    return f"{who} {are} training {together}: iteration {iteration + 1}{of}, loss {loss:.3g}."


def _thinned(points: Sequence[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """At most POINTS of them, evenly, the first and the last among them."""
    if len(points) <= POINTS:
        return tuple(points)
    chosen = np.linspace(0, len(points) - 1, POINTS).round().astype(int)
    return tuple(points[at] for at in chosen)


def _newest_call(rows: pl.LazyFrame) -> dict[str, Any]:
    """The newest complete call at the moment at which most chunks were on their way."""
    p = pl.col
    trains = (p("op") >= 0) & (p("group") != "metrics") & (p("collective") != "p2p")
    recent = p("op") > p("op").max().over("generation", "group") - RECENT_CALLS
    found = rows.filter(trains).filter(recent).collect()
    newest = calls(found).filter("complete").tail(1)
    if not newest.height:
        return {}
    own = found.join(newest.select(KEY), on=KEY, how="semi")
    sends, recvs = (own.filter(p("kind") == kind) for kind in ("send", "recv"))
    place = ["step", "chunk", "slot"]
    flights = sends.join(
        recvs.select("end_ns", *place, p("peer").alias("rank"), p("rank").alias("peer")),
        on=["rank", "peer", *place], suffix="_there",
    )  # fmt: skip
    start, end = flights["start_ns"].to_numpy(), flights["end_ns_there"].to_numpy()
    at = _busiest(start, end)
    flying = flights.filter((p("start_ns") <= at) & (at < p("end_ns_there")))
    waits = own.filter((p("kind") == "wait") & (p("start_ns") <= at) & (at < p("end_ns")))
    flying = flying.unique(["rank", "peer", "step", "chunk"], maintain_order=True)  # pieces as one
    return {
        "call": _words(newest.row(0, named=True), flying.height, at),
        "links": tuple(sorted(set(sends.select("rank", "peer").iter_rows()))),
        "flights": tuple(
            Flight(rank, peer, step, chunk, (at - begin) / max(1, there - begin))
            for rank, peer, step, chunk, begin, there in flying.select(
                "rank", "peer", "step", "chunk", "start_ns", "end_ns_there"
            ).iter_rows()
        ),
        "waiting": tuple(sorted(set(waits["rank"]))),
    }


def _words(call: dict[str, Any], flying: int, at: int) -> str:
    what = f"{call['collective'].replace('_', '-')} ({call['algorithm'].replace('_', ' ')})"
    name = f" of {call['name']}" if call["name"] else ""
    when, lasted = at - call["start_ns"], call["end_ns"] - call["start_ns"]
    return (
        f"{what}{name}, {when / 1e6:.2f} of its {lasted / 1e6:.2f} ms: "
        f"{flying} chunk{'s' * (flying != 1)} on the way"
    )


def _busiest(start: np.ndarray[Any, Any], end: np.ndarray[Any, Any]) -> int:
    """The middle of a flight at which most flights are under way; 0 if there is none."""
    middles = (start + end) // 2
    load = np.searchsorted(np.sort(start), middles, "right") - np.searchsorted(
        np.sort(end), middles, "right"
    )
    return int(middles[load.argmax()]) if len(middles) else 0


def calls(rows: pl.DataFrame) -> pl.DataFrame:
    """One row a collective that sent chunks, oldest end first; ``rows`` are those of collectives.

    Columns: generation group op, collective algorithm name, start_ns end_ns, ``complete``: every
    rank that takes part is through. It takes part if it sends, receives, or is the other end.
    """
    p = pl.col
    moves, outer = p("kind").is_in(["send", "recv"]), p("kind") == "collective"
    parties = p("rank").append(p("peer").filter(moves & (p("peer") >= 0)))
    return (
        rows.group_by(KEY)
        .agg(
            p("collective", "algorithm").first(),
            p("name").filter(outer).first(),
            p("start_ns").min(),
            p("end_ns").max(),
            (p("kind") == "send").any().alias("sends"),
            (p("rank").filter(outer).n_unique() == parties.n_unique()).alias("complete"),
        )
        .filter("sends")
        .sort("end_ns", *KEY)
    )
