"""Faults that an experiment asks for, done by the rank that they strike: as it begins an iteration,
or as it comes to a step of a collective. What has a time of its own, or an end, the driver does
(runs/conducting.py).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from workbench.experiment.faults import (
    Cut,
    Fault,
    Moment,
    NetworkPartition,
    Preempt,
    Slow,
    SourceDown,
)
from workbench.experiment.spec import Experiment, Freeze, Jitter, Kill
from workbench.messaging.communicator import Communicator
from workbench.messaging.message import Message
from workbench.messaging.slots import Slots
from workbench.recording.events import CODE, now
from workbench.recording.recorder import Recorder
from workbench.shared_memory.control_block import (
    ABORT,
    ASKED,
    EVENTS,
    LOST,
    STRUCK,
    Control,
)

_PAUSE = 0.5e-3  # seconds between two looks whether the driver has done what it was asked for


def jitter(exp: Experiment, rank: int, iteration: int) -> float:
    """Draw the factor by which a rank computes longer in an iteration, from the seed."""
    factor = 1.0
    for number, fault in enumerate(exp.faults):
        if isinstance(fault, Jitter):
            draw = np.random.default_rng([exp.seed, number, rank, iteration]).random()
            factor *= fault.factor if draw < fault.probability else 1.0
    return factor


def strike(
    exp: Experiment, rank: int, iteration: int, recorder: Recorder, control: Control
) -> None:
    """Do what is asked of this rank at this iteration, once."""
    if iteration < control.rank_word(rank, STRUCK):
        return
    control.set_rank(rank, STRUCK, iteration + 1)
    for number, fault in enumerate(exp.faults):
        whose = rank if isinstance(fault, SourceDown) else rank_of(fault)
        if getattr(fault, "at_iteration", None) == iteration and whose == rank:
            _do(exp, number, rank, recorder, control)


def rank_of(fault: Fault) -> int:
    """Return the rank that does a fault, or asks the driver for it, at the iteration of it; -1:
    the fault is none of an iteration.
    """
    match fault:
        case Kill() | Freeze() | Preempt() | Slow():
            return fault.rank
        case Cut():
            return fault.source
        case NetworkPartition():
            return min(fault.ranks)
    return -1


def listen(exp: Experiment, rank: int, recorder: Recorder, control: Control) -> None:
    """Have collectives of this process look for the events that faults wait for, if any is this
    rank's. Call it before the first group is made.
    """
    slots = [
        (number, fault.when)
        for number, fault in enumerate(exp.faults)
        if isinstance(fault, Moment) and fault.when is not None and fault.when.rank == rank
    ]
    if slots:
        Communicator.slots_class = _slots(exp, slots, rank, recorder, control)


def _slots(
    exp: Experiment,
    own: Sequence[tuple[int, Any]],
    rank: int,
    recorder: Recorder,
    control: Control,
) -> type[Slots]:
    """Return what moves slots and looks at each step: only in a run with such a fault."""

    def look(slots: Slots, step: int) -> None:
        for number, event in own:
            if (
                step == event.step
                and slots.where.iteration >= event.from_iteration
                and slots.doing.rpartition(" ")[0] == event.collective
                and not control.rank_word(rank, EVENTS) & 1 << number
            ):
                # In shared memory: the process that replaces this one does not do it again.
                control.set_rank(rank, EVENTS, control.rank_word(rank, EVENTS) | 1 << number)
                _do(exp, number, rank, recorder, control)

    class Looking(Slots):
        """Slots whose every move looks for an event first."""

        all_by_hand = True

        def put(self, message: Message) -> None:
            look(self, message.step)
            super().put(message)

        def take(self, message: Message, *how: Any) -> None:
            look(self, message.step)
            super().take(message, *how)

        def pass_on(self, message: Message, *how: Any) -> None:
            look(self, message.step)
            super().pass_on(message, *how)

    return Looking


def _do(exp: Experiment, number: int, rank: int, recorder: Recorder, control: Control) -> None:
    """Do a fault here, or ask the driver for it and wait until it is done."""
    fault = exp.faults[number]
    match fault:
        case Kill(rank=victim) if victim == rank:
            recorder.mark(CODE["fault"], "kill")
            os.kill(os.getpid(), signal.SIGKILL)
        case Preempt(rank=victim) if victim == rank:
            recorder.mark(CODE["fault"], "preempt")
            os.kill(os.getpid(), signal.SIGTERM)
        case _:  # a freeze, too: a SIGSTOP of its own could come after the driver's SIGCONT
            _ask(exp, number, rank, control)


def _ask(exp: Experiment, number: int, rank: int, control: Control) -> None:
    """Have the driver do a fault, and wait until it is done; of a freeze, until the thaw. Gives up
    where the run does not go on.
    """
    lost, deadline = control.words[LOST], now() + exp.timeout_ns
    control.set_rank(rank, ASKED, number + 1)
    while control.rank_word(rank, ASKED) and now() < deadline:
        if control.words[ABORT] or control.words[LOST] != lost:
            return
        time.sleep(_PAUSE)
