"""The collector: a thread of the driver that empties the ranks' rings into the store.

No rank waits for it: one that laps it overwrites records, which are counted. What it reads may
be written at the same moment, so nothing counts before it is known to be whole. A writer fills a
record in place, zeroes first and its number (``seq``) last, one record after the other. Hence

    published   record i is there when its place holds the number i + 1
    whole       what was copied from there is record i if, after the copying, the place before it
                still holds i: record i + ROWS, which overwrites record i, is begun only after
                record i - 1 + ROWS is published

Read in the order rows, contexts, names: whatever a row refers to was written before the row.

Where C reads the rings, a second thread empties them into C's memory (native/watch.c). It never
waits for the interpreter, which another thread of the driver may keep for a second: while it loads
a large library, say. In that time a fast rank laps its ring.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from workbench import native
from workbench.common import threads
from workbench.shared_memory.ordering import need_order
from workbench.store.event_store import Store
from workbench.store.rank_reader import CompiledReader, RankReader, reader

PERIOD_S = 0.04
HURRY_S = 0.004  # when a ring was over a quarter full
HURRY_FROM = 0.25
LEISURE = 8  # periods between two drains while no reader waits and no ring fills
LONG_LEISURE = 25  # the same where C keeps the rings from filling
LONGEST_WATCH_S = 3000.0  # it ends when a word is set


class Collector:
    """Drains ``traces`` (rank -> TRACE_BYTES of memory) into ``store``, about 25 times per second;
    less often while there is little and no page follows.

    ``records`` and ``dropped`` count since the start; ``cpu_ns`` is the processor time that
    collecting took, waking up for it included; ``broken`` says why a rank's memory is no longer
    read.
    """

    def __init__(self, store: Store, traces: Mapping[int, memoryview]) -> None:
        need_order("the collector")
        self.store = store
        self.records = self.dropped = self._cpu_ns = 0
        self.broken: dict[int, str] = {}
        self._ranks: dict[int, RankReader] = {}
        self._draining = threading.Lock()
        self._ended = threading.Event()
        self._due = threading.Event()  # rows are wanted at once, or no more
        # Not 0: the second thread is to stop watching; its processor time in nanoseconds.
        self._words = np.zeros(2, np.int64)
        self._threads: list[threading.Thread] = []
        self._sampled, self._sample = 0.0, list[tuple[object, ...]]()
        for rank, memory in traces.items():
            self.add(rank, memory)
        store.collected_by(self._now, self._wake)

    def add(self, rank: int, memory: memoryview) -> None:
        """Read this rank too. One that was restarted with a new trace goes on counting."""
        with self._draining:
            before = self._ranks.get(rank)
            if before is not None:
                self._drain_rank(before)
            counts = before.counts() if before else {}
            self._ranks[rank] = reader(self.store.append, self.store.number, rank, memory, counts)
            self.broken.pop(rank, None)
            self._interrupt()  # the second thread is to watch this one's rings, too

    @property
    def cpu_ns(self) -> int:
        return self._cpu_ns + int(self._words[1])

    def start(self) -> None:
        work = {"workbench collector": self._run}
        if native.compiled() is not None:
            work["workbench rings"] = self._watch
        self._threads = [threads.start(one, name, stop=self._end) for name, one in work.items()]

    def stop(self) -> None:
        """End the thread and read what is left. Call it when the ranks have ended."""
        self._end()
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        self.drain()
        self._sampled = 0.0
        self.store.collected_by(None, None)
        self.store.set_now(self._now())
        with self._draining:
            self._ranks.clear()  # and with it their memory: a finished run keeps the store only

    def drain(self) -> float:
        """Read what is there, from any thread. Returns how full the fullest ring was."""
        with self._draining, self._counted():
            return max((self._drain_rank(rank) for rank in self._ranks.values()), default=0.0)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Count the processor time of what runs inside."""
        cpu = time.thread_time_ns()
        yield
        self._cpu_ns += time.thread_time_ns() - cpu

    def _now(self) -> Sequence[tuple[object, ...]]:
        """Sample what the lanes are in, at most as often as the rings are emptied."""
        with self._draining, self._counted():
            moment = time.monotonic()
            if moment - self._sampled >= PERIOD_S:
                self._sampled = moment
                self._sample = [status for rank in self._ranks.values() for status in rank.now()]
            return self._sample

    def _wake(self) -> None:
        self._due.set()

    def _end(self) -> None:
        self._ended.set()
        self._wake()
        self._interrupt()

    def _interrupt(self) -> None:
        """End the second thread's watch."""
        self._words[0] = 1
        mover = native.compiled()
        if mover is not None:
            mover.wake_watch(self._words)

    def _run(self) -> None:
        wait = self._look_on if native.compiled() is None else self._wait
        fullest = 0.0
        while not self._ended.is_set():
            wait(fullest)
            fullest = self.drain()

    def _look_on(self, fullest: float) -> None:
        """Wait until a ring fills or it is time; ``fullest``: how full one was."""
        hurries = fullest > HURRY_FROM
        for _ in range(LEISURE):
            if self._ended.wait(HURRY_S if hurries else PERIOD_S) or hurries or self.store.followed:
                return
            with self._draining, self._counted():
                if any(rank.filling() for rank in self._ranks.values()):
                    return

    def _wait(self, fullest: float) -> None:
        """Wait until it is time, while the second thread keeps the rings from filling."""
        soon = self.store.followed or fullest > HURRY_FROM
        self._due.wait(PERIOD_S * (1 if soon else LONG_LEISURE))
        self._due.clear()

    def _watch(self) -> None:
        """Have C keep the rings from filling, without the interpreter, until the end."""
        mover = native.compiled()
        assert mover is not None
        while True:
            with self._draining:
                self._words[0] = self._ended.is_set()
                ranks = [rank for rank in self._ranks.values() if rank.rank not in self.broken]
                rings = tuple(rank.rings for rank in ranks if isinstance(rank, CompiledReader))
            if self._ended.is_set():
                return
            mover.watch_rings(rings, LONGEST_WATCH_S, self._words)

    def _drain_rank(self, rank: RankReader) -> float:
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
