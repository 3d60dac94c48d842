"""The driver's side of n rank processes that run one case after the other.

Ranks begin a case together and are waited for together, so that what one case leaves in a mailbox
cannot be taken for the next one's. A case that does not end well ends the crew: its ranks may be
anywhere. Nothing here waits for ever.
"""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from workbench.checking.cases import EAGER, Case
from workbench.checking.waiting import (
    Deadlock,
    Place,
    Stand,
    Wait,
    cycle_of,
    proven,
    stuck,
)
from workbench.control import ABORT, Control
from workbench.errors import WorkbenchError
from workbench.launchers import worker
from workbench.launchers.local import meeting_place, nursery
from workbench.launchers.worker import Worker, enlist
from workbench.run import trace_segment
from workbench.shared import how_it_ended

if TYPE_CHECKING:
    import polars as pl

STARTING = 60.0  # seconds for ranks to come up on a busy machine
QUIET = 0.12  # seconds without news before ranks are asked where they stand, and between two looks
ANSWER = 2.0  # seconds that a rank has for its answer; who is in native code gives none
SETTLED = 10.0  # seconds that a rank has for it that has returned: only a busy machine holds it up
AFTERMATH = 0.3  # seconds in which others may still say what they were in
SLOT_BYTES = 4096  # small, so that small tensors fill mailboxes too


@dataclass(frozen=True)
class Subject:
    """What is checked: a name of collectives/, a path, or source that travels."""

    operation: str
    name: str
    function: str | dict[str, str]
    place: Callable[[int, str], Place]  # line in the ranks' copy, function -> as the user has it


@dataclass
class Outcome:
    """What came of one case. ``reports``: what each rank said; ``results``: the bytes it left."""

    case: Case
    op: int
    reports: dict[int, dict[str, Any]] = field(default_factory=dict)
    results: dict[int, bytearray] = field(default_factory=dict)
    deadlock: Deadlock | None = None
    late: list[Stand] = field(default_factory=list)  # at the deadline: who runs or waits, and where
    ended: dict[int, str] = field(default_factory=dict)  # rank -> how its process ended
    left: list[tuple[int, int, Place, int]] = field(default_factory=list)  # sender, receiver, slots
    places: Callable[[int, str], Place] = lambda line, function: Place(line)

    @property
    def broke(self) -> bool:
        """Did it end in a way after which its ranks are of no use?"""
        raised = any("raised" in report for report in self.reports.values())
        return bool(raised or self.deadlock or self.late or self.ended or self.left)


class Crew:
    """``ranks`` processes from the warm pool. Close it, whatever happens."""

    def __init__(self, subject: Subject, ranks: int) -> None:
        from workbench.collector import Collector
        from workbench.store import Store

        self.subject, self.ranks = subject, ranks
        self._home = nursery()
        self._control = Control.create(ranks)
        self._segments = [trace_segment(f"rank {rank}") for rank in range(ranks)]
        self.store = Store()
        self._collector = Collector(
            self.store, {rank: segment.memory for rank, segment in enumerate(self._segments)}
        )
        self._rendezvous = meeting_place(ranks)
        self._asked = self._cases = 0
        self._selector = selectors.DefaultSelector()
        self._workers: list[Worker] = []
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        self._workers = enlist(self._home, range(self.ranks))
        subject = self.subject
        for one in self._workers:
            self._selector.register(one.socket, selectors.EVENT_READ, one)
            orders = {
                "work": "check", "rank": one.rank, "ranks": self.ranks,
                "port": self._rendezvous.port, "operation": subject.operation,
                "name": subject.name, "function": subject.function,
                "travels": not isinstance(subject.function, str), "slot_bytes": SLOT_BYTES,
                "folder": os.getcwd(),
            }  # fmt: skip
            one.order(orders, fds=[self._control.segment.fd, self._segments[one.rank].fd])
        ready: set[int] = set()
        deadline = time.monotonic() + STARTING
        while len(ready) < self.ranks:
            for rank, message, _ in self._listen(0.05):
                if "broken" in message:
                    raise WorkbenchError(f"rank {rank} could not begin:\n{message['broken']}")
                ready |= {rank} if "ready" in message else set()
            if self._ended:
                rank, code = next(iter(self._ended.items()))
                raise WorkbenchError(f"rank {rank} {how_it_ended(code)} before it could begin")
            if time.monotonic() > deadline:
                missing = sorted(set(range(self.ranks)) - ready)
                raise WorkbenchError(f"ranks {missing} did not begin within {STARTING:.0f} s")

    @property
    def _ended(self) -> dict[int, int]:
        return worker.ended(self._workers)

    # -- one case --

    def run(self, case: Case, timeout: float) -> Outcome:
        """Run the case; at the latest after ``timeout`` seconds and a bit it has an outcome."""
        found = Outcome(case, self._cases, places=self.subject.place)
        self._cases += 1
        self._say({"case": case.told()})
        self._follow(found, timeout)
        if not found.broke:
            self._settle(found)
        if found.broke:
            self._abort(found)
        self._collector.drain()
        return found

    def _follow(self, found: Outcome, timeout: float) -> None:
        case = found.case
        begun = quiet_since = time.monotonic()
        before: tuple[dict[int, Wait], int] | None = None
        while len(found.reports) < self.ranks:
            news = self._take(found, self._listen(QUIET / 4))
            if any("raised" in report for report in found.reports.values()) or self._ended:
                return
            if news:
                quiet_since, before = time.monotonic(), None
            elif time.monotonic() - quiet_since > QUIET:
                self._collector.drain()
                done = set(found.reports)
                told = self._where(found)
                if done != set(found.reports):  # somebody came to the end meanwhile
                    before = None
                    continue
                waits = {rank: one for rank, answer in told.items() if (one := _wait(answer))}
                if before and (caught := proven(*before, waits, self.ranks, done)):
                    found.deadlock = replace(
                        self._deadlock(case, caught, waits, told, done),
                        seconds=time.monotonic() - begun,
                    )
                    return
                before, quiet_since = (waits, time.monotonic_ns()), time.monotonic()
                if time.monotonic() - begun > timeout:
                    found.late = [
                        self._stand(case, rank, told.get(rank, {}))
                        for rank in range(self.ranks)
                        if rank not in done
                    ]
                    return

    def _take(self, found: Outcome, messages: list[tuple[int, dict[str, Any], bytearray]]) -> bool:
        news = False
        for rank, message, payload in messages:
            if message.get("done") == found.op:
                found.reports[rank], found.results[rank] = message, payload
                news = True
        return news

    def _settle(self, found: Outcome) -> None:
        """All have returned: is there something in a mailbox that nobody took?"""
        self._say({"settle": found.op})
        waiting = set(range(self.ranks))
        deadline = time.monotonic() + SETTLED
        while waiting and time.monotonic() < deadline and not self._ended:
            for rank, message, _ in self._listen(0.05):
                if "settled" in message:
                    waiting.discard(rank)
                    for to, line, slots in message["left"]:
                        found.left.append((rank, to, self.subject.place(line, ""), slots))
        for rank in waiting & set(self._ended):
            found.ended[rank] = how_it_ended(self._ended[rank])

    def _where(self, found: Outcome) -> dict[int, dict[str, Any]]:
        """Where each rank that has not returned stands now."""
        self._asked += 1
        self._say({"where": self._asked})
        told: dict[int, dict[str, Any]] = {}
        deadline = time.monotonic() + ANSWER
        while len(told) < self.ranks and time.monotonic() < deadline and not self._ended:
            messages = self._listen(0.05)
            self._take(found, messages)
            for rank, message, _ in messages:
                if message.get("here") == self._asked:
                    told[rank] = message
        return told

    def _deadlock(
        self, case: Case, caught: set[int], waits: dict[int, Wait],
        told: dict[int, dict[str, Any]], done: set[int],
    ) -> Deadlock:  # fmt: skip
        # Of ranks that only wait for others, who themselves wait in the set, nobody is the cause.
        caught = stuck(waits, self.ranks, done) & caught
        cycle = cycle_of(waits, caught)
        stands = tuple(self._stand(case, rank, told[rank]) for rank in sorted(caught))
        awaited = {waits[rank].peer for rank in caught} & done
        return Deadlock(stands, cycle, tuple(sorted(awaited or (set() if cycle else done))))

    def _stand(self, case: Case, rank: int, answer: dict[str, Any]) -> Stand:
        wait = _wait(answer)
        place = self.subject.place(answer.get("line", -1), answer.get("function", ""))
        if wait is None:
            return Stand(rank, -2, "running" if answer else "silent", place)
        full = case.mode == EAGER and wait.doing == "send"  # it would not wait for its receiver
        return Stand(rank, wait.peer, "post" if full else wait.doing, place)

    def _abort(self, found: Outcome) -> None:
        """Let those that wait say so in their records, and go."""
        self._control.words[ABORT] = 1
        self._control.refresh()
        self._control.open_gates()
        deadline = time.monotonic() + AFTERMATH
        while len(found.reports) < self.ranks and time.monotonic() < deadline:
            self._take(found, self._listen(0.02))
            if len(found.reports) + len(self._ended) >= self.ranks:
                break
        found.ended |= {
            rank: how_it_ended(code)
            for rank, code in self._ended.items()
            if rank not in found.reports
        }

    # -- talking --

    def _say(self, message: dict[str, Any]) -> None:
        for one in self._workers:
            one.order(message)

    def _listen(self, seconds: float) -> list[tuple[int, dict[str, Any], bytearray]]:
        heard = []
        for key, _ in self._selector.select(seconds):
            message = key.data.hear()
            if message is None:  # how it ended is told by the nursery
                self._selector.unregister(key.fileobj)
            else:
                heard.append((key.data.rank, *message))
        if not self._selector.get_map():
            time.sleep(min(seconds, 0.01))
        return heard

    # -- the end --

    @property
    def events(self) -> pl.DataFrame:
        self._collector.drain()
        return self.store.events

    def close(self) -> None:
        """End the ranks; returns when they are gone."""
        for one in self._workers:
            one.close()
        worker.end(self._workers)
        self._collector.stop()
        self._selector.close()
        for segment in (*self._segments, self._control.segment):
            segment.close()


def _wait(answer: dict[str, Any]) -> Wait | None:
    if not (found := answer.get("wait")):
        return None
    since, looked, peer = found
    return Wait(since, looked, peer, answer.get("doing", ""))
