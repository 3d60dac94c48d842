"""What the environment says to the workbench: every variable, its default, its meaning.

A Run is told by its Experiment; these are for scripts of anybody's, over the backend "workbench",
and for where things are kept.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from workbench.errors import SpecError


class Variable(NamedTuple):
    default: str
    meaning: str


VARIABLES = {
    "WORKBENCH_TRACE": Variable(
        "", "folder in which every rank keeps its records; left out: nothing is recorded"
    ),
    "WORKBENCH_ALL_REDUCE": Variable("auto", "algorithm: ring, tree, one_shot, ... or auto"),
    "WORKBENCH_ALGORITHMS": Variable(
        "",
        "of other operations, as in broadcast=flat,all_gather=ring; left out: what the "
        "all-reduce's is called, if there is one of that name; else auto",
    ),
    "WORKBENCH_CHUNK": Variable(str(1 << 19), "bytes of a slot, a multiple of 64"),
    "WORKBENCH_VERIFY": Variable("0", "1: a checksum with every slot"),
    "WORKBENCH_SPIN_US": Variable(
        "200", "microseconds that a wait stays awake where every rank has a core of its own"
    ),
    "WORKBENCH_COSTS": Variable(
        "",
        "file of this machine's measured costs, by which auto goes; left out: one in the user's "
        "cache; shipped: none, those that come with the workbench",
    ),
    "WORKBENCH_HOST": Variable(
        "", "name of the host that this process takes itself to be on; left out: the real one"
    ),
    "WORKBENCH_BASIC_AUTH": Variable("", "as --basic-auth of `workbench serve`"),
}
"""Name -> its default and meaning. An empty default: it is not there."""


def text(name: str) -> str:
    """What the environment says of a variable, or its default."""
    return os.environ.get(name, "") or VARIABLES[name].default


def whole(name: str, least: int, step: int = 1) -> int:
    """The same as a whole number: ``least`` or more, a multiple of ``step``. Raises SpecError."""
    given = text(name)
    try:
        number = int(given)
    except ValueError:
        number = least - 1
    if number < least or number % step:
        of = f", a multiple of {step}" if step > 1 else ""
        raise SpecError(
            f"{name}={given!r}: it takes a whole number from {least} up{of} "
            f"({VARIABLES[name].meaning}; left out: {VARIABLES[name].default})"
        )
    return number
