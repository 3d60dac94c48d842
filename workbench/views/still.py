"""A run as one still picture: what a notebook shows where widgets do not run (drawn by svg.py).

    who sends to whom in the newest complete call, at its busiest moment · the loss · one sentence

All marks are rows: an edge is a pair of ranks with a send, a cell on it a chunk between its send's
start and its receive's end. Before there are rows, places and words are there already.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from workbench.store import Store
from workbench.units import counted, print_size
from workbench.views import still_peers, still_pipeline, still_server, still_shards
from workbench.views.facts import facts, in_a_line
from workbench.views.still_calls import Flight, Side, told_of_calls

POINTS = 240  # of the loss curve


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
    trains: bool = True  # a notebook's cells on ranks need not, plans and cases of a check do not
    losses: tuple[tuple[int, float], ...] = ()  # iteration, mean over the ranks
    failed: bool = False
    served: still_server.Served | None = None  # in place of the ring, where servers are
    piped: still_pipeline.Piped | None = None  # in place of the ring, where stages are
    mixed: still_peers.Mixing | None = None  # in place of the ring, where replicas mix
    sharded: still_shards.Sharded | None = None  # in place of the ring, where a model is sharded
    pair: tuple[Side, ...] = ()  # in place of the ring, where two calls are compared


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
    planned = json.loads(store.metadata.get("planned", "{}")).get("words", "")
    # A plan, a case of a check, two calls side by side: they say what they are.
    apart = planned or store.metadata.get("checked", "") or store.metadata.get("words", "")
    return Still(
        ranks=ranks,
        sentence=error
        or apart
        or _of_cells(ranks, store.metadata.get("cells", ""), rows)
        or _sentence(ranks, told["iterations"], losses, over),
        iterations=told["iterations"],
        trains=not (told["cells"] or apart) or bool(losses.height),
        losses=_thinned([row for row in losses.iter_rows() if math.isfinite(row[1])]),
        failed=bool(error),
        served=still_server.select(rows, told),
        piped=still_pipeline.select(rows, told),
        mixed=still_peers.select(rows, told),
        sharded=still_shards.select(rows, told),
        **told_of_calls(rows, told),
    )


def _of_cells(ranks: int, cells: str, rows: pl.LazyFrame) -> str:
    """Of ranks that run a notebook's cells; "" of a run."""
    if not cells:
        return ""
    sends = rows.filter(pl.col("kind") == "send").select("nbytes").collect()["nbytes"]
    who = counted(ranks, "rank")
    many = f"{cells} cell{'s' * (cells != '1')}"
    if not len(sends):
        return f"{who} ran {many}; nothing was sent." if cells != "0" else f"{who} wait for a cell."
    nbytes = float(f"{sends.sum():.3g}")
    return f"{who} ran {many} and sent {counted(len(sends), 'piece')}, {print_size(int(nbytes))}."


def _sentence(ranks: int, iterations: int, losses: pl.DataFrame, over: bool) -> str:
    who, are = (f"{ranks} processes", "are") if ranks > 1 else ("1 process", "is")
    if not losses.height:
        told = "left no loss behind" if over else f"{are} about to train one model"
        return f"{who} {told}."
    iteration, loss = losses.row(-1)
    together = "one model together" if ranks > 1 else "a model"
    if over:
        done = counted(iteration + 1, "iteration")
        return f"{who} trained {together}: {done}, loss {loss:.3g} at the end."
    of = f" of {iterations}" if iterations > 0 else ""
    return f"{who} {are} training {together}: iteration {iteration + 1}{of}, loss {loss:.3g}."


def _thinned(points: Sequence[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """At most POINTS of them, evenly, the first and the last among them."""
    if len(points) <= POINTS:
        return tuple(points)
    chosen = np.linspace(0, len(points) - 1, POINTS).round().astype(int)
    return tuple(points[at] for at in chosen)
