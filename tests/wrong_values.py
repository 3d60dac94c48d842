"""Values that are wrong for most arguments, and the kinds of argument for which some are right."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

WRONG: dict[str, Callable[[], Any]] = {  # made again for each call: a generator is read once
    "None": lambda: None,
    "''": lambda: "",
    "'x'": lambda: "x",
    "-1": lambda: -1,
    "0": lambda: 0,
    "2.5": lambda: 2.5,
    "nan": lambda: math.nan,
    "inf": lambda: math.inf,
    "10**18": lambda: 10**18,
    "[]": lambda: [],
    "{}": lambda: {},
    "object()": object,
    "b'x'": lambda: b"x",
    "a lambda": lambda: lambda *args: 1 / 0,
    "a class": lambda: dict,
    "no such path": lambda: Path("/nowhere/at/all"),
    "a set": lambda: {"a"},
    "True": lambda: True,
    "[[1]]": lambda: [[1]],
    "a tensor": lambda: torch.ones(3),
    "a generator": lambda: (object() for _ in range(3)),
}
KINDS: dict[str, set[str]] = {  # which of these values are right
    "nothing": set(),
    "text": {"''", "'x'"},
    "flag": {"True", "0"},
    "moments": {"[]"},
    "number": {"0", "10**18"},
    "count": set(),
    "rank": {"0"},
    "real": {"-1", "0", "2.5", "10**18"},
    "factor": {"2.5"},
    "share": {"0"},
    "reals": {"[]", "a tensor"},
    "seconds": {"-1", "0", "2.5", "inf", "10**18"},
    "duration": {"0"},
    "size": {"0"},
    "bytes": {"0", "10**18"},
    "seed": {"0", "10**18"},
    "path": {"'x'", "no such path"},
    "function": {"a lambda", "a class"},
    "names": {"[]", "a set"},
    "pasts": {"[]"},
    "job": {"-1", "0"},
    "samplers": {"[[1]]"},
    "cuts": {"[]"},
    "yaml": {"no such path"},
    "strategy": {"a lambda"},  # its parameters decide
    "schedule": {"a lambda"},  # the user's own function: what it raises is the user's
    "mapping": {"{}"},
    "elements": {"0"},
    "facts": {"{}"},
}


def kind(name: str) -> set[str]:
    """Return which values are right: "count?" is a count or None."""
    return KINDS[name.removesuffix("?")] | ({"None"} if name.endswith("?") else set())
