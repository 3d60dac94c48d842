"""What a user does to the ranks from a page: ``obey`` a message, answer in words.

    {type: "do", id, verb, args}  ->  {type: "said", id, ok, words}

A page's message is checked here and nowhere else: a bad one is answered in words and does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from workbench.control import UNITS
from workbench.errors import SpecError
from workbench.record import short
from workbench.units import bytes_per_second, duration_ns

MOST_STEPS = 100  # at a time
LARGEST_FACTOR = 1e6


class Refused(Exception):
    """Why a message does nothing, in words."""


def obey(run: Any, message: Mapping[str, Any], readonly: bool = False) -> dict[str, Any]:
    """Do what the message asks of ``run``; what to answer. ``readonly``: refuse, in words."""
    verb = message.get("verb")
    try:
        action, names = _find(verb)
        args = _arguments(verb, message.get("args") or {}, names)
        _allowed(run, verb, readonly)
        words = action(run, **args)
    except (Refused, SpecError) as error:
        return said(message, False, str(error))
    except Exception as error:  # the thread that this is called in serves other pages too
        return said(message, False, f"That failed: {type(error).__name__}: {error}")
    return said(message, True, words)


def said(message: Mapping[str, Any], ok: bool, words: str) -> dict[str, Any]:
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
        given = ", ".join(short(name).strip("'") for name in unknown[:4])
        raise Refused(f"{verb} does not take {given}; it takes {takes}.")
    return dict(args)


def _allowed(run: Any, verb: Any, readonly: bool) -> None:
    if readonly:
        raise Refused("This page only watches: the ranks are not its to change.")
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


def _link(
    run: Any, source: Any = None, target: Any = None, latency: Any = None, bandwidth: Any = None,
    down: Any = None, both: Any = False,
) -> str:  # fmt: skip
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
    told = [f"latency {latency}"] * (latency is not None)
    told += [f"bandwidth {bandwidth}"] * (bandwidth is not None)
    return f"Link {ends}: {', '.join(told) or 'mended'}."


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
    "link": (_link, ("source", "target", "latency", "bandwidth", "down", "both")),
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
