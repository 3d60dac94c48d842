"""The start of training where ranks need not wait for each other later: all have joined first; and
its end where each may be needed to the last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import torch.distributed as dist

from workbench.common.errors import RunTimeout, WorkbenchError, timed_out
from workbench.experiment.team import Team
from workbench.recording.events import now
from workbench.shared_memory.control_block import ABORT, ABORTED, DONE, READY, STATE, Control


class Ending(Protocol):
    """The interface of a rank's job that has finished."""

    team: Team
    control: Control


def meet_at_end(job: Ending, group: dist.ProcessGroup) -> None:
    """Wait until all have finished. Where a rank is done, all have: another one that is lost then,
    before its message is here, is not waited for.
    """
    try:
        dist.barrier(group=group)
    except WorkbenchError:
        if not any(job.control.rank_word(rank, STATE) == DONE for rank in job.team.members):
            raise


def wait_until_ready(
    control: Control, me: int, ranks: Sequence[int], timeout_ns: int, look: Callable[[], None]
) -> None:
    """Wait until all of ``ranks`` have joined their groups. ``look`` raises what makes waiting
    useless.

    Raises RunTimeout, which names the missing ranks.
    """
    waited, last = 0, now()
    while missing := [rank for rank in ranks if not control.rank_word(rank, READY)]:
        if control.words[ABORT]:
            raise WorkbenchError(ABORTED, how="aborted")
        look()
        time.sleep(1e-3)
        last, before = now(), last
        if not control.clocks_stand():
            waited += min(last - before, 200_000_000)  # a rank that was itself stopped
        if waited > timeout_ns:
            raise RunTimeout(
                f"rank {me} is ready to train, ranks {missing} have not joined their groups after "
                f"{waited / 1e9:.1f} s. {timed_out(timeout_ns / 1e9)}",
                missing[0],
                peer=me,
                how="silent",
                found_by=me,
            )
