"""A live run in the user's hands: hold, step, slow, stop; kill, freeze, thaw; change a link.

Everything works through words in shared memory or a signal, returns at once, and may be called from
any thread. What the user does to the ranks is recorded as ``fault`` rows of the driver.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

from workbench.common.arguments import Bandwidth, Duration, Factor, Rank, Steps, Text, checked
from workbench.common.errors import SpecError
from workbench.common.units import bytes_per_second, duration_ns
from workbench.experiment.spec import Experiment
from workbench.launchers.processes.launcher import RankHandle
from workbench.launchers.processes.worker_group import WorkerGroup
from workbench.rank.unreachable import evicts_unreachable
from workbench.recording.events import CODE, now
from workbench.shared_memory.control_block import (
    ASKED,
    CORRUPT,
    CORRUPTIONS,
    FROZEN,
    FROZEN_BY_USER,
    LOADS,
    SLOW,
    SLOW_MOTION,
    STOP,
    STOP_ASKED,
    THAW_AT,
    UNITS,
    Control,
)
from workbench.store.holds import note_hold
from workbench.store.link_faults import direction, row_values

if TYPE_CHECKING:
    from workbench.store.event_store import Store

EXPERIMENT = "experiment"  # the driver's lane of faults that the experiment asks for
QUIET_S = 0.15  # seconds without a new row: a rank at no gate waits for one that is
LOOK_S = 2.0  # seconds that are left to a rank to see that it may go, and to end an iteration


class Steering:
    """The part of ``Run`` and ``Ranks`` that changes what the ranks do."""

    experiment: Experiment | None = None  # of ``Run``; ``Ranks`` run cells
    pids: dict[int, int]  # the operating system's process of each rank
    store: Store
    _group: WorkerGroup[Any]
    _lock: threading.RLock
    _thread: threading.Thread | None = None  # the one that watches over the run

    @property
    def _control(self) -> Control:
        return self._group.control

    @property
    def _ended(self) -> dict[int, int]:
        return self._group.ended

    def _handle(self, rank: int) -> RankHandle:
        """Return the driver's end of a rank."""
        handle: RankHandle = self._group.handles[rank]
        return handle

    def pause(self) -> None:
        """Hold the ranks at their next chunk or iteration.

        A held run takes no processor time and does not time out.
        """
        self._control.hold()
        self._note_hold(True)

    def resume(self) -> None:
        """Let the ranks go on that ``pause`` holds."""
        self._control.let_go()
        self._note_hold(False)

    def _note_hold(self, held: bool) -> None:
        with self._lock:
            note_hold(self.store.metadata, held, now())

    @checked
    def step(self, count: Steps = 1, unit: Text = "chunk") -> None:
        """Let every rank go on by ``count`` of a ``unit``, while the run is paused.

        "chunk": each rank sends one chunk, in whichever of its groups it comes to one first;
        "step": all that it sends in one step of a collective's algorithm, or one whole message
        (of a pipeline, to or from a server); "iteration". Raises SpecError for another unit.
        """
        if unit not in UNITS:
            raise SpecError(f"unit = {unit!r}: must be {' or '.join(map(repr, UNITS))}")
        for left in reversed(range(count)):
            self._control.grant(unit)
            if left:
                self._settle()

    def _settle(self) -> None:
        """Wait until all ranks stand at a gate again, or those that do not have long been waiting
        for one that does.
        """
        control, rows = self._control, -1
        since = time.monotonic()
        while len(self.held) < control.ranks:
            moment = time.monotonic()
            late = control.under_way([rank for rank in self.pids if self._can_look(rank)])
            if moment - since > (LOOK_S if late else QUIET_S):
                return
            if len(self.store) != rows:
                rows, since = len(self.store), moment
            time.sleep(0.005)

    def _can_look(self, rank: int) -> bool:
        return rank not in self._ended and not self._control.rank_word(rank, FROZEN_BY_USER)

    @property
    def held(self) -> list[int]:
        """The ranks that stand at a gate at this moment."""
        return self._control.standing()

    @checked
    def slow_motion(self, factor: Factor) -> None:
        """Stretch every transfer: a chunk's flight lasts ``factor`` times its own time.

        1 is full speed. Raises SpecError for less.
        """
        if factor < 1:
            raise SpecError(f"slow_motion({factor}): the factor is 1 (full speed) or more")
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
        self.resume()

    @checked
    def kill(self, rank: Rank) -> None:
        """Kill the process of ``rank`` (SIGKILL). Raises SpecError if there is no such rank."""
        self._fault("kill", self._known(rank))
        self._signal(rank, signal.SIGKILL)

    @checked
    def preempt(self, rank: Rank) -> None:
        """Give ``rank`` notice that its machine is needed (SIGTERM): in a run with a recovery
        policy it leaves before its next iteration, in another it ends at once.

        Raises SpecError if there is no such rank.
        """
        self._fault("preempt", self._known(rank))
        self._signal(rank, signal.SIGTERM)

    @checked
    def freeze(self, rank: Rank) -> None:
        """Stop the process of ``rank`` (SIGSTOP) until ``thaw``; the others' clocks stand still.
        With ``recovery="wait"`` they go on, and a rank that is frozen for ``timeout`` is evicted.

        Raises SpecError if there is no such rank.
        """
        self._fault("freeze", self._known(rank))
        with self._lock:
            self._note_frozen(rank, True)
            self._signal(rank, signal.SIGSTOP)

    @checked
    def thaw(self, rank: Rank) -> None:
        """Continue ``rank`` (SIGCONT) after ``freeze`` or a ``wb.Freeze`` of the experiment.

        Raises SpecError if there is no such rank.
        """
        self._fault("thaw", self._known(rank))
        self._continue(rank)

    @checked
    def slow(self, rank: Rank, factor: Factor) -> None:
        """Compute spans of this rank last ``factor`` times their own time; communication is
        untouched. Raises SpecError for a factor below 1, or if there is no such rank.
        """
        if factor < 1:
            raise SpecError(f"slow({rank}, factor={factor}): the factor is 1 (full speed) or more")
        self._fault("slow", self._known(rank), factor)
        self._control.set_rank(rank, SLOW, round(factor * 1000))

    @checked
    def corrupt(self, rank: Rank, kind: Text = "nan") -> None:
        """Corrupt the next minibatch that ``rank`` loads, once, as ``wb.Corrupt`` does: "nan",
        "raises", "shape", or "bitflip" of its parameters. What becomes of it, the experiment's
        ``bad_minibatch`` says.

        Raises SpecError for another kind, and for a rank that loads no samples itself, as servers
        do not, or has not loaded any yet.
        """
        if kind not in CORRUPTIONS:
            known = ", ".join(map(repr, CORRUPTIONS))
            raise SpecError(f"corrupt({rank}, kind={kind!r}): it is one of {known}")
        if not self._control.rank_word(self._known(rank), LOADS):
            raise SpecError(
                f"corrupt({rank}): rank {rank} has loaded no samples itself. A rank that only "
                "serves never does; of another, wait for its first iteration"
            )
        self._control.set_rank(rank, CORRUPT, 1 + CORRUPTIONS.index(kind))

    @checked
    def link(
        self,
        source: Rank,
        target: Rank,
        *,
        latency: Duration | None = None,
        bandwidth: Bandwidth | None = None,
        down: bool | None = None,
        both: bool = False,
    ) -> None:
        """Change the emulated link from ``source`` to ``target`` now; what is not named stays.

        ``latency``: such as "5 ms"; ``bandwidth``: such as "100 Mbit/s"; ``down`` cuts it;
        ``both``: the link back too. Raises SpecError, of a number without a unit SpecError.
        """
        if self._known(source) == self._known(target):
            raise SpecError(f"link({source}, {target}): a link joins two ranks")
        if self.experiment is not None and self.experiment.backend != "workbench":
            backend = self.experiment.backend
            raise SpecError(f"link({source}, {target}): backend={backend!r} emulates no links")
        latency_ns = None if latency is None else duration_ns(latency)
        rate = None if bandwidth is None else bytes_per_second(bandwidth)
        for a, b in ((source, target), (target, source))[: 2 if both else 1]:
            self._control.set_link(a, b, latency_ns=latency_ns, bytes_per_second=rate, down=down)
            name, seconds, bandwidth_now = row_values(self._control.link(a, b))
            self._fault(name, b, seconds, direction(a, b), bandwidth_now)

    def _signal(self, rank: int, number: signal.Signals) -> None:
        """Send a rank's process a signal; nothing once it has ended."""
        self._handle(rank).signal(number)

    def _freeze_for(self, rank: int, seconds: float) -> None:
        """Stop a rank's process for a time, or until ``thaw``, as the experiment asks for it."""
        with self._lock:  # a thread that sees the row thaws the rank after it was frozen
            self._fault("freeze", rank, seconds)
            self._control.set_rank(rank, THAW_AT, time.monotonic_ns() + int(seconds * 1e9))
            self._note_frozen(rank, True)
            self._signal(rank, signal.SIGSTOP)

    def _continue(self, rank: int) -> None:
        """Have a rank's process run again. One that is stopped counts as frozen at any moment:
        another thread would take it for a rank that was lost.
        """
        with self._lock:
            self._control.set_rank(rank, THAW_AT, 0)
            self._signal(rank, signal.SIGCONT)
            self._note_frozen(rank, False)
            if self._control.rank_word(rank, ASKED) < 0:  # for its freeze
                self._control.set_rank(rank, ASKED, 0)

    def _evict(self, rank: int, why: str = "evicted") -> None:
        """End a rank that others have given up, or whose replica is wrong (``why`` names the row):
        a process that is dead cannot write into what comes after it, however late it is thawed.
        """
        with self._lock:
            self._group.recorder.mark(CODE["detect"], why, lane="driver", peer=rank)
        self._control.set_rank(rank, THAW_AT, 0)
        self._note_frozen(rank, False)
        self._signal(rank, signal.SIGKILL)

    def _note_lost(self, rank: int) -> None:
        """Record that a rank's end was noticed."""
        raise NotImplementedError

    def _known(self, rank: int) -> int:
        if rank not in self.pids:
            raise SpecError(f"rank {rank}: this run has ranks 0 to {self._control.ranks - 1}")
        return rank

    def _note_frozen(self, rank: int, frozen: bool) -> None:
        with self._lock:
            if bool(self._control.rank_word(rank, FROZEN_BY_USER)) != frozen:
                self._control.set_rank(rank, FROZEN_BY_USER, int(frozen))
                evicts = self.experiment is not None and evicts_unreachable(self.experiment)
                if not evicts:  # else the others' clocks go on
                    self._control.words[FROZEN] += 1 if frozen else -1

    def _stand_still(self, still: bool) -> None:
        """Have the clocks of all ranks stand, or go on."""
        with self._lock:
            self._control.words[FROZEN] += 1 if still else -1

    def _fault(
        self, name: str, rank: int, value: float = math.nan, group: str = "", nbytes: int = -1
    ) -> None:
        # What the thread that watches the run does was asked for by the experiment alone.
        from_its_thread = threading.current_thread() is self._thread
        with self._lock:
            self._group.recorder.mark(
                CODE["fault"],
                name,
                value=value,
                lane=EXPERIMENT if from_its_thread else "driver",
                peer=rank,
                group=group,
                nbytes=nbytes,
            )
