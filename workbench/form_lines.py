"""Links and faults as lines that people type into a form, and back.

    0->1: 5 ms, 100 Mbit/s            kill rank 2 at iteration 10
    1->2: down                        freeze rank 2 at iteration 10 for 1.5 s
    2->3: 5 ms, down                  slow rank 1 x4
                                      jitter 0.1 x6
    20 ms, 20 ms, 10 ms               padding of forward, input gradient, weight gradient
    4 x 2                             hosts: ranks of each, then how many
    1 ms, 1 Gbit/s; 10 ms             links between hosts, then between groups of hosts

One line each (or several, with ; between). What is printed parses to the very same. What cannot be
read is a SpecError that shows the line and how it is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import yaml

from workbench.errors import SpecError
from workbench.record import Record, short
from workbench.spec import Fault, Freeze, Jitter, Kill, Link, Pads, Slow
from workbench.units import DURATIONS

_ARROW = re.compile(r"(\d+)\s*(?:->|→)\s*(\d+)\s*:?\s*(.*)")
_RANK = r"(?:rank )?(?P<rank>\d+)"
_AT = r"at (?:iteration )?(?P<at_iteration>\d+)"
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_TIMES = rf"[x×*]\s*(?P<factor>{_NUMBER})"
_FAULTS: dict[type[Kill | Freeze | Slow | Jitter], re.Pattern[str]] = {
    Kill: re.compile(rf"kill {_RANK} {_AT}"),
    Freeze: re.compile(rf"freeze {_RANK} {_AT} for (?P<seconds>{_NUMBER})\s*s"),
    Slow: re.compile(rf"slow {_RANK} (?:by )?{_TIMES}"),
    Jitter: re.compile(rf"jitter (?P<probability>{_NUMBER})\s*{_TIMES}"),
}
_LEVELS = re.compile(r"\d+(?:\s*[x×*,]\s*\d+)*")
R = TypeVar("R", bound=Record)

LINKS_HELP = "one a line: 0->1: 5 ms, 100 Mbit/s; or 0->1: down"
FAULTS_HELP = (
    "one a line: kill rank 2 at iteration 10; freeze rank 2 at iteration 10 for 1 s; "
    "slow rank 1 x4; jitter 0.1 x6"
)
PAD_HELP = (
    "least duration of an iteration's computing, such as 20 ms; in a pipeline of each F, I and W "
    "of a microbatch, or three that differ: 20 ms, 20 ms, 10 ms"
)

LEVELS_HELP = (
    "ranks of a host x hosts: 4 x 2 is two hosts of four; groups of hosts follow: 2 x 2 x 2"
)
BETWEEN_HELP = (
    "latency, bandwidth: 1 ms, 100 Mbit/s; with groups of hosts one for each level, with ; between"
)


def print_links(links: Mapping[tuple[int, int], Link]) -> str:
    return "\n".join(f"{a}->{b}: {_print_link(link)}" for (a, b), link in links.items())


def _print_link(link: Link) -> str:
    words = [link.latency, link.bandwidth, "down" if link.down else None]
    return ", ".join(word for word in words if word) or "as the others"


def parse_links(text: str) -> dict[tuple[int, int], Link]:
    """Raises SpecError; a direction that is named twice is one."""
    links: dict[tuple[int, int], Link] = {}
    for line in _lines(text):
        found = _ARROW.fullmatch(line)
        if not found:
            raise SpecError(f"{short(line)} is no link. Write {LINKS_HELP}")
        pair = (int(found[1]), int(found[2]))
        if pair in links:
            raise SpecError(f"{short(line)}: link {pair[0]}->{pair[1]} has a line before this one")
        links[pair] = _made(line, Link, _link_values(line, found[3]))
    return links


def _made(line: str, record: type[R], values: dict[str, Any]) -> R:
    """The record of these values. What is wrong with one is said of the line that it stands in."""
    try:
        return record(**values)
    except SpecError as error:
        words = re.sub(rf"{record.__name__}\.\w+ = \S+: ", "", str(error))
        raise SpecError(f"{short(line)}: {words}") from None


def _link_values(line: str, words: str, help_: str = LINKS_HELP) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for word in filter(None, (part.strip() for part in words.split(","))):
        if word == "as the others":
            continue
        name = "down" if word == "down" else _quantity(word)
        if name is None or name in values:
            why = "is said twice" if name else "is neither a latency nor a bandwidth"
            where = f"{short(line)}: " if line != word else ""
            raise SpecError(f"{where}{word!r} {why}. Write {help_}")
        values[name] = True if name == "down" else word
    return values


def _quantity(word: str) -> str | None:
    """What a quantity is, by its unit."""
    unit = word.lstrip("0123456789_.eE+- ")
    if unit in ("", "µs", "μs", "sec") or unit in DURATIONS:
        return "latency"
    return "bandwidth" if word == "unlimited" or unit.endswith(("/s", "bps")) else None


def print_levels(levels: Iterable[int]) -> str:
    return " x ".join(map(str, levels))


def parse_levels(text: str) -> tuple[int, ...]:
    if text.strip() and not _LEVELS.fullmatch(text.strip()):
        raise SpecError(f"{short(text)} are no hosts. Write {LEVELS_HELP}")
    levels = tuple(map(int, re.findall(r"\d+", text)))
    if 0 in levels:
        raise SpecError(f"{short(text)}: every number is 1 or more. Write {LEVELS_HELP}")
    return levels


def print_between(between: Link | tuple[Link, ...] | None) -> str:
    links = () if between is None else (between,) if isinstance(between, Link) else between
    return "; ".join(map(_print_link, links))


def parse_between(text: str) -> Link | tuple[Link, ...] | None:
    """A link for each line; of one alone, that one."""
    links = tuple(
        _made(line, Link, _link_values(line, line, BETWEEN_HELP)) for line in _lines(text)
    )
    return links if len(links) > 1 else links[0] if links else None


def print_faults(faults: Iterable[Fault]) -> str:
    return "\n".join(map(_print_fault, faults))


def _print_fault(fault: Fault) -> str:
    match fault:
        case Kill(rank=rank, at_iteration=at):
            return f"kill rank {rank} at iteration {at}"
        case Freeze(rank=rank, at_iteration=at, seconds=seconds):
            return f"freeze rank {rank} at iteration {at} for {_plain(seconds)} s"
        case Slow(rank=rank, factor=factor):
            return f"slow rank {rank} x{_plain(factor)}"
        case Jitter(probability=probability, factor=factor):
            return f"jitter {_plain(probability)} x{_plain(factor)}"


def parse_faults(text: str) -> tuple[Fault, ...]:
    return tuple(_parse_fault(line) for line in _lines(text))


def _parse_fault(line: str) -> Fault:
    words = " ".join(line.split())
    for record, pattern in _FAULTS.items():
        if found := pattern.fullmatch(words):
            told = {name: _number(text) for name, text in found.groupdict().items()}
            return _made(line, record, told)
    raise SpecError(f"{short(line)} is no fault. Write {FAULTS_HELP}")


def print_pad(pad: str | Pads | None) -> str | None:
    """A duration as it is; Pads as three of them: "20 ms, 20 ms, 10 ms"."""
    if isinstance(pad, Pads):
        return f"{pad.forward}, {pad.input_gradient}, {pad.weight_gradient}"
    return pad


def parse_pad(text: str) -> str | Pads | None:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) == 1:
        return text.strip() or None
    if len(parts) != len(Pads.model_fields):
        raise SpecError(
            f"{short(text)} is no padding. Write one duration, or three with commas between (of "
            "forward, input gradient and weight gradient): 20 ms, 20 ms, 10 ms"
        )
    return _made(text, Pads, dict(zip(Pads.model_fields, parts, strict=True)))


def print_options(options: Mapping[str, Any]) -> str:
    """``name: value`` a line, values as YAML writes them on one line."""
    if not options:
        return ""
    return "\n".join(f"{name}: {_flow(value)}" for name, value in options.items())


def _flow(value: Any) -> str:
    text: str = yaml.safe_dump(
        value, default_flow_style=True, width=2**30, allow_unicode=True, sort_keys=False
    )
    return text.removesuffix("\n").removesuffix("\n...")


def parse_options(text: str) -> dict[str, Any]:
    try:
        found = yaml.safe_load(text) if text.strip() else {}
    except (yaml.YAMLError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise SpecError(f"{short(text)} are no options. Write one a line, as name: value")
    return {str(name): value for name, value in found.items()}


def _plain(number: float) -> str:
    """The shortest text that is this very number: 4 for 4.0."""
    text = repr(float(number))
    return text.removesuffix(".0")


def _number(text: str) -> int | float:
    return int(text) if text.isdigit() else float(text)


def _lines(text: str) -> Iterator[str]:
    for line in re.split(r"[\n;]", text):
        if line := line.strip():
            yield line
