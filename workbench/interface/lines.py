"""Links, and other fields, as lines that people type into a form, and back; faults stand in
fault_lines.py.

    0->1: 5 ms, 100 Mbit/s
    1->2: down
    2->3: 5 ms, down
    20 ms, 20 ms, 10 ms               padding of forward, input gradient, weight gradient
    4 x 2                             hosts: ranks of each, then how many
    1 ms, 1 Gbit/s; 10 ms             links between hosts, then between groups of hosts
    100 GbE, RDMA; 10 GbE             the same of links with real names

One line each (or several, with ; between). What is printed parses to the very same. What cannot be
read is a SpecError that shows the line and how it is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import yaml

from workbench.common.errors import SpecError, short
from workbench.common.units import DURATIONS
from workbench.experiment.checkpoint import Checkpoint
from workbench.experiment.frozen_model import FrozenModel
from workbench.experiment.named_links import NAMED
from workbench.experiment.spec import Fault, Link, Pads
from workbench.experiment.yaml_text import OF_A_VISITOR, parse
from workbench.interface.fault_lines import FAULTS_HELP, parse_fault, print_faults

_ARROW = re.compile(r"(\d+)\s*(?:->|→)\s*(\d+)\s*:?\s*(.*)")
_LEVELS = re.compile(r"\d+(?:\s*[x×*,]\s*\d+)*")
R = TypeVar("R", bound=FrozenModel)
NAMES: dict[tuple[str | None, str | None], str] = {link: name for name, link in NAMED.items()}

__all__ = ["FAULTS_HELP", "print_faults"]
LINKS_HELP = "one per line: 0->1: 5 ms, 100 Mbit/s; or a real link, 0->1: 1 GbE; or 0->1: down"
LINK_PHRASES = (
    "0->1: 20 ms",
    "0->1: 100 Mbit/s",
    "0->1: 5 ms, 100 Mbit/s",
    "0->1: down",
    *(f"0->1: {name}" for name in NAMED),
)
PAD_HELP = (
    "least duration of an iteration's computing, such as 20 ms; in a pipeline of each F, I and W "
    "of a microbatch, or three that differ: 20 ms, 20 ms, 10 ms"
)

LEVELS_HELP = (
    "ranks of a host x hosts: 4 x 2 is two hosts of four; groups of hosts follow: 2 x 2 x 2"
)
BETWEEN_HELP = (
    "latency, bandwidth: 1 ms, 100 Mbit/s, or a real link: 10 GbE; with groups of hosts one for "
    "each level, with ; between"
)


def print_links(links: Mapping[tuple[int, int], Link]) -> str:
    return "\n".join(f"{a}->{b}: {_print_link(link)}" for (a, b), link in links.items())


def _print_link(link: Link) -> str:
    if (name := NAMES.get((link.latency, link.bandwidth))) and not link.down:
        return name
    words = [link.latency, link.bandwidth, "down" if link.down else None]
    return ", ".join(word for word in words if word) or "as the others"


def parse_links(text: str) -> dict[tuple[int, int], Link]:
    """Parse links, one per line. Raises SpecError, also where a direction is named twice."""
    links: dict[tuple[int, int], Link] = {}
    for line in _lines(text):
        match = _ARROW.fullmatch(line)
        if not match:
            raise SpecError(f"{short(line)} is not a link. Write {LINKS_HELP}")
        pair = (int(match[1]), int(match[2]))
        if pair in links:
            raise SpecError(f"{short(line)}: link {pair[0]}->{pair[1]} has a line before this one")
        links[pair] = _model_of(line, Link, _link_values(line, match[3]))
    return links


def _model_of(line: str, record: type[R], values: dict[str, Any]) -> R:
    """Return the model of these values. Raises SpecError, which names the line's fault."""
    try:
        return record(**values)
    except SpecError as error:
        words = "; ".join(one.message for one in error.problems)
        raise SpecError(f"{short(line)}: {words}") from None


def _link_values(line: str, words: str, help_: str = LINKS_HELP) -> dict[str, Any]:
    if words.strip() in NAMED:
        return dict(zip(("latency", "bandwidth"), NAMED[words.strip()], strict=True))
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
    """Return what a quantity is, by its unit."""
    unit = word.lstrip("0123456789_.eE+- ")
    if unit in ("", "µs", "μs", "sec") or unit in DURATIONS:
        return "latency"
    return "bandwidth" if word == "unlimited" or unit.endswith(("/s", "bps")) else None


def print_levels(levels: Iterable[int]) -> str:
    return " x ".join(map(str, levels))


def parse_levels(text: str) -> tuple[int, ...]:
    if text.strip() and not _LEVELS.fullmatch(text.strip()):
        raise SpecError(f"{short(text)} does not name hosts. Write {LEVELS_HELP}")
    levels = tuple(map(int, re.findall(r"\d+", text)))
    if 0 in levels:
        raise SpecError(f"{short(text)}: every number is 1 or more. Write {LEVELS_HELP}")
    return levels


def print_between(between: Link | tuple[Link, ...] | None) -> str:
    links = () if between is None else (between,) if isinstance(between, Link) else between
    return "; ".join(map(_print_link, links))


def parse_between(text: str) -> Link | tuple[Link, ...] | None:
    """Parse a link per line; a single link stands for all."""
    links = tuple(
        _model_of(line, Link, _link_values(line, line, BETWEEN_HELP)) for line in _lines(text)
    )
    return links if len(links) > 1 else links[0] if links else None


def parse_faults(text: str) -> tuple[Fault, ...]:
    """Parse faults, one per line. Raises SpecError."""
    return tuple(_model_of(line, *parse_fault(line)) for line in _lines(text))


CHECKPOINT_HELP = (
    "one per line: folder: a path, every: iterations, keep: how many, background: true"
)


def print_checkpoint(checkpoint: Checkpoint | None) -> str:
    """Print the fields that were given, one per line: "folder: runs/a"."""
    if checkpoint is None:
        return ""
    names = checkpoint.model_fields_set
    return print_options({k: v for k, v in checkpoint.model_dump().items() if k in names})


def parse_checkpoint(text: str) -> Checkpoint | None:
    fields = parse_options(text)
    return Checkpoint(**fields) if fields else None


def print_pad(pad: str | Pads | None) -> str | None:
    """Print a duration as it is, and Pads as three of them: "20 ms, 20 ms, 10 ms"."""
    if isinstance(pad, Pads):
        return f"{pad.forward}, {pad.input_gradient}, {pad.weight_gradient}"
    return pad


def parse_pad(text: str) -> str | Pads | None:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) == 1:
        return text.strip() or None
    if len(parts) != len(Pads.model_fields):
        raise SpecError(
            f"{short(text)} is not a padding. Write one duration, or three with commas between (of "
            "forward, input gradient and weight gradient): 20 ms, 20 ms, 10 ms"
        )
    return _model_of(text, Pads, dict(zip(Pads.model_fields, parts, strict=True)))


def print_options(options: Mapping[str, Any]) -> str:
    """Print ``name: value``, one per line, values as YAML writes them on one line."""
    if not options:
        return ""
    return "\n".join(f"{name}: {_flow(value)}" for name, value in options.items())


def _flow(value: Any) -> str:
    text: str = yaml.safe_dump(
        value, default_flow_style=True, width=2**30, allow_unicode=True, sort_keys=False
    )
    return text.removesuffix("\n").removesuffix("\n...")


def parse_options(text: str) -> dict[str, Any]:
    why = ""
    try:
        result = parse(text, OF_A_VISITOR) if text.strip() else {}
    except SpecError as error:
        result, why = None, f" ({error})"
    if not isinstance(result, dict):
        raise SpecError(f"{short(text)} has no options{why}. Write one per line, as name: value")
    return {str(name): value for name, value in result.items()}


def _lines(text: str) -> Iterator[str]:
    for line in re.split(r"[\n;]", text):
        if line := line.strip():
            yield line
