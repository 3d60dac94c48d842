"""Commands of a page to the ranks: ``obey`` a message, answer in words.

    {type: "do", id, verb, args}  ->  {type: "said", id, ok, words}

A page's message is checked here and nowhere else: a bad one is answered in words and does nothing.
``Orders`` has them obeyed one after the other in a thread of its own: a hundred steps take seconds,
in which every page's picture moves.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any, Protocol

from workbench.common import threads
from workbench.common.errors import RunTimeout, SpecError, short
from workbench.common.units import bytes_per_second, duration_ns, micro
from workbench.shared_memory.control_block import CORRUPTIONS, UNITS
from workbench.views.packing import Message

MOST_LINKED = 16  # ranks whose links are changed all at once
MOST_STEPS = 100  # at a time
MOST_ORDERS = 100  # that wait
LARGEST_FACTOR = 1e6
CHECKPOINT_S = 2.0  # that other commands wait for one to be written


class Viewer(Protocol):
    """A page, as far as its commands go."""

    readonly: bool

    @property
    def run(self) -> Any: ...
    def reply(self, answer: Message) -> None: ...


class Refused(Exception):
    """The reason why a message does nothing, in words."""


class Orders:
    """The commands of one run's pages to its ranks, in the order of the requests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Viewer, Mapping[str, Any]]] = deque()
        self._thread: threading.Thread | None = None

    def take(self, page: Viewer, message: Mapping[str, Any]) -> None:
        """Queue a command behind those before it; the page hears of its outcome."""
        with self._lock:
            full = len(self._waiting) >= MOST_ORDERS
            if not full:
                self._waiting.append((page, message))
                if self._thread is None:
                    self._thread = threads.start(self._work, "workbench orders")
        if full:
            words = f"{MOST_ORDERS} commands wait already: this one is not done."
            page.reply(Message(reply(message, False, words)))

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                page, message = self._waiting.popleft()
            page.reply(Message(obey(page.run, message, page.readonly)))


def obey(run: Any, message: Mapping[str, Any], readonly: bool = False) -> dict[str, Any]:
    """Execute the message's command on ``run`` and return the answer. ``readonly``: refuse it with
    a message.
    """
    verb = message.get("verb")
    try:
        action, names = _find(verb)
        args = _arguments(verb, message.get("args") or {}, names)
        _allowed(run, verb, readonly)
        words = action(run, **args)
    except (Refused, SpecError) as error:
        return reply(message, False, str(error))
    except Exception as error:  # the thread that this is called in obeys other pages too
        return reply(message, False, f"That failed: {type(error).__name__}: {error}")
    return reply(message, True, words)


def reply(message: Mapping[str, Any], ok: bool, words: str) -> dict[str, Any]:
    return {"type": "said", "id": message.get("id"), "ok": ok, "words": words}


def _find(verb: Any) -> tuple[Callable[..., str], tuple[str, ...]]:
    if not isinstance(verb, str) or verb not in _VERBS:
        raise Refused(
            f"{short(verb)} is nothing that ranks can be told; known are {', '.join(_VERBS)}."
        )
    return _VERBS[verb]


def _arguments(verb: Any, args: Any, names: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(args, Mapping):
        raise Refused(f"The arguments of {verb} are names with values, not {short(args)}.")
    if unknown := [name for name in args if name not in names]:
        takes = ", ".join(names) or "nothing"
        words = ", ".join(short(name).strip("'") for name in unknown[:4])
        raise Refused(f"{verb} does not take {words}; it takes {takes}.")
    return dict(args)


def _allowed(run: Any, verb: Any, readonly: bool) -> None:
    if readonly:
        raise Refused("This page only watches: it cannot change the ranks.")
    if not hasattr(run, str(verb)):
        raise Refused("These ranks were started elsewhere: they can be watched, not changed.")
    if run.done:
        raise Refused("The run is over: there are no ranks left to change.")


# ---- the verbs; what they are given comes from a page


def _pause(run: Any) -> str:
    run.pause()
    return "The ranks are held at their next chunk or iteration."


def _resume(run: Any) -> str:
    run.resume()
    return "The ranks run."


def _step(run: Any, count: Any = 1, unit: Any = "chunk") -> str:
    if unit not in UNITS:
        raise Refused(
            f"A step is a {', a '.join(UNITS[:-1])} or an {UNITS[-1]}, not {short(unit)}."
        )
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST_STEPS:
        raise Refused(
            f"Steps at a time are a whole number from 1 to {MOST_STEPS}, not {short(count)}."
        )
    if not run.control_state.held:
        raise Refused("Only ranks that are held can make a single step: hold them first.")
    run.step(count, unit=unit)
    return f"The ranks go on by {f'{count} {unit}s' if count > 1 else f'one {unit}'}."


def _slow_motion(run: Any, factor: Any = None) -> str:
    factor = _factor(factor)
    run.slow_motion(factor)
    return "Full speed." if factor == 1 else f"Every transfer lasts {factor:g} times its own time."


def _stop(run: Any) -> str:
    words: str | None = run.stop()
    return words or "The run ends after this iteration."


def _kill(run: Any, rank: Any = None) -> str:
    run.kill(_alive(run, rank))
    return f"Rank {rank} was killed."


def _freeze(run: Any, rank: Any = None) -> str:
    run.freeze(_alive(run, rank))
    return f"Rank {rank} is frozen."


def _thaw(run: Any, rank: Any = None) -> str:
    run.thaw(_alive(run, rank))
    return f"Rank {rank} goes on."


def _slow(run: Any, rank: Any = None, factor: Any = None) -> str:
    _alive(run, rank)
    factor = _factor(factor)
    run.slow(rank, factor)
    slower = f"computes {factor:g} times as long" if factor > 1 else "computes at its own speed"
    return f"Rank {rank} {slower}."


def _preempt(run: Any, rank: Any = None) -> str:
    run.preempt(_alive(run, rank))
    return f"Rank {rank} was given notice (SIGTERM)."


def _corrupt(run: Any, rank: Any = None, kind: Any = "nan") -> str:
    _alive(run, rank)
    if kind not in CORRUPTIONS:
        known = ", ".join(CORRUPTIONS)
        raise Refused(f"A minibatch is corrupt in one of these ways: {known}; not {short(kind)}.")
    run.corrupt(rank, kind)
    return f"The next minibatch of rank {rank} is corrupt ({kind})."


def _add_rank(run: Any) -> str:
    return f"Rank {run.add_rank()} is about to join."


def _remove_rank(run: Any, rank: Any = None) -> str:
    run.remove_rank(_alive(run, rank))
    return f"Rank {rank} leaves before its next iteration."


def _checkpoint(run: Any) -> str:
    try:
        return f"{run.checkpoint(timeout=CHECKPOINT_S).name} is written."
    except RunTimeout:
        return "The ranks write a checkpoint before their next iteration."


def _link(
    run: Any,
    source: Any = None,
    target: Any = None,
    latency: Any = None,
    bandwidth: Any = None,
    down: Any = None,
    both: Any = False,
    every: Any = False,
) -> str:
    if every is True:
        return _all_links(run, latency=latency, bandwidth=bandwidth)
    source, target = _rank(run, source), _rank(run, target)
    if source == target:
        raise Refused(f"A link joins two ranks, not rank {source} with itself.")
    if latency is None and bandwidth is None and down is None:
        raise Refused("Say what of the link to change: latency, bandwidth or down.")
    if not all(value is None or isinstance(value, bool) for value in (down, both)):
        raise Refused(f"down and both are true or false, not {short(down)}, {short(both)}.")
    if latency is not None:
        duration_ns(latency)  # SpecError says what is wrong with it
    if bandwidth is not None:
        bytes_per_second(bandwidth)
    run.link(source, target, latency=latency, bandwidth=bandwidth, down=down, both=bool(both))
    ends = f"{source} {'↔' if both else '→'} {target}"
    if down:
        return f"Link {ends} is cut."
    return f"Link {ends}: {_changes(latency, bandwidth) or 'mended'}."


def _changes(latency: Any, bandwidth: Any) -> str:
    changes = [f"latency {micro(str(latency))}"] * (latency is not None)
    return ", ".join(changes + [f"bandwidth {bandwidth}"] * (bandwidth is not None))


def _all_links(run: Any, **values: Any) -> str:
    """Change the links between all ranks that are left, both ways."""
    ranks = [rank for rank in run.pids if rank not in run.control_state.ended]
    if len(ranks) > MOST_LINKED:
        raise Refused(
            f"{len(ranks)} ranks have {len(ranks) * (len(ranks) - 1)} links: change them one at a "
            f"time, or begin with `network:`. All at once is for at most {MOST_LINKED} ranks."
        )
    pairs = list(combinations(ranks, 2))
    words = [_link(run, *pair, **values, both=True) for pair in pairs]
    if not words:
        raise Refused("A rank that is alone has no links.")
    return f"All {2 * len(pairs)} links: {_changes(**values)}."


_VERBS: dict[str, tuple[Callable[..., str], tuple[str, ...]]] = {
    "pause": (_pause, ()),
    "resume": (_resume, ()),
    "step": (_step, ("count", "unit")),
    "slow_motion": (_slow_motion, ("factor",)),
    "stop": (_stop, ()),
    "kill": (_kill, ("rank",)),
    "freeze": (_freeze, ("rank",)),
    "thaw": (_thaw, ("rank",)),
    "slow": (_slow, ("rank", "factor")),
    "corrupt": (_corrupt, ("rank", "kind")),
    "preempt": (_preempt, ("rank",)),
    "add_rank": (_add_rank, ()),
    "remove_rank": (_remove_rank, ("rank",)),
    "checkpoint": (_checkpoint, ()),
    "link": (_link, ("source", "target", "latency", "bandwidth", "down", "both", "every")),
}


# ---- what they may be given


def _rank(run: Any, rank: Any) -> int:
    if not isinstance(rank, int) or isinstance(rank, bool) or rank not in run.pids:
        raise Refused(
            f"There is no rank {short(rank)}: this run has ranks 0 to {len(run.pids) - 1}."
        )
    return rank


def _alive(run: Any, rank: Any) -> int:
    if words := run.control_state.ended.get(_rank(run, rank)):
        raise Refused(f"Rank {rank} is gone: {words}.")
    return int(rank)


def _factor(factor: Any) -> float:
    number = isinstance(factor, int | float) and not isinstance(factor, bool)
    if not number or not 1 <= factor <= LARGEST_FACTOR:
        raise Refused(
            f"A factor is a number from 1 (full speed) to {LARGEST_FACTOR:,.0f}, not "
            f"{short(factor)}."
        )
    return float(factor)
