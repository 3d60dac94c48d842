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
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from workbench import events
from workbench.events import CONTEXT, CONTEXTS, KINDS, LANES, PAGE, RECORD_BYTES, ROW, ROWS, STATUS
from workbench.files import read_folder
from workbench.store import Store
from workbench.table import Memory, NameTable, Records, resolve

__all__ = ["Collector", "read_folder"]

PERIOD_S = 0.04
HURRY_S = 0.004  # when a ring was over a quarter full
HURRY_FROM = 0.25
# Nobody looks on, and a ring takes 250 periods or more to fill: every fourth period will do.
LEISURE, LEISURE_BELOW = 4, 0.004
# Contexts of a lane that are kept: a row may go back to an older one (Lane.again).
_KNOWN = 4 * CONTEXTS
_T = TypeVar("_T", bound=np.generic)


class Collector:
    """Drains ``traces`` (rank -> TRACE_BYTES of memory) into ``store``, about 25 times a second;
    less often while there is little and nobody follows.

    ``records`` and ``dropped`` count since the start; ``cpu_ns`` is the processor time that
    draining took; ``broken`` says why a rank's memory is no longer read.
    """

    def __init__(self, store: Store, traces: Mapping[int, memoryview]) -> None:
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
        self._thread = threading.Thread(target=self._run, name="workbench collector", daemon=True)
        self._thread.start()

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
        """What the lanes are in now, as often as the rings are emptied when somebody looks on."""
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
        self, store: Store, rank: int, memory: memoryview, counts: Mapping[str, int]
    ) -> None:
        self.rank = rank
        self._store, self._memory = store, memory.cast("B")
        self._words = self._memory[:PAGE].cast("q")
        self._names = NameTable(store.number, self._memory)
        self._lanes: list[_Lane] = []
        self._counts = counts  # of lanes of the same name before this rank was restarted

    def counts(self) -> dict[str, int]:
        """How many records each lane had, by its name."""
        return dict(self._counts) | {
            lane.name: lane.offset + lane.rows.position for lane in self._lanes
        }

    def drain(self) -> tuple[int, int, float]:
        """Records stored, records dropped, how full the fullest ring was."""
        if self._words[events.H_MAGIC] != events.MAGIC:  # no recorder there yet
            return 0, 0, 0.0
        self._find_lanes()
        read = [(lane, lane.rows.read(), lane.contexts.read()[0]) for lane in self._lanes]
        self._names.read()
        stored = dropped = 0
        fullest = 0.0
        for lane, (rows, lost), contexts in read:
            if len(contexts):
                self._names.translate(contexts, "collective", "algorithm", "group")
                lane.known[contexts["id"] % _KNOWN] = contexts
            if not len(rows) and not lost:
                continue
            fullest = max(fullest, (len(rows) + lost) / ROWS)
            kept, used = resolve(rows, lane.known, self._names)
            dropped += lost + len(rows) - len(kept)
            stored += len(kept)
            if len(kept):
                kept["seq"] += lane.offset
                self._store.append(self.rank, lane.number, kept, used)
        return stored, dropped, fullest

    def _find_lanes(self) -> None:
        for index in range(len(self._lanes), min(self._words[events.H_LANES], LANES)):
            self._names.read()
            name = self._names.text(self._words_of_lane(index)[0])
            self._lanes.append(
                _Lane(
                    self._memory, index, name, self._store.number(name), self._counts.get(name, 0)
                )
            )

    def _words_of_lane(self, index: int) -> memoryview:
        at = events.LANES_AT + index * PAGE
        return self._memory[at : at + PAGE].cast("q")

    def now(self) -> Iterator[tuple[object, ...]]:
        """What the lanes are in, in the order of ``store.NOW_SCHEMA``."""
        lanes = [(lane.index, lane.name) for lane in self._lanes]
        return under_way(self._memory, self.rank, lanes, self._names)


class _Lane:
    """What is known of one lane: its two rings, and its latest contexts."""

    def __init__(self, memory: memoryview, index: int, name: str, number: int, offset: int) -> None:
        at = events.DATA_AT + index * events.LANE_BYTES
        self.index, self.name, self.number, self.offset = index, name, number, offset
        self.rows = _Ring(memory, at, ROWS, ROW)
        self.contexts = _Ring(memory, at + ROWS * RECORD_BYTES, CONTEXTS, CONTEXT)
        self.known: Records = np.zeros(_KNOWN, CONTEXT)


class _Ring:
    """The reader of one lane's rows, or contexts. ``position`` is the index of the next record."""

    def __init__(self, memory: memoryview, at: int, records: int, dtype: np.dtype[np.void]) -> None:
        self._records: Records = np.frombuffer(memory, dtype, records, at)
        self._seq: npt.NDArray[np.int64] = self._records["seq"]
        self.size, self.position = records, 0

    def read(self) -> tuple[Records, int]:
        """A copy of the records published since the last call, and how many were lost."""
        first = begin = self.position
        if self._seq[begin % self.size] == begin + 1:
            stop = begin + self._published(begin)
        else:
            stop = self._lapped(begin)
            first = max(begin, stop - self.size)
        if stop == begin:
            return self._records[:0], 0
        copy = _cut(self._records, first, stop)
        numbers = np.arange(first, stop + 1)
        behind = _cut(self._seq, first - 1, stop - 1)  # read after the copying
        whole = (copy["seq"] == numbers[1:]) & (behind == numbers[:-1])
        if not whole.all():
            copy = copy[whole]
        self.position = stop
        return copy, stop - begin - len(copy)

    def _published(self, begin: int) -> int:
        """How many records from ``begin`` on are there (one is): they were written in order."""
        seq, size, least, beyond = self._seq, self.size, 1, self.size + 1
        while beyond - least > 1:
            middle = (least + beyond) // 2
            if seq[(begin + middle - 1) % size] == begin + middle:
                least = middle
            else:
                beyond = middle
        return least

    def _lapped(self, begin: int) -> int:
        """Another is at the place of ``begin``: the index after the newest record, or ``begin``."""
        here, behind = self._seq[begin % self.size], self._seq[(begin - 1) % self.size]
        if here == begin + 1 - self.size or (here == 0 and behind == begin):
            return begin
        seq = self._seq.copy()
        # A number counts if it is in its place and follows the one before: stray bytes do neither.
        in_place = (seq - 1) % self.size == np.arange(self.size)
        real = (seq > begin + 1) & in_place & (np.roll(seq, 1) == seq - 1)
        return int(seq[real].max()) if real.any() else begin


def _cut(ring: npt.NDArray[_T], first: int, stop: int) -> npt.NDArray[_T]:
    """A copy of the ring's records ``first`` .. ``stop - 1``, one lap of them at most."""
    size = len(ring)
    at = first % size
    end = at + stop - first
    return ring[at:end].copy() if end <= size else np.concatenate([ring[at:], ring[: end - size]])


def under_way(
    trace: Memory, rank: int, lanes: Sequence[tuple[int, str]], names: NameTable
) -> Iterator[tuple[object, ...]]:
    """What a rank's lanes (index, name) are in, in the order of ``store.NOW_SCHEMA``."""
    text = names.text
    for index, lane in lanes:
        status = _status(trace, events.LANES_AT + index * PAGE + events.STATUS_AT)
        if status is None:
            continue
        _, since, kind, peer, group, collective, algorithm, dtype, *more = status
        op, step, chunk, ndim, count, *rest = more
        shape = str(tuple(rest[: min(ndim, 4)])) if dtype or ndim else ""
        yield (
            rank, lane, KINDS[kind - 1], peer,
            text(group), text(collective), text(algorithm), op, step, chunk, since,
            text(dtype), shape, rest[4 : 4 + min(count, 8)],
        )  # fmt: skip


def _status(memory: Memory, at: int) -> tuple[int, ...] | None:
    """The status at ``at``, or None: idle, or caught being written three times in a row.

    It is written in a tenth of a microsecond without a lock: what reads the same twice is believed.
    """
    for _ in range(3):
        data = bytes(memory[at : at + STATUS.size])
        status: tuple[int, ...] = STATUS.unpack(data)
        if status[2] == 0 or status[2] > len(KINDS):
            return None
        if data == bytes(memory[at : at + STATUS.size]):
            return status
    return None
