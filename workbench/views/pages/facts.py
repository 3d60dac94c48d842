"""The facts about a run beside its picture: its spec, its state, its control state, theory."""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

from workbench.common import topology
from workbench.common.errors import CollectiveError, WorkbenchError, short
from workbench.common.units import size_bytes
from workbench.experiment.survivors import comes_and_goes
from workbench.formulas import OPERATIONS, Algorithm
from workbench.formulas.hierarchical import levels_told
from workbench.runs.failure import as_facts, for_page, read_facts
from workbench.shared_memory.control_state import ControlState
from workbench.shared_memory.link_state import LinkState
from workbench.store.event_store import NOW_SCHEMA, Store
from workbench.store.table import MOST_RANKS
from workbench.theory.algorithms import find, without_formula
from workbench.views.pages.link_facts import Level, levels_of_spec, link_notes, links_of_spec
from workbench.views.scenes import RunRecord, facts_of, name_of_code

_NOW = {name: at for at, name in enumerate(NOW_SCHEMA)}
_LANE_NOW = "rank lane kind peer group collective algorithm op step chunk dtype shape".split()
MOST_SENDS = 16  # ranks: of more, pages are not told which chunks each sends
MOST_COUNTED = 256  # ranks: of more, numbers that are counted in a schedule are left out
MOST_WALKED = 64  # ranks: of more, numbers that have no formula are not counted
MOST_FORMULAS = 16_384  # ranks: of more, pages are told no formula's numbers


class Watched(Protocol):
    """The interface of a run that a page needs.

    A page shows more if there is more: ``result``, ``pids``, ``control_state``, ``overhead()``; a
    live Run has all, a loaded or a watched one less.
    """

    @property
    def store(self) -> Store: ...
    @property
    def done(self) -> bool: ...


# ---- the spec


def facts(metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return the header's ``run``, from a run's metadata. Unknown values are 0, -1 or "".

    Raises WorkbenchError for metadata that a run does not store.
    """
    with as_stored():
        return _facts(metadata)


@contextlib.contextmanager
def as_stored() -> Iterator[None]:
    """Check stored metadata: it may come from a file, and so be untrusted."""
    try:
        yield
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as e:
        raise WorkbenchError(
            f"the metadata of this run cannot be read ({type(e).__name__}: {e}): another version "
            "wrote it, or it was changed. Its events can be read: run.events"
        ) from e


def _facts(metadata: Mapping[str, str]) -> dict[str, Any]:
    run = RunRecord(metadata)
    spec, strategy = run.spec, run.strategy
    ranks, network = _ranks(spec.get("ranks", metadata.get("ranks", 0))), spec.get("network") or {}
    planned, link_levels = run.read("planned"), levels_of_spec(network)
    return {
        "title": metadata.get("title", "") or _title(run),
        "question": metadata.get("question", ""),
        "strategy": strategy,
        "home": run.traits.scene,
        "together": run.traits.together,
        "ranks": ranks,
        "cells": "cells" in metadata,  # ranks that run a notebook's cells train only if these do
        "iterations": -1 if spec.get("stop_after") else int(spec.get("iterations", -1)),
        "algorithm": name_of_code(spec.get("all_reduce", "ring")) if spec else "",
        "cores": int(metadata.get("cores", 0)),
        "mover": metadata.get("mover", ""),
        "threads": int(metadata.get("threads", spec.get("threads") or 0)),
        "padded": bool(spec.get("pad_compute")),
        "emulated": links_of_spec(network),
        "link_levels": link_levels,
        "levels": list(network.get("levels") or []),
        **facts_of(run),
        "recovers": spec.get("recovery", "abort") != "abort",
        "elastic": comes_and_goes(spec.get("recovery", "abort"), spec.get("strategy")),
        "bad_minibatch": str(spec.get("bad_minibatch", "keep")),
        "checkpoints": bool(spec.get("checkpoint")),
        "memory_limit": size_bytes(spec["memory_limit"]) if spec.get("memory_limit") else None,
        "notes": [
            *([planned["model"]] if planned else []),
            *_notes(spec, link_levels),
            *_clock_notes(run.read("clocks") or {}),
            *_shift_notes(run.read("clocks aligned") or {}),
        ],
        "clock_bounds": _clock_bounds(run.read("clocks") or {}),
        "planned": planned["words"] if planned else "",
        "theory": (
            theory(ranks, tuple(network.get("levels") or ()))
            if isinstance(spec.get("all_reduce", ""), str)
            else {}
        ),
    }


def _ranks(stored: Any) -> int:
    """Return the stored number of ranks. Raises ValueError for one that no page draws."""
    if not 0 <= (ranks := int(stored)) <= MOST_RANKS:
        raise ValueError(f"ranks = {short(ranks)}: expected 0 to {MOST_RANKS:,}")
    return ranks


def _title(run: RunRecord) -> str:
    """Return the strategy's name as people write it."""
    return run.traits.title or run.strategy.replace("_", " ").capitalize()


def ranks_noted(metadata: Mapping[str, str]) -> int:
    """Return how many ranks a job has, as far as those that have come say; 0 if none does."""
    with as_stored():
        return _ranks(metadata.get("ranks", 0))


def circle_of(metadata: Mapping[str, str]) -> list[dict[str, int]]:
    """Return which ranks waited in a circle when a notebook's cell ended in a deadlock."""
    with as_stored():
        ranks = [int(rank) for rank in metadata.get("deadlock", "").split(",") if rank]
    return [
        {"rank": rank, "peer": ranks[(place + 1) % len(ranks)]} for place, rank in enumerate(ranks)
    ]


def slow_ranks(metadata: Mapping[str, str]) -> dict[int, float]:
    """Return the ranks that the spec slows from the beginning, with their factors."""
    with as_stored():
        faults = RunRecord(metadata).spec.get("faults") or []
        return {fault["rank"]: fault["factor"] for fault in faults if fault["fault"] == "slow"}


def _notes(spec: Mapping[str, Any], link_levels: Sequence[Level]) -> list[str]:
    levels = (spec.get("network") or {}).get("levels") or []
    notes = [*([topology.words(levels)] if len(levels) > 1 else []), *link_notes(link_levels)]
    if card := (spec.get("network") or {}).get("nic"):
        notes.append(f"each host's network card emulated: {card}, each way")
    if switch := (spec.get("network") or {}).get("switch"):
        notes.append(f"the switch between hosts emulated: {switch} for all of them")
    if pad := spec.get("pad_compute"):
        notes.append(f"compute padded to {_pad_words(pad)}")
    for fault in spec.get("faults") or []:
        if fault["fault"] == "jitter":
            share, factor = fault["probability"], fault["factor"]
            notes.append(f"{share:.0%} of iterations slowed ×{factor:g}, at random")
    return notes


def carrier_notes(metadata: Mapping[str, str]) -> list[str]:
    """Say what carries chunks between hosts, which ranks have agreed on (transports/)."""
    carrier = metadata.get("between hosts")
    return [f"chunks between hosts over {carrier}"] if carrier else []


def _clock_notes(clocks: Mapping[str, Any]) -> list[str]:
    """Say how well times of other hosts' clocks are known (launchers/processes/host_clock.py)."""
    if not clocks:
        return []
    worst = max(int(one["bound_ns"]) for one in clocks.values())
    ranks = "rank" if len(clocks) == 1 else "ranks"
    numbers = ", ".join(str(rank) for rank in sorted(map(int, clocks)))
    return [f"times of {ranks} {numbers}: ± {worst / 1e3:,.0f} µs"]


def _shift_notes(shifts: Mapping[str, Any]) -> list[str]:
    """Say which ranks' clocks count from another moment, and were aligned by the time of day."""
    return [
        f"clock of rank {int(rank)} differs by {abs(int(ns)) / 1e9:,.0f} s: aligned, ± 1 ms or more"
        for rank, ns in shifts.items()
    ][:3]


def _clock_bounds(clocks: Mapping[str, Any]) -> dict[str, int]:
    """Return by how many ns the times of ranks on other hosts may be wrong, each way."""
    return {str(int(rank)): int(one["bound_ns"]) for rank, one in clocks.items()}


def _pad_words(pad: str | Mapping[str, str]) -> str:
    """Describe one duration, or those of a pipeline's forward, input and weight gradients."""
    if isinstance(pad, str):
        return pad
    names = {"forward": "F", "input_gradient": "I", "weight_gradient": "W"}
    return ", ".join(f"{names[name]} {duration}" for name, duration in pad.items())


def theory(ranks: int, levels: tuple[int, ...] = ()) -> dict[str, dict[str, Any]]:
    """Return the steps of each collective that has formulas, and what its ranks send.

    ``share``: of the whole tensor's bytes, what the busiest rank sends; ``shares``: what each does,
    where they differ; ``sends``: how often each sends each chunk, a digit for a chunk. ``levels``:
    of the ranks' hosts, where they are known.
    """
    if not 2 <= ranks <= MOST_FORMULAS:
        return {}
    counted = {}
    for operation in OPERATIONS if ranks <= MOST_WALKED else ():
        for name in without_formula(operation):
            with contextlib.suppress(CollectiveError):  # it does not take so many ranks
                counted[f"{operation}/{name}"] = _numbers(find(name, operation), ranks)
    return {name: dict(says) for name, says in _theory(ranks, levels).items()} | counted


@lru_cache(64)
def _theory(ranks: int, levels: tuple[int, ...]) -> dict[str, dict[str, Any]]:
    way = levels_told(levels) if levels else ""
    return {
        f"{operation}/{name}": _numbers(algorithm, ranks)
        for operation, algorithms in OPERATIONS.items()
        for name in algorithms
        for algorithm in [find(name, operation, way, ranks)]
        if ranks <= MOST_COUNTED or not algorithm.is_counted
    }


def _numbers(algorithm: Algorithm, ranks: int) -> dict[str, Any]:
    elements = ranks << 20  # whole chunks
    shares = [round(sent / elements, 6) for sent in algorithm.sent(ranks, elements)]
    numbers: dict[str, Any] = {"steps": algorithm.steps(ranks), "share": max(shares)}
    if len(set(shares)) > 1:
        numbers["shares"] = shares
    if sends := _sends(algorithm, ranks):
        numbers["sends"] = sends
    return numbers


def _sends(algorithm: Algorithm, ranks: int) -> list[str]:
    """Return how often each rank sends each chunk; empty if that is not known in so few digits."""
    if algorithm.schedule is None or ranks > MOST_SENDS:
        return []
    counts = Counter((t.source, t.chunk) for t in algorithm.schedule(ranks))
    chunks = 1 + max((chunk for _, chunk in counts), default=-1)
    if chunks > ranks or max(counts.values(), default=0) > 9:
        return []
    return ["".join(str(counts[rank, c]) for c in range(chunks)) for rank in range(ranks)]


# ---- what is done to the ranks

NO_CONTROL: dict[str, Any] = {
    "held": False,
    "standing": [],
    "slow_motion": 1,
    "slow": {},
    "frozen": [],
    "ended": {},
    "how": {},
    "pids": {},
    "links": [],
    "loads": [],
    "corrupts": [],
    "cut_off": {},
}


def control(state: ControlState | None, pids: Mapping[int, int]) -> dict[str, Any]:
    """Return the header's ``control``."""
    if state is None:
        return NO_CONTROL
    return {
        "held": state.held,
        "standing": list(state.standing),
        "slow_motion": state.slow_motion,
        "slow": dict(state.slow),
        "frozen": list(state.frozen),
        "ended": dict(state.ended),
        "how": dict(state.how),
        "pids": dict(pids),
        "links": [_link(*ends, link) for ends, link in state.links.items()],
        "loads": list(state.loads),
        "corrupts": list(state.corrupts),
        "cut_off": dict(state.cut_off),
    }


def _link(source: int, target: int, link: LinkState) -> dict[str, Any]:
    return {
        "from": source,
        "to": target,
        "latency_ms": link.latency_ns / 1e6,
        "bandwidth": link.bandwidth,
        "down": link.down,
        "words": link.words,
    }


# ---- state


def state_of(
    run: Watched, over: bool, run_facts: Mapping[str, Any], events: int, iteration: int
) -> tuple[str, str]:
    """Return the page's name of the run's state, and the reason in a sentence where there is one.

    ``run_facts`` is the header's ``run``; ``iteration`` the newest of which there are rows.
    """
    if (words := getattr(run, "state_in_words", None)) is not None:  # an attached job
        return str(words[0]), str(words[1])
    if not over:
        return _living(run, run_facts, events)
    error = run.store.metadata.get("error", "")
    if not hasattr(run, "result"):  # a run that was saved
        if error:
            return "failed", in_a_line(error)
        if events or "ends" not in run.store.metadata:
            return ("replay", "") if events else ("empty", "This record holds no events.")
        ranks = ranks_noted(run.store.metadata)
        subject = "The rank has" if ranks == 1 else f"All {ranks} ranks have"
        return "finished", f"{subject} ended. No collective was called, and no message sent."
    if run.result.error is not None:
        return "failed", in_a_line(str(run.result.error))
    done = len(run.result.losses) or iteration + 1
    if done < run_facts["iterations"]:
        return "finished", f"Stopped after {done:,} of {run_facts['iterations']:,} iterations."
    if done == 1:
        return "finished", "The one iteration is done."
    return "finished", f"All {done:,} iterations are done." if done else ""


def _living(run: Watched, run_facts: Mapping[str, Any], events: int) -> tuple[str, str]:
    if events:
        return "running", ""
    state, ranks = getattr(run, "control_state", None), run_facts["ranks"]
    if state is None:
        return "starting", "Nothing has been recorded yet."
    here = len(state.arrived)
    if here < ranks:
        arrived = f"{here or 'none'} {'has' if here == 1 else 'have'} arrived"
        return "starting", f"Starting {ranks} process{'es' * (ranks > 1)}: {arrived}."
    if not getattr(run.experiment, "record", True):  # type: ignore[attr-defined]
        return "running", "Nothing is recorded (record=False), so there is nothing to draw."
    return "starting", "All have arrived and are about to begin."


def failure_of(run: Watched, over: bool) -> dict[str, Any] | None:
    """Return why the run failed, the header's ``failure`` (``failure.for_page``); None if it did
    not.
    """
    if not over:
        return None
    failure = getattr(run, "failure", None)  # an attached job
    metadata = run.store.metadata
    if failure is None and "failure" in metadata:
        failure = read_facts(metadata["failure"])
    if failure is None and metadata.get("error"):
        failure = as_facts(WorkbenchError(metadata["error"]))  # its message alone
    return failure and for_page(failure)


def in_a_line(error: str) -> str:
    """Return an error's first line; of a traceback, also what was raised."""
    first, *rest = error.strip().splitlines()
    return f"{first} {rest[-1].strip()}" if rest and first.endswith(":") else first


def standing(doing: Sequence[tuple[Any, ...]], seconds: float) -> list[tuple[Any, ...]]:
    """Return those of ``Store.doing`` that have been in the same for so long."""
    since = time.monotonic_ns() - seconds * 1e9
    return [row for row in doing if row[_NOW["since_ns"]] < since]


def lanes_now(doing: Sequence[tuple[Any, ...]], origin: int) -> list[dict[str, Any]]:
    """Return the header's ``lanes_now`` from ``Store.doing``; ``since`` in ns from the origin."""
    return [
        {name: row[_NOW[name]] for name in _LANE_NOW}
        | {
            "since": row[_NOW["since_ns"]] - origin,
            "values": [v if math.isfinite(v) else None for v in row[_NOW["values"]]],
        }
        for row in doing
    ]
