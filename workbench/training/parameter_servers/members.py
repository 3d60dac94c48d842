"""Servers and workers of a generation: those that live, which keys they have, and their end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from workbench.common.errors import WorkbenchError
from workbench.shared_memory.control_block import ABORT, ABORTED, DONE, STATE
from workbench.training.parameter_servers.placement import place_living

if TYPE_CHECKING:
    from workbench.rank.job import Job
    from workbench.training.parameter_servers.options import Options

_PAUSE = 1e-3  # seconds between two looks at whether the run is over


def serving(job: Job, config: Options) -> list[int]:
    """Return the servers of a generation, as ranks in the run."""
    return [rank for rank in job.team.members if rank < config.servers]


def owned_ranges(elements: int, job: Job, config: Options) -> list[list[range]]:
    """Return the ranges that each server of the generation holds."""
    return place_living(elements, config.servers, config.placement, serving(job, config))


def wait_for_end(job: Job, server: int) -> None:
    """Wait until a server (its rank in the run) has all that was trained: until then each rank may
    be needed once more. That server has deadlines of its own.
    """
    while job.control.rank_word(server, STATE) != DONE:
        if job.control.words[ABORT]:
            raise WorkbenchError(ABORTED, how="aborted")
        job.session.look()
        time.sleep(_PAUSE)
