"""What is said of a run beside its picture: its spec, its state, what is done to it, theory."""

from __future__ import annotations

import contextlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Protocol

import yaml

from workbench import hosts
from workbench.control import ControlState, LinkState
from workbench.errors import WorkbenchError
from workbench.formulas import OPERATIONS, find
from workbench.formulas.hierarchical import levels_told
from workbench.partitions.facts import run_facts
from workbench.store import NOW_SCHEMA, Store
from workbench.units import size_bytes
from workbench.views.server_facts import inputs_facts, server_facts

_NOW = {name: at for at, name in enumerate(NOW_SCHEMA)}
_LANE_NOW = (
    "rank lane kind peer group collective algorithm op step chunk dtype shape".split()
)  # as they are


_MISFITS = ArithmeticError, AttributeError, LookupError, TypeError, ValueError


class Watched(Protocol):
    """What a page needs of a run. More is told where there is more: ``result``, ``pids``,
    ``control_state``, ``overhead()``; a live Run has all, a loaded one or a watched one less.
    """

    @property
    def store(self) -> Store: ...
    @property
    def done(self) -> bool: ...


# ---- the spec


def facts(metadata: Mapping[str, str]) -> dict[str, Any]:
    """The header's ``run``, from what is stored with a run. What is not known is 0, -1 or "".

    Raises WorkbenchError where something else is stored than a run stores.
    """
    with _as_stored():
        return _facts(metadata)


@contextlib.contextmanager
def _as_stored() -> Iterator[None]:
    """What is stored with a run may come from a file, and that from anybody."""
    try:
        yield
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
        yaml.YAMLError,
    ) as e:
        raise WorkbenchError(
            f"what is stored with this run is not what a run stores ({type(e).__name__}: {e}): it "
            "was written by another version, or changed. Its events can be read: run.events"
        ) from e


def _facts(metadata: Mapping[str, str]) -> dict[str, Any]:
    spec = yaml.safe_load(metadata.get("experiment", "")) or {}
    ranks, network = int(spec.get("ranks", metadata.get("ranks", 0))), spec.get("network") or {}
    planned = found(metadata.get("planned"))
    strategy, options = _name(spec.get("strategy", "")), spec.get("options") or {}
    links = []
    for name, link in sorted(network.get("links", {}).items()):
        source, _, target = name.partition("->")
        links.append(_emulated(int(source), int(target), _spec_words(link)))
    return {
        "title": metadata.get("title", "") or _title(strategy),
        "strategy": strategy,
        "ranks": ranks,
        "cells": "cells" in metadata,  # ranks that run a notebook's cells train only if these do
        "iterations": int(spec.get("iterations", -1)),
        "algorithm": _name(spec.get("all_reduce", "ring")) if spec else "",
        "cores": int(metadata.get("cores", 0)),
        "threads": int(metadata.get("threads", spec.get("threads") or 0)),
        "emulated": links,
        "levels": list(network.get("levels") or []),
        "server": server_facts(strategy, options, _name(options.get("consistency", "bsp"))) or None,
        "inputs": inputs_facts(strategy, options),
        "pipeline": found(metadata.get("pipeline")),
        "model": found(metadata.get("model")),
        "buckets": found(metadata.get("buckets")),
        "peers": found(metadata.get("peers")),
        "samples": run_facts(metadata),
        "shards": found(metadata.get("shards")),
        "pair": found(metadata.get("pair")),
        "waiting": found(metadata.get("waiting")),  # of a record that broke off in a deadlock
        "auto": found(metadata.get("auto")),
        "memory_limit": size_bytes(spec["memory_limit"]) if spec.get("memory_limit") else None,
        "notes": [
            *([planned["model"]] if planned else []),
            *_notes(spec, _by_level(network)),
        ],
        "planned": planned["words"] if planned else "",
        "theory": (
            theory(ranks, tuple(network.get("levels") or ()))
            if isinstance(spec.get("all_reduce", ""), str)
            else {}
        ),
    }


def found(text: str | None) -> Any:
    """What ranks or the driver have told of the run as JSON; None if they have not."""
    return None if text is None else json.loads(text)


_TITLES = {
    "ddp": "DDP", "fsdp": "FSDP", "local_sgd": "Local SGD", "diloco": "DiLoCo", "top_k": "Top-k",
    "ad_psgd": "AD-PSGD", "malt": "MALT",
}  # fmt: skip


def _title(strategy: str) -> str:
    """The strategy's name as people write it."""
    return _TITLES.get(strategy, strategy.replace("_", " ").capitalize())


def slowed(metadata: Mapping[str, str]) -> dict[int, float]:
    """Ranks that the spec slows from the beginning, and their factors."""
    with _as_stored():
        spec = yaml.safe_load(metadata.get("experiment", "")) or {}
        faults = spec.get("faults") or []
        return {fault["rank"]: fault["factor"] for fault in faults if fault["fault"] == "slow"}


def _name(code: Any) -> str:
    """The name of a file of ours, of a user's function, or of a path to one."""
    if isinstance(code, Mapping):
        return str(code.get("name", ""))
    path, _, name = str(code).rpartition(":")
    return name if path else str(code).rpartition("/")[2].removesuffix(".py")


LINK_NOTES = ("all links ", "links inside ", "links between ")  # how notes of links begin


def _by_level(network: Mapping[str, Any]) -> list[str]:
    """What links are inside hosts, between hosts, and so on: in words, "" as the machine has them.
    Without hosts one level.
    """
    usual = {name: network.get(name) for name in ("latency", "bandwidth")}
    between, above = network.get("between") or {}, len(network.get("levels") or [0]) - 1
    far = between if isinstance(between, list) else [between] * above
    own = [{name: value for name, value in link.items() if value} for link in far]
    return [_spec_words(usual), *(_spec_words({**usual, **link}) for link in own)]


def _link_notes(words: Sequence[str]) -> list[str]:
    """Of links by level, each in words."""
    if len({*words}) == 1:
        return [f"all links emulated: {words[0]}"] if words[0] else []
    names = ["inside hosts", "between hosts", "between racks"] + ["between groups"] * len(words)
    return [f"links {name} {_made(each)}" for name, each in zip(names, words, strict=False) if each]


def _notes(spec: Mapping[str, Any], links: Sequence[str]) -> list[str]:
    levels = (spec.get("network") or {}).get("levels") or []
    notes = [*([hosts.words(levels)] if len(levels) > 1 else []), *_link_notes(links)]
    if pad := spec.get("pad_compute"):
        notes.append(f"compute padded to {_pad_words(pad)}")
    for fault in spec.get("faults") or []:
        if fault["fault"] == "jitter":
            share, factor = fault["probability"], fault["factor"]
            notes.append(f"{share:.0%} of iterations slowed ×{factor:g}, at random")
    return notes


def _pad_words(pad: str | Mapping[str, str]) -> str:
    """One duration, or those of a pipeline's forward, input and weight gradients."""
    if isinstance(pad, str):
        return pad
    names = {"forward": "F", "input_gradient": "I", "weight_gradient": "W"}
    return ", ".join(f"{names[name]} {duration}" for name, duration in pad.items())


def _spec_words(link: Mapping[str, Any]) -> str:
    parts = [link[name] for name in ("latency", "bandwidth") if link.get(name)]
    return "cut" if link.get("down") else ", ".join(parts)


def _emulated(source: int, target: int, words: str) -> dict[str, Any]:
    return {"from": source, "to": target, "words": f"link {source} → {target} {_made(words)}"}


def _made(words: str) -> str:
    return "cut" if words == "cut" else f"emulated: {words}"


def theory(ranks: int, levels: tuple[int, ...] = ()) -> dict[str, dict[str, float]]:
    """Of each collective that has formulas: its steps, and the share of the whole tensor's bytes
    that the busiest rank sends. ``levels``: of the ranks' hosts, where they are known.
    """
    return {name: dict(says) for name, says in _theory(ranks, levels).items()}


@cache
def _theory(ranks: int, levels: tuple[int, ...]) -> dict[str, dict[str, float]]:
    elements = ranks << 20  # whole chunks
    way = levels_told(levels) if levels else ""
    return {
        f"{operation}/{name}": {
            "steps": algorithm.steps(ranks),
            "share": max(algorithm.sent(ranks, elements)) / elements,
        }
        for operation, algorithms in OPERATIONS.items()
        for name in algorithms
        for algorithm in [find(name, operation, way, ranks)]
        if ranks > 1
    }


# ---- what is done to the ranks

NO_CONTROL: dict[str, Any] = {
    "held": False, "standing": [], "slow_motion": 1, "slow": {}, "frozen": [], "ended": {},
    "pids": {}, "links": [],
}  # fmt: skip


def control(state: ControlState | None, pids: Mapping[int, int]) -> dict[str, Any]:
    """The header's ``control``."""
    if state is None:
        return NO_CONTROL
    return {
        "held": state.held,
        "standing": list(state.standing),
        "slow_motion": state.slow_motion,
        "slow": dict(state.slow),
        "frozen": list(state.frozen),
        "ended": dict(state.ended),
        "pids": dict(pids),
        "links": [_link(*ends, link) for ends, link in state.links.items()],
    }


def _link(source: int, target: int, link: LinkState) -> dict[str, Any]:
    return {
        "from": source, "to": target, "latency_ms": link.latency_ns / 1e6,
        "bandwidth": link.bandwidth, "down": link.down, "words": link.words,
    }  # fmt: skip


def emulated(
    state: ControlState, ranks: int, levels: Sequence[int] = ()
) -> tuple[list[dict[str, Any]], list[str]]:
    """The header's ``emulated`` as the links are now, and notes where most of them are alike: of
    all, or of those inside hosts and those between.
    """
    links, everyone = state.links, range(ranks)
    at = {(a, b): hosts.level(levels, a, b) for a in everyone for b in everyone if a != b}
    common: list[LinkState | None] = []
    for level in range(len(levels) or 1):
        own = Counter(link for ends, link in links.items() if at.get(ends) == level)
        alike, count = own.most_common(1)[0] if own else (None, 0)
        most = sum(each == level for each in at.values())
        common.append(alike if 2 * count > most and (count > 1 or levels) else None)
    notes = _link_notes([link.words if link else "" for link in common])
    told = [
        _emulated(*ends, link.words)
        for ends, link in links.items() if link != common[at.get(ends, 0)]
    ]  # fmt: skip
    return told, notes


def changed(
    known: Sequence[dict[str, Any]], by_hand: Mapping[tuple[int, int], str]
) -> list[dict[str, Any]]:
    """``emulated`` of a record, from its spec and its fault rows: what links were at its end."""
    others = [link for link in known if (link["from"], link["to"]) not in by_hand]
    now = [_emulated(*ends, words) for ends, words in by_hand.items() if words != "restored"]
    return others + now


# ---- state


def state_of(
    run: Watched, over: bool, told: Mapping[str, Any], events: int, iteration: int
) -> tuple[str, str]:
    """The page's word for the run's state, and the reason in a sentence where there is one.

    ``told`` is the header's ``run``; ``iteration`` the newest of which there are rows.
    """
    if (own := getattr(run, "state_in_words", None)) is not None:  # a job of somebody else's
        return str(own[0]), str(own[1])
    if not over:
        return _living(run, told, events)
    error = run.store.metadata.get("error", "")
    if not hasattr(run, "result"):  # a run that was saved
        if error:
            return "failed", in_a_line(error)
        return ("replay", "") if events else ("empty", "This record holds no events.")
    if run.result.error is not None:
        return "failed", in_a_line(str(run.result.error))
    done = len(run.result.losses) or iteration + 1
    if done < told["iterations"]:
        return "finished", f"Stopped after {done:,} of {told['iterations']:,} iterations."
    if done == 1:
        return "finished", "The one iteration is done."
    return "finished", f"All {done:,} iterations are done." if done else ""


def _living(run: Watched, told: Mapping[str, Any], events: int) -> tuple[str, str]:
    if events:
        return "running", ""
    state, ranks = getattr(run, "control_state", None), told["ranks"]
    if state is None:
        return "starting", "Nothing has been recorded yet."
    here = len(state.arrived)
    if here < ranks:
        arrived = f"{here or 'none'} {'has' if here == 1 else 'have'} arrived"
        return "starting", f"Starting {ranks} process{'es' * (ranks > 1)}: {arrived}."
    if not getattr(run.experiment, "record", True):  # type: ignore[attr-defined]
        return "running", "Nothing is recorded (record=False), so there is nothing to draw."
    return "starting", "All have arrived and are about to begin."


def in_a_line(error: str) -> str:
    """An error's first line; of a traceback, what it was about too."""
    first, *rest = error.strip().splitlines()
    return f"{first} {rest[-1].strip()}" if rest and first.endswith(":") else first


def lanes_now(doing: Sequence[tuple[Any, ...]], origin: int) -> list[dict[str, Any]]:
    """The header's ``lanes_now`` from ``Store.doing``; ``since`` in ns from the origin."""
    return [
        {name: row[_NOW[name]] for name in _LANE_NOW}
        | {
            "since": row[_NOW["since_ns"]] - origin,
            "values": [v if math.isfinite(v) else None for v in row[_NOW["values"]]],
        }
        for row in doing
    ]
