"""What is said of a run beside its picture: its spec, its state, what is done to it, theory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import yaml

from workbench.control import ControlState, LinkState
from workbench.formulas import ALGORITHMS
from workbench.store import NOW_SCHEMA, Store
from workbench.views.server_facts import server_facts

_NOW = {name: at for at, name in enumerate(NOW_SCHEMA)}
_LANE_NOW = (
    "rank lane kind peer group collective algorithm op step chunk dtype shape".split()
)  # as they are


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
    """The header's ``run``, from what is stored with a run. What is not known is 0, -1 or ""."""
    spec = yaml.safe_load(metadata.get("experiment", "")) or {}
    ranks, network = int(spec.get("ranks", 0)), spec.get("network") or {}
    strategy, options = _name(spec.get("strategy", "")), spec.get("options") or {}
    links = []
    for name, link in sorted(network.get("links", {}).items()):
        source, _, target = name.partition("->")
        links.append(_emulated(int(source), int(target), _spec_words(link)))
    return {
        "title": metadata.get("title", "") or _title(strategy),
        "strategy": strategy,
        "ranks": ranks,
        "iterations": int(spec.get("iterations", -1)),
        "algorithm": _name(spec.get("all_reduce", "ring")) if spec else "",
        "cores": int(metadata.get("cores", 0)),
        "threads": int(metadata.get("threads", spec.get("threads") or 0)),
        "emulated": links,
        "server": server_facts(strategy, options, _name(options.get("consistency", "bsp"))) or None,
        "notes": _notes(spec, _spec_words({k: v for k, v in network.items() if k != "links"})),
        "theory": theory(ranks) if isinstance(spec.get("all_reduce", ""), str) else {},
    }


def _title(strategy: str) -> str:
    """The strategy's name as people write it."""
    return "DDP" if strategy == "ddp" else strategy.replace("_", " ").capitalize()


def slowed(metadata: Mapping[str, str]) -> dict[int, float]:
    """Ranks that the spec slows from the beginning, and their factors."""
    spec = yaml.safe_load(metadata.get("experiment", "")) or {}
    faults = spec.get("faults") or []
    return {fault["rank"]: fault["factor"] for fault in faults if fault["fault"] == "slow"}


def _name(code: Any) -> str:
    """The name of a file of ours, of a user's function, or of a path to one."""
    if isinstance(code, Mapping):
        return str(code.get("name", ""))
    path, _, name = str(code).rpartition(":")
    return name if path else str(code).rpartition("/")[2].removesuffix(".py")


def _notes(spec: Mapping[str, Any], network: str) -> list[str]:
    notes = [f"all links emulated: {network}"] if network else []
    if pad := spec.get("pad_compute"):
        notes.append(f"compute padded to {pad}")
    for fault in spec.get("faults") or []:
        if fault["fault"] == "jitter":
            share, factor = fault["probability"], fault["factor"]
            notes.append(f"{share:.0%} of iterations slowed ×{factor:g}, at random")
    return notes


def _spec_words(link: Mapping[str, Any]) -> str:
    parts = [link[name] for name in ("latency", "bandwidth") if link.get(name)]
    return "cut" if link.get("down") else ", ".join(parts)


def _emulated(source: int, target: int, words: str) -> dict[str, Any]:
    words = f"link {source} → {target} {'cut' if words == 'cut' else f'emulated: {words}'}"
    return {"from": source, "to": target, "words": words}


def theory(ranks: int) -> dict[str, dict[str, float]]:
    """Of each all-reduce that has formulas: its steps, and the share of the tensor's bytes that the
    busiest rank sends.
    """
    if ranks < 2:
        return {}
    elements = ranks << 20  # whole chunks
    return {
        f"all_reduce/{name}": {
            "steps": algorithm.steps(ranks),
            "share": max(algorithm.sent(ranks, elements)) / elements,
        }
        for name, algorithm in ALGORITHMS.items()
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


def emulated(state: ControlState, ranks: int) -> tuple[list[dict[str, Any]], list[str]]:
    """The header's ``emulated`` as the links are now, and a note where most of them are alike."""
    links = state.links
    alike, count = Counter(links.values()).most_common(1)[0] if links else (None, 0)
    common = alike if count > 1 and 2 * count > ranks * (ranks - 1) else None
    notes = [f"all links emulated: {common.words}"] if common else []
    return [_emulated(*ends, link.words) for ends, link in links.items() if link != common], notes


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
        return "finished", f"Stopped after {done} of {told['iterations']} iterations."
    return "finished", f"All {done} iterations are done." if done else ""


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
