"""The border between two iterations: there ranks leave that were told to go, and new ones join.

Preemption is SIGTERM. Clouds and batch systems send that signal some time before they take a
machine away. What the rank has trained by then is in the others' hands too, so that nothing is
lost.
"""

from __future__ import annotations

import os
import signal
from typing import Any, Protocol

from workbench.common.errors import WorkbenchError
from workbench.recording.events import CODE
from workbench.recording.recorder import Recorder
from workbench.shared_memory.control_block import OUTDATED, REGROUP, REGROUP_ASKED, Control

_noticed = False


def listen() -> None:
    """Take SIGTERM as a notice from now on, in this process's main thread."""

    def note(*_: Any) -> None:
        global _noticed
        _noticed = True

    signal.signal(signal.SIGTERM, note)


class AtBorder(Protocol):
    """The interface of a rank's job that is about to begin an iteration."""

    rank: int
    lead: int  # iterations that another rank may be ahead of rank 0
    completed: int  # iterations of which all have, or can have, the same outcome
    control: Control
    recorder: Recorder


def leave_if_told(job: AtBorder, iteration: int) -> None:
    """End this process, in good order, if it was told to go. Leave the group, as all do before the
    same iteration, where one more rank waits to join.

    All agree on it as on the end of a run that is stopped (stopping.py).
    """
    if _noticed:
        job.recorder.mark(CODE["fault"], "preempted")
        os._exit(0)
    words = job.control.words
    if job.rank == 0 and words[REGROUP] == REGROUP_ASKED:
        words[REGROUP] = iteration + 1 + job.lead
    if 0 < words[REGROUP] <= iteration and job.completed == iteration:
        raise WorkbenchError(OUTDATED, how="aborted")
