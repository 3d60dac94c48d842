"""The collector: a thread of the driver that empties the ranks' rings into the store.

Nobody waits for it: a rank that laps it overwrites records, which are counted. What it reads may
be written at the same moment, so nothing counts before it is known to be whole. A writer fills a
record in place, zeroes first and its number (``seq``) last, one record after the other. Hence

    published   record i is there when its place holds the number i + 1
    whole       what was copied from there is record i if, after the copying, the place before it
                still holds i: record i + ROWS, which overwrites record i, is begun only after
                record i - 1 + ROWS is published

Read in the order rows, contexts, names: whatever a row refers to was written before the row.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping

import numpy as np

from workbench.common import threads
from workbench.recording import events
from workbench.recording.events import (
    CONTEXT,
    CONTEXTS,
    KINDS,
    LANES,
    PAGE,
    RECORD_BYTES,
    ROW,
    ROWS,
    STATUS,
)
from workbench.recording.ring import Ring
from workbench.shared_memory.segments import need_ordered_stores
from workbench.store.event_store import Store
from workbench.store.table import NAMES_OF_CONTEXT, Memory, NameTable, Records, resolve

PERIOD_S = 0.04
HURRY_S = 0.004  # when a ring was over a quarter full
HURRY_FROM = 0.25
# Nobody looks on, and a ring takes 250 periods or more to fill: every fourth period will do.
LEISURE, LEISURE_BELOW = 4, 0.004
# Contexts of a lane that are kept: a row may go back to an older one (Lane.again).
_KNOWN = 4 * CONTEXTS


class Collector:
    """Drains ``traces`` (rank -> TRACE_BYTES of memory) into ``store``, about 25 times a second;
    less often while there is little and nobody follows.

    ``records`` and ``dropped`` count since the start; ``cpu_ns`` is the processor time that
    draining took; ``broken`` says why a rank's memory is no longer read.
    """

    def __init__(self, store: Store, traces: Mapping[int, memoryview]) -> None:
        need_ordered_stores("the collector")
        self.store = store
        self.records = self.dropped = self.cpu_ns = 0
        self.broken: dict[int, str] = {}
        self._ranks: dict[int, _Rank] = {}
        self._draining = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._sampled = 0.0
        for rank, memory in traces.items():
            self.add(rank, memory)

    def add(self, rank: int, memory: memoryview) -> None:
        """Read this rank too. One that was restarted with a new trace goes on counting."""
        with self._draining:
            before = self._ranks.get(rank)
            if before is not None:
                self._drain_rank(before)
            self._ranks[rank] = _Rank(self.store, rank, memory, before.counts() if before else {})
            self.broken.pop(rank, None)

    def start(self) -> None:
        self._thread = threads.start(self._run, "workbench collector", stop=self._ended.set)

    def stop(self) -> None:
        """End the thread and read what is left. Call it when the ranks have ended."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._sampled = 0.0
        self.drain()
        with self._draining:
            self._ranks.clear()  # and with it their memory: a finished run keeps the store only

    def drain(self) -> float:
        """Read what is there, from any thread. Returns how full the fullest ring was."""
        with self._draining:
            cpu = time.thread_time_ns()
            fullest = max((self._drain_rank(rank) for rank in self._ranks.values()), default=0.0)
            self._sample(time.monotonic())
            self.cpu_ns += time.thread_time_ns() - cpu
        return fullest

    def _sample(self, moment: float) -> None:
        """Sample what the lanes are in, as often as the rings are emptied while a page looks."""
        if moment - self._sampled >= PERIOD_S:
            self._sampled = moment
            self.store.set_now([status for rank in self._ranks.values() for status in rank.now()])

    def _run(self) -> None:
        pause, since, fullest = 0.0, LEISURE, 0.0
        while not self._ended.wait(pause):
            since += 1
            if since < LEISURE and fullest < LEISURE_BELOW and not self.store.followed:
                with self._draining:
                    cpu = time.thread_time_ns()
                    self._sample(time.monotonic())
                    self.cpu_ns += time.thread_time_ns() - cpu
                continue
            since, fullest = 0, self.drain()
            pause = HURRY_S if fullest > HURRY_FROM else PERIOD_S

    def _drain_rank(self, rank: _Rank) -> float:
        if rank.rank in self.broken:
            return 0.0
        try:
            records, dropped, fullest = rank.drain()
        except Exception as error:  # the others' recording goes on
            self.broken[rank.rank] = f"{type(error).__name__}: {error}"
            return 0.0
        self.records += records
        self.dropped += dropped
        self.store.dropped += dropped
        return fullest


class _Rank:
    """The reader of one rank's trace."""

    def __init__(
        self, store: Store, rank: int, memory: memoryview, counts: Mapping[int, int]
    ) -> None:
        self.rank = rank
        self._store, self._memory = store, memory.cast("B")
        self._words = self._memory[:PAGE].cast("q")
        self._names = NameTable(store.number, self._memory)
        self._lanes: list[_Lane] = []
        self._counts = counts  # of lanes of the same name before this rank was restarted
        self._ends: dict[int, int] = {}  # the number after a lane's last row, by its name
        self._lost = 0

    def counts(self) -> dict[int, int]:
        """Return how many records each lane had, by its name's number."""
        return dict(self._counts) | self._ends

    def drain(self) -> tuple[int, int, float]:
        """Return the records stored, the records dropped, and how full the fullest ring was."""
        if self._words[events.H_MAGIC] != events.MAGIC:  # no recorder there yet
            return 0, 0, 0.0
        there = min(self._words[events.H_LANES], LANES)
        self._lanes += [_Lane(self._memory, index) for index in range(len(self._lanes), there)]
        read = [(lane, lane.rows.read(), lane.contexts.read()[0]) for lane in self._lanes]
        self._names.read()
        stored = dropped = 0
        fullest = 0.0
        for lane, (rows, lost), contexts in read:
            if len(contexts):
                self._names.translate(contexts, *NAMES_OF_CONTEXT)
                lane.known[contexts["seq"] % _KNOWN] = contexts
            if not len(rows) and not lost:
                continue
            fullest = max(fullest, (len(rows) + lost) / ROWS)
            kept = 0
            for number, own, used in resolve(rows, lane.known, self._names):
                kept += len(own)
                own["seq"] += self._counts.get(number, 0)
                self._ends[number] = int(own["seq"][-1])
                self._store.append(self.rank, number, own, used)
            dropped += lost + len(rows) - kept
            stored += kept
        lost = events.lost_rows(self._words)
        dropped, self._lost = dropped + lost - self._lost, lost
        return stored, dropped, fullest

    def now(self) -> Iterator[tuple[object, ...]]:
        """Return what the lanes are in, in the order of ``store.NOW_SCHEMA``."""
        return under_way(self._memory, self.rank, len(self._lanes), self._names)


class _Lane:
    """A lane's place: its two rings, and its latest contexts."""

    def __init__(self, memory: memoryview, index: int) -> None:
        at = events.DATA_AT + index * events.LANE_BYTES
        self.rows = Ring(memory, at, ROWS, ROW)
        self.contexts = Ring(memory, at + ROWS * RECORD_BYTES, CONTEXTS, CONTEXT)
        self.known: Records = np.zeros(_KNOWN, CONTEXT)


def under_way(
    trace: Memory, rank: int, lanes: int, names: NameTable
) -> Iterator[tuple[object, ...]]:
    """Return what the first ``lanes`` lanes of a rank are in, ordered as ``store.NOW_SCHEMA``."""
    text = names.text
    for index in range(lanes):
        at = events.LANES_AT + index * PAGE
        owner = bytes(trace[at : at + 8])
        status = _status(trace, at + events.STATUS_AT)
        if status is None or owner != bytes(trace[at : at + 8]):  # given to another meanwhile
            continue
        lane = text(int.from_bytes(owner, "little"))
        _, since, kind, peer, group, collective, algorithm, dtype, *more = status
        op, step, chunk, ndim, count, *rest = more
        shape = str(tuple(rest[: min(ndim, 4)])) if dtype or ndim else ""
        yield (
            rank,
            lane,
            KINDS[kind - 1],
            peer,
            text(group),
            text(collective),
            text(algorithm),
            op,
            step,
            chunk,
            since,
            text(dtype),
            shape,
            rest[4 : 4 + min(count, 8)],
        )


def _status(memory: Memory, at: int) -> tuple[int, ...] | None:
    """Return the status at ``at``, or None: idle, or caught being written three times in a row.

    It is written in a tenth of a microsecond without a lock: what reads the same twice, with an
    even number, is believed.
    """
    for _ in range(3):
        data = bytes(memory[at : at + STATUS.size])
        status: tuple[int, ...] = STATUS.unpack(data)
        if status[0] % 2:
            continue
        if status[2] == 0 or status[2] > len(KINDS):
            return None
        if data == bytes(memory[at : at + STATUS.size]):
            return status
    return None
