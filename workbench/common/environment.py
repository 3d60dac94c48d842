"""The workbench's environment variables: each with its default and its meaning.

A Run is configured by its Experiment; these are for other scripts over the backend "workbench", and
for the places of files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from workbench.common.errors import SpecError


class Variable(NamedTuple):
    default: str
    meaning: str


VARIABLES = {
    "WORKBENCH_TRACE": Variable(
        "", "folder in which every rank keeps its records; left out: nothing is recorded"
    ),
    "WORKBENCH_DEFAULT": Variable(
        "0",
        "1: in programs that name no backend, or gloo, groups of the host's tensors are this "
        "one's (read when torch is imported)",
    ),
    "WORKBENCH_ATTACH": Variable(
        "",
        "set by `workbench attach`: engine (groups of the host's tensors are this backend's, under "
        "the name that the program asks for) or operations (the program's own, observed)",
    ),
    "WORKBENCH_AUDIT": Variable(
        "", "set by `workbench attach --audit`: the folder through which ranks are asked for runs"
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
    "WORKBENCH_MOVER": Variable(
        "",
        "c: messages and records by the compiled mover, and an error where it is not there; "
        "python: without it; left out: by the compiled one where it was compiled",
    ),
    "WORKBENCH_COSTS": Variable(
        "",
        "file of this machine's measured costs, by which auto goes; left out: one in the user's "
        "cache; shipped: none, those that come with the workbench",
    ),
    "WORKBENCH_HOST": Variable(
        "", "name of the host that this process takes itself to be on; left out: the real one"
    ),
    "WORKBENCH_BETWEEN_HOSTS": Variable(
        "",
        "what carries chunks between hosts: mpi, and an error where a rank has none, or gloo; left "
        "out: MPI where mpiexec has started the ranks and mpi4py is installed, else Gloo",
    ),
    "WORKBENCH_EXTENSIONS": Variable(
        "",
        "folders of your own with collectives/, strategies/, scenes/, launchers/, ... beside those "
        "that come with the workbench, with colons between them",
    ),
    "WORKBENCH_PROGRESS": Variable(
        "",
        "file in which solved exercises and guesses are kept; left out: exercises.json in the "
        "folder runs, here or in a folder above",
    ),
    "WORKBENCH_AGENT": Variable(
        "",
        "where a rank that shares no memory with its driver finds it: host:port/key; set by the "
        "launcher",
    ),
    "WORKBENCH_PARTITION": Variable(
        "", "the descriptor from which a rank below a task of Spark reads its rows; set by the task"
    ),
    "WORKBENCH_RANKS_MEMORY": Variable(
        "",
        "bytes that the ranks of a run may allocate together, each an equal share and 256 MB; set "
        "by `workbench serve`; left out: no bound",
    ),
    "WORKBENCH_BASIC_AUTH": Variable("", "as --basic-auth of `workbench serve`"),
}
"""Name -> its default and meaning. An empty default: it is not there."""

# What tells a program that it is a rank of a job.
_RANKS = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    "WORKBENCH_AUDIT",
)
_RANKS_BEGIN = ("PMI_", "PMIX_", "OMPI_COMM_WORLD_", "TORCHELASTIC_")


def without_ranks(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without what makes a process a rank of another job."""
    return {
        name: value
        for name, value in environment.items()
        if name not in _RANKS and not name.startswith(_RANKS_BEGIN)
    }


def text(name: str) -> str:
    """Return the value of an environment variable, or its default."""
    return os.environ.get(name, "") or VARIABLES[name].default


def whole(name: str, least: int, step: int = 1) -> int:
    """Return the variable as a whole number: at least ``least``, a multiple of ``step``.

    Raises SpecError.
    """
    value = text(name)
    try:
        number = int(value)
    except ValueError:
        number = least - 1
    if number < least or number % step:
        of = f", a multiple of {step}" if step > 1 else ""
        raise SpecError(
            f"{name}={value!r}: it takes a whole number from {least} up{of} "
            f"({VARIABLES[name].meaning}; left out: {VARIABLES[name].default})"
        )
    return number
