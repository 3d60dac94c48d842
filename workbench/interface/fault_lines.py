"""Faults as lines that people type into a form, and back.

    kill rank 2 after 10 iterations           cut 0->1 after 2 s for 0.5 s
    preempt rank 1 after 1.5 s                partition ranks 0, 1 after 10 iterations for 0.5 s
    freeze rank 2 after 10 iterations for 1 s slow rank 1 x4
    jitter 0.1 x6                             corrupt rank 1 in iteration 11: nan
    fail to start rank 2                      join rank 2 after 10 iterations
    source down after 10 iterations for 2 s, slow for 3 before

A moment is "after 10 iterations", which is as much as "in iteration 11": they count from 1, as all
of a page does, and ``at_iteration`` is the number of those done. Or "after 2 s" since all ranks
train, or "when rank 2 is in step 3 of all_reduce", which may say "after 10 iterations" too; steps
count from 1. Without a moment a slow rank is so from the start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from workbench.common.errors import SpecError, short
from workbench.common.units import counted
from workbench.experiment.faults import (
    Corrupt,
    Cut,
    FailToStart,
    Fault,
    Freeze,
    Jitter,
    Join,
    Kill,
    Moment,
    NetworkPartition,
    Preempt,
    Slow,
    SourceDown,
    When,
)

_RANK = r"(?:rank )?(?P<rank>\d+)"
_AT = r"(?:after (?P<at_iteration>\d+) iterations?|in iteration (?P<in_iteration>[1-9]\d*))"
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_TIMES = rf"[x×*]\s*(?P<factor>{_NUMBER})"
_EVENT = (
    r"when rank (?P<when_rank>\d+) is in step (?P<when_step>[1-9]\d*) of (?P<when_collective>\w+)"
    r"(?: after (?P<when_from>\d+) iterations?)?"
)
_MOMENT = rf"(?:{_AT}|after (?P<after>{_NUMBER}\s*[a-zµμ]+)|{_EVENT})"
_FOR = rf"for (?P<seconds>{_NUMBER})\s*s"
_FAULTS: dict[type[Any], re.Pattern[str]] = {
    Kill: re.compile(rf"kill {_RANK} {_MOMENT}"),
    FailToStart: re.compile(rf"fail to start {_RANK}"),
    Join: re.compile(rf"join {_RANK} {_MOMENT}"),
    Preempt: re.compile(rf"preempt {_RANK} {_MOMENT}"),
    Freeze: re.compile(rf"freeze {_RANK} {_MOMENT} {_FOR}"),
    Slow: re.compile(rf"slow {_RANK} (?:by )?{_TIMES}(?: {_MOMENT})?(?: {_FOR})?"),
    Jitter: re.compile(rf"jitter (?P<probability>{_NUMBER})\s*{_TIMES}"),
    Corrupt: re.compile(rf"corrupt {_RANK} {_AT}(?:: (?P<kind>[a-z]+))?"),
    Cut: re.compile(rf"cut (?P<source>\d+)\s*(?:->|→)\s*(?P<target>\d+) {_MOMENT}(?: {_FOR})?"),
    SourceDown: re.compile(
        rf"source down {_AT} {_FOR}(?:, slow for (?P<slow_iterations>\d+) before)?"
    ),
    NetworkPartition: re.compile(
        rf"partition (?:ranks? )?(?P<ranks>\d+(?:\s*,\s*\d+)*) {_MOMENT}(?: {_FOR})?"
    ),
}
_TEXTS = ("kind", "after", "when_collective")

FAULTS_HELP = (
    "one per line: kill rank 2 after 10 iterations; freeze rank 2 after 10 iterations for 1 s; "
    "slow rank 1 x4; jitter 0.1 x6; corrupt rank 1 in iteration 11: nan (raises, shape, bitflip); "
    "cut 0->1 after 2 s for 0.5 s; partition ranks 0, 1 after 10 iterations for 1 s; preempt "
    "rank 1 when rank 2 is in step 3 of all_reduce; fail to start rank 2; join rank 2 after 10 "
    "iterations; source down after 10 iterations for 2 s, slow for 3 before"
)

FAULT_PHRASES = (  # a line of each kind, to begin with
    "slow rank 1 x4",
    "slow rank 1 x4 after 10 iterations for 2 s",
    "freeze rank 1 after 10 iterations for 1 s",
    "kill rank 1 after 10 iterations",
    "preempt rank 1 after 10 iterations",
    "jitter 0.1 x6",
    "corrupt rank 1 in iteration 11: nan",
    "cut 0->1 after 2 s for 0.5 s",
    "partition ranks 0, 1 after 10 iterations for 1 s",
    "fail to start rank 1",
    "join rank 1 after 10 iterations",
    "source down after 10 iterations for 2 s, slow for 3 before",
)


def print_faults(faults: Iterable[Fault]) -> str:
    return "\n".join(map(_print_fault, faults))


def _print_fault(fault: Fault) -> str:
    match fault:
        case Jitter(probability=probability, factor=factor):
            return f"jitter {_plain(probability)} x{_plain(factor)}"
        case Corrupt(rank=rank, at_iteration=at, kind=kind):
            return f"corrupt rank {rank} in iteration {at + 1}: {kind}"
        case SourceDown(at_iteration=at, seconds=down, slow_iterations=slow):
            words = f"source down after {counted(at, 'iteration')} for {_plain(down)} s"
            return f"{words}, slow for {slow} before"
        case Slow(rank=rank, factor=factor):
            words = f"slow rank {rank} x{_plain(factor)}"
        case FailToStart(rank=rank):
            return f"fail to start rank {rank}"
        case Cut(source=source, target=target):
            words = f"cut {source}->{target}"
        case NetworkPartition(ranks=ranks):
            words = f"partition ranks {', '.join(map(str, ranks))}"
        case _:
            words = f"{fault.fault} rank {fault.rank}"
    lasts = getattr(fault, "seconds", None)
    return words + _print_moment(fault) + ("" if lasts is None else f" for {_plain(lasts)} s")


def _print_moment(fault: Moment) -> str:
    if fault.at_iteration is not None:
        return f" after {counted(fault.at_iteration, 'iteration')}"
    if fault.after is not None:
        return f" after {fault.after}"
    if (event := fault.when) is None:
        return ""
    since = f" after {counted(event.from_iteration, 'iteration')}" if event.from_iteration else ""
    return f" when rank {event.rank} is in step {event.step + 1} of {event.collective}{since}"


def parse_fault(line: str) -> tuple[type[Any], dict[str, Any]]:
    """Return the record of a line and its fields. Raises SpecError if it is not a fault."""
    words = " ".join(line.split())
    for record, pattern in _FAULTS.items():
        if match := pattern.fullmatch(words):
            texts = {name: text for name, text in match.groupdict().items() if text is not None}
            return record, _fields(texts)
    raise SpecError(f"{short(line)} is not a fault. Write {FAULTS_HELP}")


def _fields(texts: dict[str, str]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for name, text in texts.items():
        if name == "ranks":
            facts[name] = tuple(int(one) for one in text.split(","))
        else:
            facts[name] = text if name in _TEXTS else _number(text)
    if "in_iteration" in facts:
        facts["at_iteration"] = facts.pop("in_iteration") - 1
    if "when_rank" in facts:
        event = {name: facts.pop(f"when_{name}") for name in ("rank", "step", "collective")}
        event["step"] -= 1
        facts["when"] = When(**event, from_iteration=facts.pop("when_from", 0))
    return facts


def _plain(number: float) -> str:
    """Return the shortest text that is this very number: 4 for 4.0."""
    return repr(float(number)).removesuffix(".0")


def _number(text: str) -> int | float:
    return int(text) if text.isdigit() else float(text)
