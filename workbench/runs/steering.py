"""A live run in the user's hands: hold, step, slow, stop; kill, freeze, thaw; change a link.

Everything works through words in shared memory or a signal, returns at once, and may be called from
any thread. What the user does to the ranks is recorded as ``fault`` rows of the driver.
"""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from workbench.common.arguments import Bandwidth, Duration, Factor, Rank, Steps, Text, checked
from workbench.common.errors import SpecError
from workbench.common.units import bytes_per_second, duration_ns
from workbench.experiment.spec import Experiment
from workbench.recording.events import now
from workbench.runs.rank_control import RankControl
from workbench.shared_memory.control_block import (
    CORRUPT,
    CORRUPTIONS,
    FROZEN_BY_USER,
    LOADS,
    SLOW,
    SLOW_MOTION,
    STOP,
    STOP_ASKED,
    UNITS,
    Control,
)
from workbench.store.holds import note_hold
from workbench.store.link_faults import direction, row_values

if TYPE_CHECKING:
    from workbench.store.event_store import Store

QUIET_S = 0.15  # seconds without a new row: a rank at no gate waits for one that is
LOOK_S = 2.0  # seconds that are left to a rank to see that it may go, and to end an iteration


class Steering:
    """The part of ``Run`` and ``Ranks`` that changes what the ranks do."""

    experiment: Experiment | None = None  # of ``Run``; ``Ranks`` run cells
    store: Store
    _ranks: RankControl

    @property
    def pids(self) -> dict[int, int]:
        """The operating system's process of each rank."""
        return self._ranks.pids

    @property
    def _control(self) -> Control:
        return self._ranks.control

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
        with self._ranks.lock:
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
        return rank not in self._ranks.ended and not self._control.rank_word(rank, FROZEN_BY_USER)

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
        self._ranks.fault("kill", self._known(rank))
        self._ranks.signal(rank, signal.SIGKILL)

    @checked
    def preempt(self, rank: Rank) -> None:
        """Give ``rank`` notice that its machine is needed (SIGTERM): in a run with a recovery
        policy it leaves before its next iteration, in another it ends at once.

        Raises SpecError if there is no such rank.
        """
        self._ranks.fault("preempt", self._known(rank))
        self._ranks.signal(rank, signal.SIGTERM)

    @checked
    def freeze(self, rank: Rank) -> None:
        """Stop the process of ``rank`` (SIGSTOP) until ``thaw``; the others' clocks stand still.
        With ``recovery="wait"`` they go on, and a rank that is frozen for ``timeout`` is evicted.

        Raises SpecError if there is no such rank.
        """
        self._ranks.fault("freeze", self._known(rank))
        self._ranks.freeze(rank)

    @checked
    def thaw(self, rank: Rank) -> None:
        """Continue ``rank`` (SIGCONT) after ``freeze`` or a ``wb.Freeze`` of the experiment.

        Raises SpecError if there is no such rank.
        """
        self._ranks.fault("thaw", self._known(rank))
        self._ranks.thaw(rank)

    @checked
    def slow(self, rank: Rank, factor: Factor) -> None:
        """Compute spans of this rank last ``factor`` times their own time; communication is
        untouched. Raises SpecError for a factor below 1, or if there is no such rank.
        """
        if factor < 1:
            raise SpecError(f"slow({rank}, factor={factor}): the factor is 1 (full speed) or more")
        self._ranks.fault("slow", self._known(rank), factor)
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
            self._ranks.fault(name, b, seconds, direction(a, b), bandwidth_now)

    def _known(self, rank: int) -> int:
        if rank not in self.pids:
            raise SpecError(f"rank {rank}: this run has ranks 0 to {self._control.ranks - 1}")
        return rank
