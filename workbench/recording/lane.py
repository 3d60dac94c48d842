"""The log of one thread: rows, what they have in common, and what is under way right now.

Writing a row is one ``struct.pack_into``: no lock, no system call, no allocation.
"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from workbench.native import compiled
from workbench.recording.events import NOWHERE, PAGE, RECORD_BYTES, SEND, STATUS_AT, Where, now
from workbench.recording.meter import EVERY, FIRST, Meter
from workbench.shared_memory import ordering

_ROW, _CONTEXT = "qqIHhiiiHHqd", "HHHHiiqqqqq"  # a record's fields, without its number
_pack_status_number = struct.Struct("q").pack_into
_pack_status_head = struct.Struct("qHhHHHHqii").pack_into
_AFTER_NUMBER = STATUS_AT + struct.calcsize("q")
_HEAD = struct.calcsize("qqHhHHHHqii")
_pack_counts = struct.Struct("HH").pack_into
_pack_shape = struct.Struct("HH4x4q").pack_into
_VALUES = _HEAD + struct.calcsize("HH4x4q")
_pack_values = struct.Struct("8d").pack_into
_NO_SHAPE, _NO_VALUES = (0,) * 4, (math.nan,) * 8
_NAN = math.nan
Write = Callable[..., None]
# How a row is written, how its context is named, how writing ends.
Writer = tuple[Write, Callable[[int], None], Callable[[Callable[[], None]], None]]


class Names(Protocol):
    """Gives each text a number (a Recorder does)."""

    generation: int  # of the rows that follow

    def name(self, text: str) -> int: ...
    def lives(self, moment: int) -> None: ...


class Lane:
    """The log of one thread at a time: ``write`` a row, set the ``context`` of the rows that
    follow.
    """

    write: Write
    journal: Any = None  # what the mover writes through, if it writes to this lane

    def __init__(
        self, recorder: Names, name: str, number: int, place: LaneMemory, written: int = 0
    ) -> None:
        """Open a lane; ``number``: the name's; ``written``: the rows already under that name."""
        self.recorder, self.name, self.index, self.users = recorder, name, place.index, 0
        self._number, self._place, self._first = number, place, place.rows.seq - written
        self._latest: tuple[tuple[int, ...], int] = (), 0  # the newest context, and its id
        self._open()
        self.context()

    def _open(self) -> None:
        place = self._place
        self._page, self._contexts, self._status_seq = place.page, place.contexts, 0
        self._pack_context = _packer(_CONTEXT)
        self.write, self._use_context, self._end = row_writer(place.rows, self, place.meter)

    def mute(self, lost: Callable[[], None] | None) -> None:
        """Write nothing: ``lost`` counts the rows, None if they are of no interest."""
        self.write = no_write if lost is None else _counting(lost)

    def leave(self, lost: Callable[[], None]) -> int:
        """Write here no more; rows written later are ``lost``. Returns how many rows there are."""
        self.idle()
        self._end(lost)
        self._page, self._contexts = bytearray(PAGE), nowhere()
        return self._place.rows.seq - self._first

    def context(
        self,
        collective: int = 0,
        algorithm: int = 0,
        group: int = 0,
        op: int = -1,
        where: Where = NOWHERE,
        generation: int = -1,
    ) -> int:
        """Set what the rows that follow have in common. ``generation``: the recorder's, if -1.

        Names are given as numbers (``Recorder.name``). Returns its id: that of the newest one, if
        it says the same, because a ring of contexts is shorter than one of rows.
        """
        fields = (
            collective,
            algorithm,
            group,
            self._number,
            self.recorder.generation if generation < 0 else generation,
            where.microbatch,
            op,
            where.iteration,
            where.stage,
            where.version,
            self._first,
        )
        latest, number = self._latest
        if fields != latest:
            log = self._contexts
            at = log.claim()  # first: it may bring new memory
            number = log.seq
            self._pack_context(log.memory, at, *fields, number)
            self._latest = fields, number
        self._use_context(number)
        return number

    def again(self, context_id: int) -> None:
        """Go back to a context that was written before (after a nested span, say)."""
        self._use_context(context_id)

    def status(
        self,
        kind: int,
        *,
        peer: int = -1,
        group: int = 0,
        collective: int = 0,
        algorithm: int = 0,
        dtype: int = 0,
        op: int = -1,
        step: int = -1,
        chunk: int = -1,
        shape: tuple[int, ...] = (),
        values: tuple[float, ...] = (),
    ) -> None:
        """Set what this lane is doing right now; the collector samples it at 20 Hz.

        Its number is odd while it is written: a rank may be taken off its core meanwhile.
        """
        self._status_seq += 2
        memory, at = self._page, STATUS_AT
        _pack_status_number(memory, at, self._status_seq - 1)
        if ordering.WEAK:
            ordering.fence()
        if shape or values:
            dims = (shape + _NO_SHAPE)[:4]
            _pack_shape(memory, at + _HEAD, min(len(shape), 4), min(len(values), 8), *dims)
            if values:
                _pack_values(memory, at + _VALUES, *(values + _NO_VALUES)[:8])
        else:
            _pack_counts(memory, at + _HEAD, 0, 0)
        _pack_status_head(
            memory,
            _AFTER_NUMBER,
            now(),
            kind + 1,
            peer,
            group,
            collective,
            algorithm,
            dtype,
            op,
            step,
            chunk,
        )
        if ordering.WEAK:
            ordering.fence()
        _pack_status_number(memory, at, self._status_seq)

    def count_cost(self, ns: int) -> None:
        """Count processor time that recording took here beside rows, in what the meter says."""
        if self._place.meter is not None:
            self._place.meter.took(ns)

    def idle(self) -> None:
        """Note that nothing is under way in this lane."""
        self._status_seq += 2
        page = self._page
        _pack_status_number(page, STATUS_AT, self._status_seq - 1)
        if ordering.WEAK:
            ordering.fence()
        _pack_status_head(page, _AFTER_NUMBER, now(), 0, -1, 0, 0, 0, 0, -1, -1, -1)
        if ordering.WEAK:
            ordering.fence()
        _pack_status_number(page, STATUS_AT, self._status_seq)


class Log:
    """Records of one lane: a ring in the trace, or a file that grows by a block at a time."""

    def __init__(
        self, memory: memoryview, at: int, records: int, grow: Callable[[int], memoryview] | None
    ) -> None:
        self.memory, self.at, self.records, self.grow = memory, at, records, grow
        # Of the last record claimed, counted from 1: a zero in memory is a record never written.
        self.seq = 0

    def claim(self) -> int:
        """Return the offset of the next record."""
        place = self.seq % self.records
        if place == 0 and self.grow and self.seq:
            self.memory = self.grow(self.seq // self.records)
        self.seq += 1
        return self.at + place * RECORD_BYTES


def nowhere() -> Log:
    """Return a log that is never read."""
    return Log(memoryview(bytearray(RECORD_BYTES)), 0, 1, None)


@dataclass(eq=False, slots=True)
class LaneMemory:
    """The place in memory that a lane writes to, and after it others; ``index`` -1: nowhere.
    ``knocks``: the word that wakes the process that reads the rings.
    """

    index: int
    page: memoryview | bytearray
    rows: Log
    contexts: Log
    meter: Meter | None = None
    knocks: memoryview | None = None


class _Turn:
    """A writer's special cases: a block's end, a row that is to be timed, a lane that has gone."""

    def __init__(self, log: Log, lane: Lane | None, meter: Meter | None) -> None:
        self.log, self.lane, self.meter = log, lane, meter
        self.end = log.at + log.records * RECORD_BYTES
        self.lost: Callable[[], None] | None = None

    def first_stop(self, offset: int) -> int:
        """Return where writing from ``offset`` on comes here first."""
        if self.meter is None:
            return self.end
        return min(offset + (FIRST + 1) * RECORD_BYTES, self.end)

    def take(
        self, memory: memoryview, offset: int, seq: int
    ) -> tuple[memoryview, int, int, Write | None]:
        """Return where the row is written, the offset at which to come again, and what takes the
        row instead, if anything does: it writes the very same row again, as any caller does.
        """
        if self.lost is not None:
            return memory, offset - RECORD_BYTES, offset, self._lose
        log, meter = self.log, self.meter
        if offset == self.end:
            offset = log.at
            if log.grow:
                began = now()
                memory = log.grow(seq // log.records)
                if meter is not None:
                    meter.took(now() - began)
        if meter is None or self.lane is None:
            return memory, offset, self.end, None
        stop = min(offset + EVERY * RECORD_BYTES, self.end)
        return memory, offset - RECORD_BYTES, stop, self._time

    def _lose(self, *_: object) -> None:
        assert self.lost is not None
        self.lost()

    def _time(
        self,
        kind: int,
        start: int,
        end: int,
        peer: int,
        step: int,
        chunk: int,
        slot: int,
        nbytes: int,
        name: int,
        phase: int,
        value: float,
    ) -> None:
        assert self.lane is not None and self.meter is not None
        again, clock = self.lane.write, now
        clock()  # the timing's own code is rarely run: not to be timed while it is fetched
        began = clock()
        again(kind, start, end, peer, step, chunk, slot, nbytes, name, phase, value)
        self.meter.timed(clock() - began)


def _packer(fields: str) -> Callable[..., None]:
    """Return what writes a record, its number last: a record is there once its number is."""
    if not ordering.WEAK:
        return struct.Struct(fields + "q").pack_into  # field after field
    pack, pack_number = struct.Struct(fields).pack_into, struct.Struct("q").pack_into

    def pack_in_order(memory: memoryview, at: int, *values: float) -> None:
        ordering.fence()  # the record before is there, before this one overwrites another
        pack(memory, at, *values[:-1])
        ordering.fence()
        pack_number(memory, at + RECORD_BYTES - 8, values[-1])

    return pack_in_order


def row_writer(log: Log, lane: Lane | None = None, meter: Meter | None = None) -> Writer:
    """Build the hot path of a lane as a closure: local names are the fastest that Python has.

    One comparison finds both the end of a block and a row that is to be timed.
    """
    memory, pack, turn = log.memory, _packer(_ROW), _Turn(log, lane, meter)
    seq, context = log.seq, 0
    # Of the last row written; of a full block's, so that the next one brings a new block.
    offset = log.at + ((seq - 1) % log.records if seq else -1) * RECORD_BYTES
    stop = turn.first_stop(offset)

    def write(
        kind: int,
        start: int,
        end: int,
        peer: int = -1,
        step: int = -1,
        chunk: int = -1,
        slot: int = -1,
        nbytes: int = -1,
        name: int = 0,
        phase: int = 0,
        value: float = _NAN,
    ) -> None:
        nonlocal memory, offset, seq, stop
        offset += 64
        if offset == stop:
            memory, offset, stop, other = turn.take(memory, offset, seq)
            if other:
                return other(kind, start, end, peer, step, chunk, slot, nbytes, name, phase, value)
        seq += 1
        pack(
            memory,
            offset,
            start,
            end,
            context,
            kind,
            peer,
            step,
            chunk,
            slot,
            name,
            phase,
            nbytes,
            value,
            seq,
        )

    def use_context(number: int) -> None:
        nonlocal context
        context = number

    def end(lost: Callable[[], None]) -> None:
        nonlocal stop
        log.memory, log.seq, turn.lost = memory, seq, lost
        stop = offset + 64

    return write, use_context, end


def no_write(*_: object, **__: object) -> None:
    """Stand in for ``write`` where nothing is recorded."""


def _counting(lost: Callable[[], None]) -> Write:
    def write(*_: object, **__: object) -> None:
        lost()

    return write


def cost_of_a_record(times: int = 512) -> float:
    """Measure what writing one row costs here and now, in nanoseconds (best of five), clock reading
    included.
    """
    memory = memoryview(bytearray(1024 * RECORD_BYTES))
    write, *_ = row_writer(Log(memory, 0, 1024, None))
    if native := compiled():
        rows, contexts = (memory, 0, 1024, 0, False), (bytearray(RECORD_BYTES), 0, 1, 0, False)
        write = native.Journal(
            lambda: None, 0, 0, bytearray(PAGE), False, None, *rows, *contexts
        ).write
    best = math.inf
    for _ in range(5):
        start = time.perf_counter_ns()
        for _ in range(times):
            write(SEND, start, now(), 1, 2, 3, 4, 5)
        best = min(best, (time.perf_counter_ns() - start) / times)
    return best
