"""The driver's side of n rank processes that run one case after another.

Ranks begin a case together, and the next one starts only when all have finished, so that a message
left in a mailbox is never mistaken for one of the next case. A case that fails ends the pool: its
ranks may be anywhere. Every wait has a limit.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from workbench.common.descriptors import check_descriptors
from workbench.common.errors import WorkbenchError
from workbench.launchers.processes.launcher import launcher_of
from workbench.launchers.processes.worker_group import WorkerGroup
from workbench.recording.run_queue import OwnTime
from workbench.shared_memory.control_block import ABORT
from workbench.shared_memory.segments import how_it_ended
from workbench.studies.checking.cases import EAGER, Case
from workbench.studies.checking.waiting import (
    CodePosition,
    Deadlock,
    Stand,
    Wait,
    deadlocked_ranks,
    stuck_ranks,
    wait_cycle,
)

if TYPE_CHECKING:
    import polars as pl

STARTING = 60.0  # seconds of their own time in which ranks must start
QUIET = 0.12  # seconds without messages before ranks report their position, and between two looks
ANSWER = 2.0  # seconds for that report; a rank in native code cannot give one
SETTLED = 10.0  # seconds for a rank that has returned to count its messages; plenty when not busy
AFTERMATH = 0.3  # seconds in which other ranks may still report how they ended
SLOT_BYTES = 4096  # small, so that small tensors fill mailboxes too


@dataclass(frozen=True)
class Subject:
    """The function under check: a name of collectives/, a path, or source that travels."""

    operation: str
    name: str
    function: str | dict[str, str]
    # (line in the ranks' copy, function) -> the user's line
    place: Callable[[int, str], CodePosition]


@dataclass
class Outcome:
    """The outcome of one case.

    ``reports``: each rank's report; ``results``: the bytes of each rank's result.
    """

    case: Case
    op: int
    reports: dict[int, dict[str, Any]] = field(default_factory=dict)
    results: dict[int, bytearray] = field(default_factory=dict)
    deadlock: Deadlock | None = None
    late: list[Stand] = field(default_factory=list)  # positions of unfinished ranks at the deadline
    ended: dict[int, str] = field(default_factory=dict)  # rank -> how its process ended
    # Messages that were not received: sender, receiver, where, slots.
    left: list[tuple[int, int, CodePosition, int]] = field(default_factory=list)
    places: Callable[[int, str], CodePosition] = lambda line, function: CodePosition(line)

    @property
    def broke(self) -> bool:
        """Whether the ranks cannot run another case after this one."""
        raised = any("raised" in report for report in self.reports.values())
        return bool(raised or self.deadlock or self.late or self.ended or self.left)


class RankPool:
    """``ranks`` processes from the warm pool. Always close it."""

    def __init__(self, subject: Subject, ranks: int) -> None:
        from workbench.store.event_store import Store

        check_descriptors(ranks)
        self.subject, self.ranks = subject, ranks
        launcher, self.store = launcher_of("local"), Store()
        self._group = WorkerGroup(ranks, launcher.take, self.store)
        self._rendezvous = launcher.meeting_place(ranks)
        self._question = self._cases = 0
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        subject = self.subject
        self._group.start(
            {
                "work": "check",
                "ranks": self.ranks,
                "port": self._rendezvous.port,
                "operation": subject.operation,
                "name": subject.name,
                "function": subject.function,
                "travels": not isinstance(subject.function, str),
                "slot_bytes": SLOT_BYTES,
                "folder": os.getcwd(),
            }
        )
        ready: set[int] = set()
        clock = self._clock()
        while len(ready) < self.ranks:
            for rank, message, _ in self._group.hear(0.05):
                if "broken" in message:
                    raise WorkbenchError(f"rank {rank} could not begin:\n{message['broken']}")
                ready |= {rank} if "ready" in message else set()
            if self._group.ended:
                rank, code = next(iter(self._group.ended.items()))
                raise WorkbenchError(f"rank {rank} {how_it_ended(code)} before it could begin")
            if clock.seconds > STARTING:
                missing = sorted(set(range(self.ranks)) - ready)
                raise WorkbenchError(f"ranks {missing} did not begin within {STARTING:.0f} s")

    def _clock(self) -> OwnTime:
        return OwnTime([*self._group.pids.values()])

    # -- one case --

    def run(self, case: Case, timeout: float) -> Outcome:
        """Run the case and return its outcome.

        It returns after ``timeout`` seconds of its ranks' own time, plus a short delay at most.
        """
        outcome = Outcome(case, self._cases, places=self.subject.place)
        self._cases += 1
        self._group.order({"case": case.to_dict()})
        self._follow(outcome, timeout)
        if not outcome.broke:
            self._settle(outcome)
        if outcome.broke:
            self._abort(outcome)
        self._group.collector.drain()
        return outcome

    def _follow(self, outcome: Outcome, timeout: float) -> None:
        case = outcome.case
        begun = quiet_since = time.monotonic()
        clock = self._clock()
        before: tuple[dict[int, Wait], int] | None = None
        while len(outcome.reports) < self.ranks:
            news, own_seconds = self._take(outcome, self._group.hear(QUIET / 4)), clock.seconds
            if any("raised" in report for report in outcome.reports.values()) or self._group.ended:
                return
            if news:
                quiet_since, before = time.monotonic(), None
            elif time.monotonic() - quiet_since > QUIET:
                self._group.collector.drain()
                done = set(outcome.reports)
                positions = self._where(outcome)
                if done != set(outcome.reports):  # a rank finished in the meantime
                    before = None
                    continue
                waits = {
                    rank: wait for rank, answer in positions.items() if (wait := _wait(answer))
                }
                if before and (members := deadlocked_ranks(*before, waits, self.ranks, done)):
                    outcome.deadlock = replace(
                        self._deadlock(case, members, waits, positions, done),
                        seconds=time.monotonic() - begun,
                    )
                    return
                before, quiet_since = (waits, time.monotonic_ns()), time.monotonic()
                if own_seconds > timeout:
                    outcome.late = [
                        self._stand(case, rank, positions.get(rank, {}))
                        for rank in range(self.ranks)
                        if rank not in done
                    ]
                    return

    def _take(
        self, outcome: Outcome, messages: list[tuple[int, dict[str, Any], bytearray]]
    ) -> bool:
        news = False
        for rank, message, payload in messages:
            if message.get("done") == outcome.op:
                outcome.reports[rank], outcome.results[rank] = message, payload
                news = True
        return news

    def _settle(self, outcome: Outcome) -> None:
        """Ask all ranks, after they have returned, for messages left in their mailboxes."""
        self._group.order({"settle": outcome.op})
        waiting = set(range(self.ranks))
        deadline = time.monotonic() + SETTLED
        while waiting and time.monotonic() < deadline and not self._group.ended:
            for rank, message, _ in self._group.hear(0.05):
                if "settled" in message:
                    waiting.discard(rank)
                    for to, line, slots in message["left"]:
                        outcome.left.append((rank, to, self.subject.place(line, ""), slots))
        for rank in waiting & set(self._group.ended):
            outcome.ended[rank] = how_it_ended(self._group.ended[rank])

    def _where(self, outcome: Outcome) -> dict[int, dict[str, Any]]:
        """Return the current position of each rank that has not returned."""
        self._question += 1
        self._group.order({"where": self._question})
        positions: dict[int, dict[str, Any]] = {}
        deadline = time.monotonic() + ANSWER
        while len(positions) < self.ranks and time.monotonic() < deadline and not self._group.ended:
            messages = self._group.hear(0.05)
            self._take(outcome, messages)
            for rank, message, _ in messages:
                if message.get("here") == self._question:
                    positions[rank] = message
        return positions

    def _deadlock(
        self,
        case: Case,
        members: set[int],
        waits: dict[int, Wait],
        positions: dict[int, dict[str, Any]],
        done: set[int],
    ) -> Deadlock:
        # A rank outside the set may wait for one inside it; it is not part of the deadlock.
        members = stuck_ranks(waits, self.ranks, done) & members
        cycle = wait_cycle(waits, members)
        stands = tuple(self._stand(case, rank, positions[rank]) for rank in sorted(members))
        awaited = {waits[rank].peer for rank in members} & done
        return Deadlock(stands, cycle, tuple(sorted(awaited or (set() if cycle else done))))

    def _stand(self, case: Case, rank: int, answer: dict[str, Any]) -> Stand:
        wait = _wait(answer)
        place = self.subject.place(answer.get("line", -1), answer.get("function", ""))
        if wait is None:
            return Stand(rank, -2, "running" if answer else "silent", place)
        full = case.mode == EAGER and wait.doing == "send"  # it would not wait for its receiver
        return Stand(rank, wait.peer, "post" if full else wait.doing, place)

    def _abort(self, outcome: Outcome) -> None:
        """Let waiting ranks end their waits and report, then collect how processes ended."""
        self._group.control.words[ABORT] = 1
        self._group.control.refresh()
        self._group.control.open_gates()
        deadline = time.monotonic() + AFTERMATH
        while len(outcome.reports) < self.ranks and time.monotonic() < deadline:
            self._take(outcome, self._group.hear(0.02))
            if len(outcome.reports) + len(self._group.ended) >= self.ranks:
                break
        outcome.ended |= {
            rank: how_it_ended(code)
            for rank, code in self._group.ended.items()
            if rank not in outcome.reports
        }

    # -- the end --

    @property
    def events(self) -> pl.DataFrame:
        self._group.collector.drain()
        return self.store.events

    def close(self) -> None:
        """End the ranks; return when their processes are gone."""
        self._group.close()


def _wait(answer: dict[str, Any]) -> Wait | None:
    if not (wait := answer.get("wait")):
        return None
    since, looked, peer = wait
    return Wait(since, looked, peer, answer.get("doing", ""))
