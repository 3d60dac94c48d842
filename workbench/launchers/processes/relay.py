"""Control words and records of a rank that shares no memory with the driver, as messages.

    driver: control block, trace  ── a stream ──  agent: a control block and a trace of its own

Each side has its own memory of the same layout; what runs on either side does not know of the
other. Words travel when they change (``Words``); the records of a trace as their numbers say, from
the agent to the driver (``TraceReader``, ``apply``). Gates are semaphores and do not travel: a rank
that stands at one looks around every control_block.SLICE seconds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from workbench.launchers.processes.coarser import Folding
from workbench.launchers.processes.host_clock import HostClock
from workbench.recording.events import (
    CONTEXT,
    CONTEXTS,
    DATA_AT,
    H_KNOCKS,
    H_LANES,
    LANE_BYTES,
    LANES,
    LANES_AT,
    PAGE,
    RECORD_BYTES,
    ROW,
    ROWS,
    STATUS,
    STATUS_AT,
)
from workbench.recording.ring import Ring
from workbench.shared_memory.control_block import LINK_WORDS, RANK_WORDS, RANKS, RUN_WORDS
from workbench.shared_memory.ordering import fence, observe, publish

AT_ONCE = 256  # records that are written before the collector is thought of
PERIOD_S = 0.01  # between two looks at what has changed, at least
IDLE = 4  # times as long as a look has taken: where cores are busy, ranks come first
PIECE = 256  # bytes, of what is before the rings: a lane's identity and status are in one
assert STATUS_AT + STATUS.size <= PIECE
SEQ_AT = int(ROW.fields["seq"][1])  # type: ignore[index]  # in a record, of both kinds


class Words:
    """The words of a control block, and what the other side knows of them."""

    def __init__(self, words: memoryview) -> None:
        ranks = words[RANKS]
        count = RUN_WORDS + ranks * RANK_WORDS + ranks * ranks * LINK_WORDS
        self._words = np.frombuffer(words[:count], np.int64)
        self._known = self._words.copy()
        self._lock = threading.Lock()

    def all(self) -> bytes:
        """Return every word as it is now, for the other side to begin with."""
        with self._lock:
            self._known[:] = self._words
            return self._known.tobytes()

    def begin(self, data: bytes | bytearray) -> None:
        """Take over what ``all`` gave on the other side."""
        with self._lock:
            self._words[:] = self._known[:] = np.frombuffer(data, np.int64)

    def changes(self) -> list[list[int]]:
        """Return index and value of the words that this side has changed since the last call."""
        with self._lock:
            changed = np.flatnonzero(self._words != self._known)
            result = [[int(at), int(self._words[at])] for at in changed]
            for at, value in result:
                self._known[at] = value
        return result

    def apply(self, changes: Sequence[Sequence[int]]) -> None:
        """Write what the other side has changed."""
        with self._lock:
            for at, value in changes:
                self._words[at] = self._known[at] = value


class TraceReader:
    """Reads what a rank has added to its trace since the last look."""

    def __init__(self, memory: memoryview) -> None:
        self._memory = memory
        self._header = memory[:PAGE].cast("q")
        self._head = np.frombuffer(memory[:DATA_AT], np.int64)
        self._known = np.zeros_like(self._head)
        self._rings: list[tuple[int, Ring]] = []
        self._foldings: list[Folding] = []

    @property
    def folded(self) -> list[int]:
        """Return how many rows were folded, and into how many."""
        return [sum(one.chunks for one in self._foldings), sum(one.rows for one in self._foldings)]

    def read(self, level: int = 0) -> tuple[list[list[int]], bytes]:
        """Return what has been written since the last call: where each part goes, as
        [offset, bytes]; and all parts, in the order to write them. ``level``: of detail, as in
        coarser.py.

        Read as the collector reads: rows, then contexts, then names, because whatever a row refers
        to was written before it; and written the other way round.
        """
        lanes = min(observe(self._header, H_LANES), LANES)
        for lane in range(len(self._rings) // 2, lanes):
            at = DATA_AT + lane * LANE_BYTES
            behind = at + ROWS * RECORD_BYTES
            self._rings.append((at, Ring(self._memory, at, ROWS, ROW)))
            self._foldings.append(Folding())
            self._rings.append((behind, Ring(self._memory, behind, CONTEXTS, CONTEXT)))
        rows = [ring.read()[0] for _, ring in self._rings[::2]]
        contexts = [ring.read()[0] for _, ring in self._rings[1::2]]
        for lane, folding in enumerate(self._foldings):
            rows[lane], contexts[lane] = folding.take(rows[lane], contexts[lane], level)
        places = [at for kind in (0, 1) for at, _ in self._rings[kind::2]]
        fresh = zip(places, rows + contexts, strict=True)
        records = [(at, one.tobytes()) for at, one in fresh if len(one)]
        records.reverse()  # what was read last is written first
        ordered = self._changed_pieces() + records
        return [[at, len(data)] for at, data in ordered], b"".join(data for _, data in ordered)

    def _changed_pieces(self) -> list[tuple[int, bytes]]:
        """Return what has changed before the rings; the header is the last to be written."""
        used = (LANES_AT + len(self._rings) // 2 * PAGE) // 8
        header = self._head[: PAGE // 8].copy()
        fence()  # what it counts is behind it
        header[H_KNOCKS] = 0  # a write here wakes no process there
        head, known = np.concatenate([header, self._head[PAGE // 8 : used]]), self._known[:used]
        pieces = np.flatnonzero((head != known).reshape(-1, PIECE // 8).any(axis=1))
        known[:] = head
        data = head.tobytes()
        return [(at, data[at : at + PIECE]) for at in (pieces[::-1] * PIECE).tolist()]


class Room:
    """Counts the records written into each ring of a trace since its collector last read.
    ``drain``: has it read now; what an agent has kept comes faster than it reads by itself.
    """

    def __init__(self) -> None:
        self.drain: Callable[[], object] | None = None
        self._written: dict[int, int] = {}

    def take(self, at: int, ring: int, records: int) -> None:
        """Make room for so many records in the ring at ``at``, which has place for ``ring``."""
        if self.drain is not None and self._written.get(at, 0) + records > ring // 2:
            self.drain()
            self._written.clear()
        self._written[at] = self._written.get(at, 0) + records


def apply(
    memory: memoryview,
    parts: Sequence[Sequence[int]],
    data: memoryview,
    clock: HostClock | None = None,
    room: Room | None = None,
) -> None:
    """Write what ``TraceReader.read`` gave into the trace that the driver's collector reads.
    ``clock``: the rank's, where it is not the driver's; the times written are the driver's.
    """
    begin = 0
    for at, size in parts:
        part = data[begin : begin + size]
        begin += size
        if at < DATA_AT:
            if clock is not None and at >= LANES_AT and at % PAGE == 0:
                part = _status_here(part, clock)
            fence()
            if at >= LANES_AT and at % PAGE == 0:
                _write_status(memory, at, part)
            else:
                memory[at : at + size] = part
            continue
        ring = ROWS if (at - DATA_AT) % LANE_BYTES == 0 else CONTEXTS
        if clock is not None and ring == ROWS:
            part = _rows_here(part, clock)
        numbers = np.frombuffer(part, ROW if ring == ROWS else CONTEXT)["seq"]
        for record, number in enumerate(numbers.tolist()):
            if room is not None and record % AT_ONCE == 0:
                room.take(at, ring, min(AT_ONCE, len(numbers) - record))
            _write(
                memory,
                at + (number - 1) % ring * RECORD_BYTES,
                part[record * RECORD_BYTES : (record + 1) * RECORD_BYTES],
                number,
            )


def _rows_here(part: memoryview, clock: HostClock) -> memoryview:
    """Return rows with the driver's times."""
    rows = np.frombuffer(part, ROW).copy()
    for name in ("start_ns", "end_ns"):
        rows[name] = clock.here(rows[name])
    return memoryview(rows.tobytes())


def _status_here(part: memoryview, clock: HostClock) -> memoryview:
    """Return the first piece of a lane's page whose status has begun by the driver's clock."""
    page = bytearray(part)
    at = STATUS_AT + 8  # its second word
    if since := int.from_bytes(page[at : at + 8], "little", signed=True):
        page[at : at + 8] = int(clock.here(since)).to_bytes(8, "little", signed=True)
    return memoryview(page)


def _write(memory: memoryview, at: int, record: Any, number: int) -> None:
    """Write a record as its first writer did: zeroes, what it says, and its number last."""
    fence()
    memory[at : at + RECORD_BYTES] = bytes(RECORD_BYTES)
    memory[at : at + SEQ_AT] = record[:SEQ_AT]
    memory[at + SEQ_AT + 8 : at + RECORD_BYTES] = record[SEQ_AT + 8 :]
    publish(memory[at:][:RECORD_BYTES].cast("q"), SEQ_AT // 8, number)


def _write_status(memory: memoryview, at: int, piece: memoryview) -> None:
    """Write a lane's identity and status, whose number is odd meanwhile."""
    place, number_at = memory[at:][: len(piece)], STATUS_AT // 8
    words, number = place.cast("q"), piece.cast("q")[number_at]
    words[number_at] = number | 1
    fence()
    place[:STATUS_AT], place[STATUS_AT + 8 :] = piece[:STATUS_AT], piece[STATUS_AT + 8 :]
    publish(words, number_at, number)
