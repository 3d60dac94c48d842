"""The boundary between two iterations: there ranks leave that were told to go, and new ones join.

Preemption is SIGTERM. Clouds and batch systems send that signal some time before they take a
machine away. Where the others can form a group without it, all of them leave theirs at the same
boundary, the rank among them: no iteration is given up for it, and nothing is computed twice.
Elsewhere it ends at its own next boundary. What it has trained by then is in the others' hands too,
or in a checkpoint.
"""

from __future__ import annotations

import os
import signal
from typing import Any, NoReturn, Protocol

from workbench.common.errors import WorkbenchError
from workbench.experiment.elastic_checks import is_elastic
from workbench.experiment.spec import Experiment
from workbench.experiment.team import Team
from workbench.process_group.session import Session
from workbench.rank.boundaries import agree
from workbench.recording.events import CODE
from workbench.recording.recorder import Recorder
from workbench.shared_memory.control_block import LEAVES, OUTDATED, REGROUP, REGROUP_ASKED, Control

_noticed = False


def listen() -> None:
    """Take SIGTERM as a notice from now on, in this process's main thread."""

    def note(*_: Any) -> None:
        global _noticed
        _noticed = True

    signal.signal(signal.SIGTERM, note)


class AtBoundary(Protocol):
    """The interface of a rank's job that is about to begin an iteration."""

    exp: Experiment
    team: Team
    rank: int
    run_rank: int
    lead: int  # iterations that another rank may be ahead of rank 0
    served: bool  # servers say where it stops or leaves: what is on its way to them is not in yet
    completed: int  # iterations of which all have, or can have, the same outcome
    control: Control
    recorder: Recorder
    session: Session


def go(recorder: Recorder, by_notice: bool) -> NoReturn:
    """End this process, in good order. ``by_notice``: it was told to leave; else the others
    go on without it.
    """
    if by_notice:
        recorder.mark(CODE["fault"], "preempted")
    os._exit(0)


def leave_if_told(job: AtBoundary, iteration: int) -> None:
    """Leave the group where a rank was told to go, or one more waits to join. In a run whose ranks
    do not come and go, end this process if it was told to.

    All ranks leave before the same iteration: a boundary (boundaries.py), which rank 0 names.
    """
    if _noticed and not job.control.rank_word(job.run_rank, LEAVES):
        if len(job.team.members) < 2 or not is_elastic(job.exp):
            go(job.recorder, by_notice=True)
        job.control.set_rank(job.run_rank, LEAVES, 1)
    words = job.control.words
    if job.rank == 0 and words[REGROUP] == REGROUP_ASKED:
        agree(job, REGROUP, iteration + 1 + job.lead)
    if 0 < words[REGROUP] <= iteration == job.completed and not job.served:
        raise WorkbenchError(OUTDATED, how="aborted")
