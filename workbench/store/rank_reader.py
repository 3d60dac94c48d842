"""The reader of one rank's trace: rows with their contexts into the store, and what is under way.

``reader`` gives the compiled one (native/drain.c) where it is there, else the Python one. Both read
in the order rows, contexts, names: whatever a row refers to was written before the row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from workbench import native
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
from workbench.shared_memory.ordering import fence, observe
from workbench.store.table import NAMES_OF_CONTEXT, Memory, NameTable, Records, resolve

# Contexts of a lane that are kept: a row may go back to an older one (Lane.again).
KNOWN = 4 * CONTEXTS
# A ring of which less than this share is new may wait.
LITTLE = 0.05
Append = Callable[[int, int, Records, Records], None]  # as Store.append


class RankReader:
    """The reader of one rank's trace. ``counts``: of lanes of the same name before the rank was
    restarted.
    """

    def __init__(
        self,
        append: Append,
        number: Callable[[str], int],
        rank: int,
        memory: memoryview,
        counts: Mapping[int, int],
    ) -> None:
        self.rank = rank
        self._append, self._memory = append, memory.cast("B")
        self._words = self._memory[:PAGE].cast("q")
        self._names = NameTable(number, self._memory)
        self._lanes: list[_Lane] = []
        self._counts = counts
        self._ends: dict[int, int] = {}  # the number after a lane's last row, by its name
        self._lost = 0

    def counts(self) -> dict[int, int]:
        """Return how many records each lane had, by its name's number."""
        return dict(self._counts) | self._ends

    def drain(self) -> tuple[int, int, float]:
        """Return the records stored, the records dropped, and how full the fullest ring was."""
        if observe(self._words, events.H_MAGIC) != events.MAGIC:  # no recorder there yet
            return 0, 0, 0.0
        self._open_lanes()
        read = [(lane, lane.rows.read(), lane.contexts.read()[0]) for lane in self._lanes]
        self._names.read()
        stored = dropped = 0
        fullest = 0.0
        for lane, (rows, lost), contexts in read:
            if len(contexts):
                self._names.translate(contexts, *NAMES_OF_CONTEXT)
                lane.known[contexts["seq"] % len(lane.known)] = contexts
            if not len(rows) and not lost:
                continue
            fullest = max(fullest, (len(rows) + lost) / lane.rows.size)
            kept = 0
            for number, own, used in resolve(rows, lane.known, self._names):
                kept += len(own)
                self._store(number, own, used)
            dropped += lost + len(rows) - kept
            stored += kept
        return stored, dropped + self._newly_lost(), fullest

    def _store(self, number: int, rows: Records, contexts: Records) -> None:
        if before := self._counts.get(number, 0):
            rows["seq"] += before
        self._ends[number] = int(rows["seq"][-1])
        self._append(self.rank, number, rows, contexts)

    def _newly_lost(self) -> int:
        """Count the rows that had no lane since the last call."""
        lost = events.lost_rows(self._words)
        newly, self._lost = lost - self._lost, lost
        return newly

    def _open_lanes(self) -> None:
        there = min(observe(self._words, events.H_LANES), LANES)
        self._lanes += [_Lane(self._memory, index) for index in range(len(self._lanes), there)]

    def filling(self) -> bool:
        """Return whether a ring has more than a little that is new, at the cost of a glance."""
        if self._words[events.H_MAGIC] != events.MAGIC:
            return False
        if self._words[events.H_LANES] > len(self._lanes):
            return True
        rings = (ring for lane in self._lanes for ring in (lane.rows, lane.contexts))
        return any(ring.has(int(LITTLE * ring.size)) for ring in rings)

    def now(self) -> Iterator[tuple[object, ...]]:
        """Return what the lanes are in, in the order of ``store.NOW_SCHEMA``."""
        there = 0
        if self._words[events.H_MAGIC] == events.MAGIC:
            there = min(self._words[events.H_LANES], LANES)
        return under_way(self._memory, self.rank, there, self._names)


class _Lane:
    """A lane's place: its two rings, and its latest contexts."""

    def __init__(self, memory: memoryview, index: int) -> None:
        at = events.DATA_AT + index * (ROWS + CONTEXTS) * RECORD_BYTES
        self.rows = Ring(memory, at, ROWS, ROW)
        self.contexts = Ring(memory, at + ROWS * RECORD_BYTES, CONTEXTS, CONTEXT)
        self.known: Records = np.zeros(KNOWN, CONTEXT)


class CompiledReader(RankReader):
    """The same with native/drain.c; ``rings`` may be watched while the interpreter is elsewhere."""

    def __init__(
        self,
        append: Append,
        number: Callable[[str], int],
        rank: int,
        memory: memoryview,
        counts: Mapping[int, int],
    ) -> None:
        super().__init__(append, number, rank, memory, counts)
        mover = native.compiled()
        assert mover is not None
        layout = (events.MAGIC, events.DATA_AT, ROWS, CONTEXTS, len(KINDS))
        self.rings = mover.Reader(self._memory, self._names.numbers, *layout)

    def drain(self) -> tuple[int, int, float]:
        """Return the records stored, the records dropped, and how full the fullest ring was."""
        stored, dropped, fullest = self._take()
        if fullest >= 1:  # there was no room for all that was new
            more, lost, _ = self._take()
            stored, dropped = stored + more, dropped + lost
        return stored, dropped + self._newly_lost(), fullest

    def _take(self) -> tuple[int, int, float]:
        self.rings.gather()
        self._names.read()
        stored, dropped, fullest, parts = self.rings.take()
        for number, rows, contexts in parts:
            self._store(number, np.frombuffer(rows, ROW), np.frombuffer(contexts, CONTEXT))
        return stored, dropped, fullest


def reader(
    append: Append,
    number: Callable[[str], int],
    rank: int,
    memory: memoryview,
    counts: Mapping[int, int],
) -> RankReader:
    """Return the reader of a rank's trace, compiled where that is there."""
    kind = RankReader if native.compiled() is None else CompiledReader
    return kind(append, number, rank, memory, counts)


def under_way(
    trace: Memory, rank: int, lanes: int, names: NameTable
) -> Iterator[tuple[object, ...]]:
    """Return what the first ``lanes`` lanes of a rank are in, ordered as ``store.NOW_SCHEMA``."""
    text = names.text
    for index in range(lanes):
        at = events.LANES_AT + index * PAGE
        owner = bytes(trace[at : at + 8])
        fence()
        status = status_of(trace, at + events.STATUS_AT)
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


def status_of(memory: Memory, at: int) -> tuple[int, ...] | None:
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
        fence()
        if data == bytes(memory[at : at + STATUS.size]):
            return status
    return None
