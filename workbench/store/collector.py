"""The collector: a thread of the driver that empties the ranks' rings into the store.

No rank waits for it: one that laps it overwrites records, which are counted. What it reads may
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from workbench import native
from workbench.common import threads
from workbench.shared_memory.segments import need_ordered_stores
from workbench.store.event_store import Store
from workbench.store.rank_reader import CompiledReader, RankReader, reader

PERIOD_S = 0.04
HURRY_S = 0.004  # when a ring was over a quarter full
HURRY_FROM = 0.25
LEISURE = 8  # periods between two drains where nobody looks on and no ring fills


class Collector:
    """Drains ``traces`` (rank -> TRACE_BYTES of memory) into ``store``, about 25 times a second;
    less often while there is little and no page follows.

    ``records`` and ``dropped`` count since the start; ``cpu_ns`` is the processor time that
    collecting took, waking up for it included; ``broken`` says why a rank's memory is no longer
    read.
    """

    def __init__(self, store: Store, traces: Mapping[int, memoryview]) -> None:
        need_ordered_stores("the collector")
        self.store = store
        self.records = self.dropped = self.cpu_ns = 0
        self.broken: dict[int, str] = {}
        self._ranks: dict[int, RankReader] = {}
        self._draining = threading.Lock()
        self._ended = threading.Event()
        self._word = np.zeros(1, np.int64)  # not 0: the thread is to stop watching
        self._thread: threading.Thread | None = None
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
        self._wake()

    def start(self) -> None:
        self._thread = threads.start(self._run, "workbench collector", stop=self._end)

    def stop(self) -> None:
        """End the thread and read what is left. Call it when the ranks have ended."""
        self._end()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
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
        self.cpu_ns += time.thread_time_ns() - cpu

    def _now(self) -> Sequence[tuple[object, ...]]:
        """Sample what the lanes are in, at most as often as the rings are emptied."""
        with self._draining, self._counted():
            moment = time.monotonic()
            if moment - self._sampled >= PERIOD_S:
                self._sampled = moment
                self._sample = [status for rank in self._ranks.values() for status in rank.now()]
            return self._sample

    def _wake(self) -> None:
        self._word[0] = 1

    def _end(self) -> None:
        self._ended.set()
        self._wake()

    def _run(self) -> None:
        wait = self._look_on if native.compiled() is None else self._watch
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

    def _watch(self, _: float) -> None:
        """Wait until it is time, while C keeps the rings from filling."""
        mover = native.compiled()
        assert mover is not None
        self._word[0] = 0
        if self._ended.is_set():
            return
        periods = 1 if self.store.followed else LEISURE
        with self._draining:
            ranks = [rank for rank in self._ranks.values() if rank.rank not in self.broken]
            rings = tuple(rank.rings for rank in ranks if isinstance(rank, CompiledReader))
        with self._counted():
            mover.watch_rings(rings, periods * PERIOD_S, self._word)

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
