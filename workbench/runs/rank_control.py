"""The ranks of a run in their driver's hands: signals, words in shared memory, and rows on both.

What a user does to ranks (steering.py), what an experiment does (conducting.py) and what the driver
does about losses (supervisor.py) comes here.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Mapping
from typing import Any

from workbench.experiment.team import Team
from workbench.launchers.processes.launcher import RankHandle
from workbench.launchers.processes.worker_group import WorkerGroup
from workbench.recording.events import CODE
from workbench.runs.failure import how_of
from workbench.shared_memory.control_block import (
    ASKED,
    FROZEN,
    FROZEN_BY_USER,
    ITERATION,
    REGROUP,
    THAW_AT,
    Control,
)

EXPERIMENT = "experiment"  # the driver's lane of faults that the experiment asks for


class RankControl:
    """The ranks of a group. ``thread``: the one that watches over them; what that does to them was
    asked for by the experiment alone.
    """

    def __init__(self, group: WorkerGroup[Any], *, evicts: bool = False) -> None:
        """Prepare. ``evicts``: whether the others' clocks go on while a rank is frozen."""
        self.group, self.lock, self._evicts = group, threading.RLock(), evicts
        self.thread: threading.Thread | None = None

    @property
    def control(self) -> Control:
        """The words that ranks and driver share."""
        return self.group.control

    @property
    def handles(self) -> Mapping[int, RankHandle]:
        """The driver's end of each rank."""
        return self.group.handles

    @property
    def pids(self) -> dict[int, int]:
        """The operating system's process of each rank."""
        return self.group.pids

    @property
    def ended(self) -> dict[int, int]:
        """The exit codes of the ranks that have ended."""
        return self.group.ended

    # -- to a rank --

    def signal(self, rank: int, number: signal.Signals) -> None:
        """Send a rank's process a signal; nothing once it has ended."""
        self.handles[rank].signal(number)

    def freeze(self, rank: int) -> None:
        """Stop a rank's process."""
        with self.lock:
            self.note_frozen(rank, True)
            self.signal(rank, signal.SIGSTOP)

    def freeze_for(self, rank: int, seconds: float) -> None:
        """Stop a rank's process for a time, or until ``thaw``, as the experiment asks for it."""
        with self.lock:  # a thread that sees the row thaws the rank after it was frozen
            self.fault("freeze", rank, seconds)
            self.control.set_rank(rank, THAW_AT, time.monotonic_ns() + int(seconds * 1e9))
            self.freeze(rank)

    def thaw(self, rank: int) -> None:
        """Have a rank's process run again. One that is stopped counts as frozen at any moment:
        another thread would take it for a rank that was lost.
        """
        with self.lock:
            self.control.set_rank(rank, THAW_AT, 0)
            self.signal(rank, signal.SIGCONT)
            self.note_frozen(rank, False)
            if self.control.rank_word(rank, ASKED) < 0:  # for its freeze
                self.control.set_rank(rank, ASKED, 0)

    def thaw_due(self) -> None:
        """Wake ranks that the experiment has frozen (``wb.Freeze``) when their time has come.
        Clocks stand for a frozen rank no longer than it lives.
        """
        for rank, handle in [*self.handles.items()]:
            if handle.code is not None:
                self.note_frozen(rank, False)
            elif 0 < self.control.rank_word(rank, THAW_AT) <= time.monotonic_ns():
                self.thaw(rank)

    def evict(self, rank: int, why: str = "evicted") -> None:
        """End a rank that others have given up, or whose replica is wrong (``why`` names the row):
        a process that is dead cannot write into what comes after it, however late it is thawed.
        """
        self.note(rank, why)
        self.control.set_rank(rank, THAW_AT, 0)
        self.note_frozen(rank, False)
        self.signal(rank, signal.SIGKILL)

    def begin(self, team: Team, iterations: int) -> None:
        """Note that a team goes on, and no rank waits any more for one that is not in it.
        ``iterations``: of the experiment.
        """
        with self.lock:
            self.group.recorder.generation = team.generation
            self.control.words[REGROUP] = 0
            for rank in {*self.handles} - {*team.members}:
                self.control.set_rank(rank, ITERATION, iterations)
                self.note_frozen(rank, False)

    # -- clocks --

    def note_frozen(self, rank: int, frozen: bool) -> None:
        """Note that a rank is stopped, or runs; clocks stand, or go on."""
        with self.lock:
            if bool(self.control.rank_word(rank, FROZEN_BY_USER)) != frozen:
                self.control.set_rank(rank, FROZEN_BY_USER, int(frozen))
                if not self._evicts:
                    self.stand_still(frozen)

    def stand_still(self, still: bool) -> None:
        """Have the clocks of all ranks stand, or go on."""
        with self.lock:
            self.control.words[FROZEN] += 1 if still else -1

    # -- rows --

    def note(self, rank: int, what: str, host: str = "") -> None:
        """Record what the driver has noticed of a rank, or of its host."""
        with self.lock:
            self.group.recorder.mark(CODE["detect"], what, lane="driver", peer=rank, group=host)

    def note_lost(self, rank: int) -> None:
        """Record that a rank's end was noticed, and how it ended."""
        self.note(rank, how_of(self.handles[rank].code or 0))

    def fault(
        self, name: str, rank: int, value: float = math.nan, group: str = "", nbytes: int = -1
    ) -> None:
        """Record what is done to a rank, or to its link."""
        from_its_thread = threading.current_thread() is self.thread
        with self.lock:
            self.group.recorder.mark(
                CODE["fault"],
                name,
                value=value,
                lane=EXPERIMENT if from_its_thread else "driver",
                peer=rank,
                group=group,
                nbytes=nbytes,
            )
