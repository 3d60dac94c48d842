"""A run as one still picture: what a notebook shows where widgets do not run (drawn by svg.py).

    senders and receivers of the newest complete call, at its busiest moment · the loss · a sentence

All marks are rows: an edge is a pair of ranks with a send, a cell on it a chunk between its send's
start and its receive's end. Before there are rows, places and words are there already.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from workbench.common.errors import WorkbenchError
from workbench.common.units import counted, print_size
from workbench.common.wait_cycles import circle_words
from workbench.store.event_store import Store
from workbench.store.table import MOST_RANKS
from workbench.views.pages.facts import as_stored, facts, in_a_line, slow_ranks
from workbench.views.pages.link_facts import changed, emulation_notes, made_links
from workbench.views.pages.tally import Tally
from workbench.views.scenes import Scene, scenes
from workbench.views.stills.calls import Flight, Lanes, newest_call

POINTS = 240  # of the loss curve


@dataclass(frozen=True)
class Still:
    """The content of a picture.

    ``call`` names the call that the ring shows, "" if there is none.
    """

    ranks: int
    sentence: str
    of_a_host: int = 0  # ranks of each host; 0: no hosts are known
    call: str = ""
    links: tuple[tuple[int, int], ...] = ()  # (sender, receiver) of that call
    flights: tuple[Flight, ...] = ()
    lanes: Lanes | None = None  # the whole of that call
    waiting: tuple[int, ...] = ()
    deadlock: tuple[int, ...] = ()  # ranks of which each waits for the next, of a notebook's cell
    iterations: int = -1
    trains: bool = True  # a notebook's cells on ranks need not, plans and cases of a check do not
    losses: tuple[tuple[int, float], ...] = ()  # iteration, mean over the ranks
    failed: bool = False
    scene: Scene | None = None  # whose picture stands instead of the ring
    selected: Any = None  # what that scene shows
    notes: tuple[str, ...] = ()  # what was emulated, slowed or done on purpose, in words
    made_links: Mapping[tuple[int, int], bool] = field(default_factory=dict)  # and whether cut


def select(store: Store, scene_name: str = "") -> Still:
    """Return the state of the run at this moment, from its rows and its metadata. ``scene_name``:
    the scene that a cell asks for, which is drawn where it has something to show. Raises
    WorkbenchError for metadata that a run does not store.
    """
    with as_stored():
        return _select(store, scene_name)


def _select(store: Store, scene_name: str) -> Still:
    run_facts, p = facts(store.metadata), pl.col
    notes = _notes(store, run_facts)
    rows = store.scan()
    losses = (
        rows.filter((p("kind") == "metric") & (p("name") == "loss") & (p("iteration") >= 0))
        .group_by("iteration")
        .agg(p("value").mean())
        .sort("iteration")
        .collect()
    )
    ranks = run_facts["ranks"] or _ranks_in(rows)
    error = in_a_line(store.metadata.get("error", "")) if store.metadata.get("error") else ""
    over = "ok" in store.metadata
    planned = json.loads(store.metadata.get("planned", "{}")).get("words", "")
    # A plan, a case of a check, two calls side by side: they say what they are.
    apart = planned or store.metadata.get("checked", "") or store.metadata.get("words", "")
    scene, selected = _scene(rows, run_facts, scene_name)
    deadlock = tuple(map(int, filter(None, store.metadata.get("deadlock", "").split(","))))
    if any(not 0 <= rank < ranks for rank in deadlock):
        raise ValueError(f"deadlock: of {ranks} ranks")
    call: dict[str, Any] = {}
    if deadlock:
        error = error or f"Deadlock: {circle_words(deadlock)}."
        call = {"call": "What the newest cell waited for", "waiting": deadlock}
    elif scene is None or not scene.alone:
        call = newest_call(rows, run_facts["cells"])
    return Still(
        ranks=ranks,
        sentence=error
        or apart
        or _of_cells(ranks, store.metadata.get("cells", ""), rows)
        or _sentence(ranks, run_facts, losses, over, bool(call.get("call"))),
        of_a_host=run_facts["levels"][0] if len(run_facts["levels"]) > 1 else 0,
        iterations=-1 if over else run_facts["iterations"],  # then the axis ends where data end
        trains=(not (run_facts["cells"] or apart) or bool(losses.height))
        and not (scene is not None and scene.wide),
        losses=_thin_out([row for row in losses.iter_rows() if math.isfinite(row[1])]),
        failed=bool(error),
        deadlock=deadlock,
        scene=scene,
        selected=selected,
        notes=notes,
        made_links=made_links(run_facts, call.get("links", ())),
        **call,
    )


def _notes(store: Store, run_facts: dict[str, Any]) -> tuple[str, ...]:
    """Return in words what was done to the run on purpose, and put into its facts how links were
    changed while it ran.
    """
    tally = Tally(store, slow_ranks(store.metadata))
    tally.catch_up(len(store))
    run_facts["emulated"] = changed(run_facts["emulated"], tally.links)
    return *emulation_notes(run_facts["emulated"]), *run_facts["notes"], *tally.badges


def _ranks_in(rows: pl.LazyFrame) -> int:
    """Return the number of ranks that have rows, where none is stored. Raises WorkbenchError."""
    newest = int(rows.select(pl.col("rank").max()).collect().item() or 0)
    if newest >= MOST_RANKS:
        raise WorkbenchError(
            f"this run has rows of rank {newest:,}, and rank {MOST_RANKS - 1:,} is the last that a "
            "picture shows. Its events can be read: run.events"
        )
    return newest + 1


def _scene(
    rows: pl.LazyFrame, run_facts: Mapping[str, Any], scene_name: str
) -> tuple[Scene | None, Any]:
    """Return the scene that was asked for, or the first in the order of their tabs, that has
    something to show, and what.
    """
    known = scenes()
    default = [scene for scene in known.values() if not scene.on_request]
    for scene in [known[scene_name], *default] if scene_name in known else default:
        if (selected := scene.select(rows, run_facts)) is not None:
            return scene, selected
    return None, None


def _of_cells(ranks: int, cells: str, rows: pl.LazyFrame) -> str:
    """Describe ranks that run a notebook's cells; "" for a run."""
    if not cells:
        return ""
    sends = rows.filter(pl.col("kind") == "send").select("nbytes").collect()["nbytes"]
    subject = counted(ranks, "rank")
    many = f"{cells} cell{'s' * (cells != '1')}"
    if not len(sends):
        return (
            f"{subject} ran {many}; nothing was sent."
            if cells != "0"
            else f"{subject} wait for a cell."
        )
    nbytes = float(f"{sends.sum():.3g}")
    sent = f"{counted(len(sends), 'piece')}, {print_size(int(nbytes))}"
    return f"{subject} ran {many} and sent {sent}."


def _sentence(
    ranks: int, run_facts: Mapping[str, Any], losses: pl.DataFrame, over: bool, called: bool
) -> str:
    """Say what the ranks do or did; ``called``: a collective is complete."""
    subject, are = (f"{ranks} processes", "are") if ranks > 1 else ("1 process", "is")
    iterations = run_facts["iterations"]
    if not losses.height:
        if not run_facts["strategy"]:  # a job of the user's own tells no loss, nor that it is over
            return f"The {subject} of a job." if ranks > 1 else "One process of a job."
        doing = f"{are} at work" if called else f"{are} about to train one model"
        predicate = "left no loss behind" if over else doing
        return f"{subject} {predicate}."
    iteration, loss = losses.row(-1)
    together = "one model together" if ranks > 1 else "a model"
    if over:
        done = counted(iteration + 1, "iteration")
        return f"{subject} trained {together}: {done}, loss {loss:.3g} at the end."
    of = f" of {iterations}" if iterations > 0 else ""
    return f"{subject} {are} training {together}: iteration {iteration + 1}{of}, loss {loss:.3g}."


def _thin_out(points: Sequence[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """Return at most POINTS of the points, evenly, with the first and the last."""
    if len(points) <= POINTS:
        return tuple(points)
    chosen = np.linspace(0, len(points) - 1, POINTS).round().astype(int)
    return tuple(points[at] for at in chosen)
