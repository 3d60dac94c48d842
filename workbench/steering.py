"""A live run in the user's hands: hold, step, slow, stop; kill, freeze, thaw; change a link.

Everything works through words in shared memory or a signal, returns at once, and may be called from
any thread. What the user does to the ranks is recorded as ``fault`` rows of the driver.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import TYPE_CHECKING

from workbench.control import (
    AT_GATE,
    FROZEN,
    FROZEN_BY_USER,
    SLOW,
    SLOW_MOTION,
    STOP,
    STOP_ASKED,
    THAW_AT,
    UNITS,
    Control,
)
from workbench.events import CODE, Recorder
from workbench.units import bytes_per_second, duration_ns

if TYPE_CHECKING:
    from workbench.store import Store


class Steering:
    """The part of ``Run`` that changes what the ranks do."""

    pids: dict[int, int]  # the operating system's process of each rank
    store: Store
    _control: Control
    _recorder: Recorder
    _lock: threading.RLock
    _ended: dict[int, int]

    def pause(self) -> None:
        """Hold the ranks at their next chunk or iteration.

        A held run takes no processor time and does not time out.
        """
        self._control.hold()

    def resume(self) -> None:
        """Let the ranks go on that ``pause`` holds."""
        self._control.let_go()

    def step(self, count: int = 1, unit: str = "chunk") -> None:
        """While paused: let every rank go on by ``count`` of a ``unit``: chunk, step (of the
        algorithm) or iteration. Raises ValueError for another unit.
        """
        if unit not in UNITS:
            raise ValueError(f"unit={unit!r}: it is {', '.join(UNITS)}")
        for left in reversed(range(count)):
            self._control.grant(unit)
            if left:
                self._settle()

    def _settle(self) -> None:
        """Until all ranks stand at a gate again, or those that do not have long been waiting for
        one that does.
        """
        rows, since = -1, time.monotonic()
        time.sleep(0.02)
        while len(self.held) < self._control.ranks and time.monotonic() - since < 0.15:
            if len(self.store) != rows:
                rows, since = len(self.store), time.monotonic()
            time.sleep(0.005)

    @property
    def held(self) -> list[int]:
        """The ranks that stand at a gate at this moment."""
        return [
            rank for rank in range(self._control.ranks) if self._control.rank_word(rank, AT_GATE)
        ]

    def slow_motion(self, factor: float) -> None:
        """Stretch every transfer: a chunk's flight lasts ``factor`` times its own time.

        1 is full speed. Raises ValueError for less.
        """
        if factor < 1:
            raise ValueError(f"slow_motion({factor}): the factor is 1 (full speed) or more")
        self._control.words[SLOW_MOTION] = round(factor * 1000)
        self._control.refresh()

    def stop(self) -> None:
        """End the run after the iteration that is under way, the same on all ranks; its record
        stays.

        What would keep the ranks from ending it is lifted: a pause, slow motion, freezes, cut
        links.
        """
        if not self._control.words[STOP]:
            self._control.words[STOP] = STOP_ASKED
        for rank in self.pids:
            if self._control.rank_word(rank, FROZEN_BY_USER):
                self.thaw(rank)
            for other in self.pids:
                if rank != other and self._control.link(rank, other).down:
                    self.link(rank, other, down=False)
        self.slow_motion(1)
        self._control.let_go()

    def kill(self, rank: int) -> None:
        """SIGKILL a rank's process. Raises ValueError if there is no such rank."""
        self._fault("kill", self._known(rank))
        self._signal(rank, signal.SIGKILL)

    def freeze(self, rank: int) -> None:
        """SIGSTOP a rank's process until ``thaw``; the clocks of the others stand. Raises
        ValueError if there is no such rank.
        """
        self._fault("freeze", self._known(rank))
        self._note_frozen(rank, True)
        self._signal(rank, signal.SIGSTOP)

    def thaw(self, rank: int) -> None:
        """SIGCONT: a rank goes on that was frozen, by ``freeze`` or by a ``wb.Freeze`` of the
        experiment. Raises ValueError if there is no such rank.
        """
        self._fault("thaw", self._known(rank))
        self._control.set_rank(rank, THAW_AT, 0)
        self._note_frozen(rank, False)
        self._signal(rank, signal.SIGCONT)

    def slow(self, rank: int, factor: float) -> None:
        """Compute spans of this rank last ``factor`` times their own time; communication is
        untouched. Raises ValueError for a factor below 1, or if there is no such rank.
        """
        if factor < 1:
            raise ValueError(f"slow({rank}, factor={factor}): the factor is 1 (full speed) or more")
        self._fault("slow", self._known(rank), factor)
        self._control.set_rank(rank, SLOW, round(factor * 1000))

    def link(
        self, source: int, target: int, *, latency: str | None = None, bandwidth: str | None = None,
        down: bool | None = None, both: bool = False,
    ) -> None:  # fmt: skip
        """Change the emulated link from ``source`` to ``target`` now; what is not named stays.

        ``latency``: such as "5 ms"; ``bandwidth``: such as "100 Mbit/s"; ``down`` cuts it;
        ``both``: the link back too. Raises ValueError, of a number without a unit SpecError.
        """
        if self._known(source) == self._known(target):
            raise ValueError(f"link({source}, {target}): a link joins two ranks")
        latency_ns = None if latency is None else duration_ns(latency)
        rate = None if bandwidth is None else bytes_per_second(bandwidth)
        for a, b in ((source, target), (target, source))[: 2 if both else 1]:
            self._control.set_link(a, b, latency_ns=latency_ns, bytes_per_second=rate, down=down)
            self._fault(f"link {a}->{b} {self._control.link(a, b).words or 'restored'}", b)

    def _signal(self, rank: int, number: signal.Signals) -> None:
        """To a rank's process; not once it has ended, when its number may be somebody else's."""
        if rank not in self._ended:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pids[rank], number)

    def _known(self, rank: int) -> int:
        if rank not in self.pids:
            raise ValueError(f"rank {rank}: this run has ranks 0 to {self._control.ranks - 1}")
        return rank

    def _note_frozen(self, rank: int, frozen: bool) -> None:
        with self._lock:
            if bool(self._control.rank_word(rank, FROZEN_BY_USER)) != frozen:
                self._control.set_rank(rank, FROZEN_BY_USER, int(frozen))
                self._control.words[FROZEN] += 1 if frozen else -1

    def _fault(self, name: str, rank: int, value: float = float("nan")) -> None:
        with self._lock:
            self._recorder.mark(CODE["fault"], name, value=value, lane="driver", peer=rank)
