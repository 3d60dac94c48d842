"""Boundaries that ranks agree on: iterations before which all stop, regroup, or write a checkpoint.

One rank turns a wish of the driver's into a number, before it takes part in an iteration that
cannot end without it; the others read that number when they come to the next one. Ranks of one
control block have it by then. Where words travel (launchers/processes/relay.py) it may come later
than the data of that iteration, so the rank first waits until all have heard of it.
"""

from __future__ import annotations

import time
from typing import Protocol

from workbench.experiment.spec import Experiment
from workbench.experiment.team import Team
from workbench.process_group.session import Session
from workbench.recording.events import now
from workbench.shared_memory.agreed_iterations import GONE, agreed_iterations
from workbench.shared_memory.control_block import ABORT, AGREED, Control

_PAUSE = 1e-3  # seconds between two looks


class Agreeing(Protocol):
    """The interface of the job of a rank that names a boundary."""

    exp: Experiment
    team: Team
    run_rank: int
    control: Control
    session: Session


def agree(job: Agreeing, word: int, iteration: int) -> None:
    """Name the boundary of a word: the first iteration that no rank can have begun.

    It waits for at most the run's ``timeout``, after which others time out in this iteration.
    Raises WorkbenchError where a rank is lost meanwhile.
    """
    control = job.control
    control.words[word] = iteration
    if not control.rank_word(job.run_rank, AGREED):
        return  # all share one control block
    others = [rank for rank in job.team.members if rank != job.run_rank]
    deadline = now() + job.exp.timeout_ns
    while now() < deadline and not control.words[ABORT]:
        heard = {control.rank_word(rank, AGREED) for rank in others}
        if heard <= {agreed_iterations(control.words), GONE}:
            return
        job.session.look()
        time.sleep(_PAUSE)
