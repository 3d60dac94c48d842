"""The faults of an experiment that the driver does: those of a time, and what ranks ask it for.
And its end, where it has one by time.

A rank that begins an iteration, or comes to a step of a collective, kills itself there. A freeze, a
cut link or a slow rank is asked of the driver, and the rank waits until it is so: words in the
control block have one writer, and a process has one that stops and continues it.
"""

from __future__ import annotations

import heapq
import signal
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from workbench.common.units import duration_ns
from workbench.experiment.faults import (
    Cut,
    FailToStart,
    Fault,
    Freeze,
    Join,
    Kill,
    NetworkPartition,
    Preempt,
    Slow,
    SourceDown,
    struck,
)
from workbench.experiment.spec import Experiment
from workbench.runs.rank_control import RankControl
from workbench.shared_memory.control_block import ASKED, ITERATION, SOURCE, STOP, WAITS

if TYPE_CHECKING:
    from workbench.runs.elastic import Elastic

STOPPED = "stopped"  # of the metadata: after which time the experiment has stopped its run
Do = Callable[[], None]


class Conductor:
    """Does what is due, whenever it is looked at."""

    def __init__(self, exp: Experiment, ranks: RankControl, steering: Elastic) -> None:
        self._exp, self._ranks, self._steering = exp, ranks, steering
        self._control = ranks.control
        self._number = count()
        self._waits = False  # does a rank wait for the source of its samples?
        self._down = list[SourceDown]()  # the faults of that source that have struck
        self._due: list[tuple[float, int, Do]] = []  # by the monotonic clock
        self._waiting = [one for one in exp.faults if getattr(one, "after", None) is not None]
        self._trained, self._looked = 0.0, 0.0  # seconds of training so far; when that was added
        # Of those no rank knows when the run comes to the iteration: it may be lost before.
        self._joins = [
            one for one in exp.faults if isinstance(one, Join) and one.at_iteration is not None
        ]

    def begin(self) -> None:
        """Do what is done before training."""
        for fault in self._exp.faults:
            if isinstance(fault, FailToStart):
                self._ranks.fault("fail to start", fault.rank)
                self._ranks.signal(fault.rank, signal.SIGKILL)

    def look(self, trained_from: float) -> None:
        """Do what is due by now, and what ranks have asked for. ``trained_from``: when all ranks
        were first in training, 0 before.
        """
        for rank in self._ranks.pids:
            if (number := self._control.rank_word(rank, ASKED)) > 0:
                self._answer(rank, number)
        if trained_from:
            self._begin_to_wait(trained_from)
            self._strike_joins()
        self._wait_for_data()
        self._stop_in_time(trained_from)
        while self._due and self._due[0][0] <= time.monotonic():
            heapq.heappop(self._due)[2]()

    def _answer(self, rank: int, number: int) -> None:
        """Do the fault that a rank has asked for."""
        fault = self._exp.faults[number - 1]
        # A signal may take its time: a rank that is to be frozen waits until it is thawed.
        freezes = isinstance(fault, Freeze) and fault.rank == rank
        if freezes:
            self._control.set_rank(rank, ASKED, -number)
        self._strike(fault, rank)
        if not freezes:
            self._control.set_rank(rank, ASKED, 0)

    def _begin_to_wait(self, trained_from: float) -> None:
        """Have the faults come that strike after a time of training."""
        for fault in self._waiting:
            after = duration_ns(fault.after) * 1e-9  # type: ignore[union-attr]
            self._put(trained_from + after, partial(self._strike, fault))
        self._waiting = []

    def _strike_joins(self) -> None:
        """Have the ranks join whose iteration has come."""
        if not self._joins:
            return
        members = self._steering._regrouping.team.members
        newest = max(self._control.rank_word(rank, ITERATION) for rank in members)
        for fault in [one for one in self._joins if one.at_iteration <= newest]:  # type: ignore[operator]
            self._joins.remove(fault)
            self._strike(fault)

    def _stop_in_time(self, trained_from: float) -> None:
        """Stop the run once ranks have trained for ``stop_after``. A hold does not count, nor any
        other time in which clocks stand.
        """
        limit, now = self._exp.stop_after_ns, time.monotonic()
        if limit is None or not trained_from or STOPPED in self._steering.store.metadata:
            return
        if not self._control.clocks_stand():
            self._trained += now - (self._looked or trained_from)
        self._looked = now
        if self._trained * 1e9 >= limit and not self._control.words[STOP]:
            self._steering.store.metadata[STOPPED] = f"after {self._exp.stop_after}"
            self._steering.stop()

    def _wait_for_data(self) -> None:
        """Have all clocks stand for as long as a rank waits for the source of its samples."""
        ended, word = self._ranks.ended, self._control.rank_word
        waits = any(word(rank, WAITS) for rank in self._ranks.pids if rank not in ended)
        if waits != self._waits:
            self._waits = waits
            self._ranks.stand_still(waits)

    def _put(self, moment: float, do: Do) -> None:
        heapq.heappush(self._due, (moment, next(self._number), do))

    def _strike(self, fault: Fault, by: int = -1) -> None:
        """Do a fault, unless the rank that it strikes has ended by now. ``by``: the rank that asks
        for it.
        """
        steering, ended = self._steering, self._ranks.ended
        if isinstance(fault, Join):
            return steering._join(fault.rank)
        if any(rank in ended for rank in struck(fault)):
            return
        match fault:
            case Kill(rank=rank):
                steering.kill(rank)
            case Preempt(rank=rank):
                steering.preempt(rank)
            case Freeze(rank=rank, seconds=seconds):
                self._ranks.freeze_for(rank, seconds)
            case Slow(rank=rank, factor=factor, seconds=lasts):
                steering.slow(rank, factor)
                self._later(lasts, partial(steering.slow, rank, 1))
            case Cut(source=source, target=target, seconds=lasts):
                self._cut([(source, target)], lasts)
            case NetworkPartition(ranks=side, seconds=lasts):
                self._cut(self._across(side), lasts)
            case SourceDown(seconds=lasts) if fault not in self._down:  # each rank asks for it
                self._down.append(fault)
                self._ranks.fault("source down", by, lasts)
                self._control.words[SOURCE] = 1
                self._later(lasts, partial(self._bring_back, len(self._down)))

    def _across(self, side: Collection[int]) -> list[tuple[int, int]]:
        """Return the links between these ranks and all others, both ways."""
        other = [rank for rank in self._ranks.pids if rank not in side]
        pairs = [(a, b) for a in side for b in other]
        return [*pairs, *((b, a) for a, b in pairs)]

    def _bring_back(self, number: int) -> None:
        """Have the data source answer again, unless another fault has struck it since."""
        if number == len(self._down):
            self._control.words[SOURCE] = 0

    def _cut(self, pairs: Sequence[tuple[int, int]], lasts: float | None) -> None:
        for source, target in pairs:
            self._steering.link(source, target, down=True)
            self._later(lasts, partial(self._steering.link, source, target, down=False))

    def _later(self, seconds: float | None, do: Do) -> None:
        """Do it in so many seconds; never, where there is no number."""
        if seconds is not None:
            self._put(time.monotonic() + seconds, do)
