"""Faults that an experiment asks for: they strike as a rank begins an iteration."""

from __future__ import annotations

import os
import signal

import numpy as np

from workbench.control import THAW_AT, Control
from workbench.events import CODE, Recorder, now
from workbench.spec import Experiment, Freeze, Jitter, Kill


def jitter(exp: Experiment, rank: int, iteration: int) -> float:
    """How many times as long a rank computes in an iteration, by chance: drawn from the seed."""
    factor = 1.0
    for number, fault in enumerate(exp.faults):
        if isinstance(fault, Jitter):
            draw = np.random.default_rng([exp.seed, number, rank, iteration]).random()
            factor *= fault.factor if draw < fault.probability else 1.0
    return factor


def strike(
    exp: Experiment, rank: int, iteration: int, recorder: Recorder, control: Control
) -> None:
    """Kill or freeze this process, where that is asked of this rank at this iteration."""
    for fault in exp.faults:
        if not isinstance(fault, Kill | Freeze):
            continue
        if (fault.rank, fault.at_iteration) != (rank, iteration):
            continue
        if isinstance(fault, Kill):
            recorder.mark(CODE["fault"], "kill")
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            recorder.mark(CODE["fault"], "freeze", value=fault.seconds)
            # The driver thaws: who is stopped cannot wake itself.
            control.set_rank(rank, THAW_AT, now() + int(fault.seconds * 1e9))
            os.kill(os.getpid(), signal.SIGSTOP)
