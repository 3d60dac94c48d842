"""The start of training where ranks need not wait for each other later: all have joined first."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from workbench.common.errors import RunTimeout, WorkbenchError, timed_out
from workbench.recording.events import now
from workbench.shared_memory.control_block import ABORT, ABORTED, READY, Control


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
