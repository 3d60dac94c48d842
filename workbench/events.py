"""The record: its meaning, its bytes, and the writer that every thread of a rank has for itself.

One row is one span or one instant (``start_ns == end_ns``), written at its end by the code that did
the work. A lane is one thread's log: rows of 64 bytes in memory that the driver maps too. Writing a
row is one ``struct.pack_into``: no lock, no system call, no allocation. What the rows of one
collective have in common (which collective, which group, which iteration) is written once, as a
context, and each row names its context.

    rank's trace = header | names | a page a lane (identity, status, meter) | a lane's contexts, a
    lane's rows | ...

In a Run the rows are a ring that the collector drains; a ring that laps its reader loses rows,
which the reader counts. Outside a Run (``WORKBENCH_TRACE=folder``) the same bytes are files that
grow, so that what was written before a crash can be read after it.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workbench import meter as meters
from workbench.errors import WorkbenchError
from workbench.meter import EVERY, FIRST, METER_AT, METER_BYTES, Meter, Samples
from workbench.shared import Segment, reserve

KINDS = tuple(
    "forward backward weight_grad optimizer load collective send recv reduce copy wait "
    "push pull apply clock fault detect abort rebuild restore checkpoint metric".split()
)
CODE = {kind: code for code, kind in enumerate(KINDS)}
FORWARD, BACKWARD, WEIGHT_GRAD, OPTIMIZER, LOAD = range(5)
COLLECTIVE, SEND, RECV, REDUCE, COPY, WAIT = range(5, 11)

# The columns of the event table, in its order (the contract).
COLUMNS = (
    "rank lane seq generation kind start_ns end_ns collective algorithm phase group op peer "
    "step chunk slot nbytes iteration microbatch stage version value name"
).split()

ROW = np.dtype(
    [("start_ns", "i8"), ("end_ns", "i8"), ("context", "u4"), ("kind", "u2"), ("peer", "i2"),
     ("step", "i4"), ("chunk", "i4"), ("slot", "i4"), ("name", "u2"), ("phase", "u2"),
     ("nbytes", "i8"), ("value", "f8"), ("seq", "i8")]
)  # fmt: skip
CONTEXT = np.dtype(
    [("collective", "u2"), ("algorithm", "u2"), ("group", "u2"), ("pad", "u2"),
     ("generation", "i4"), ("microbatch", "i4"), ("op", "i8"), ("iteration", "i8"),
     ("stage", "i8"), ("version", "i8"), ("id", "i8"), ("seq", "i8")]
)  # fmt: skip
_pack_row = struct.Struct("qqIHhiiiHHqdq").pack_into
_pack_context = struct.Struct("HHHHiiqqqqqq").pack_into
# seq, since, kind + 1, peer, group, collective, algorithm, dtype, op, step, chunk | how many
# dimensions, how many values | the dimensions, the values
STATUS = struct.Struct("qqHhHHHHqiiHH4q8d")
_pack_status_head = struct.Struct("qqHhHHHHqii").pack_into
_HEAD = struct.calcsize("qqHhHHHHqii")
_pack_counts = struct.Struct("HH").pack_into
_pack_shape = struct.Struct("HH4x4q").pack_into
_VALUES = _HEAD + struct.calcsize("HH4x4q")
_pack_values = struct.Struct("8d").pack_into
_NO_SHAPE, _NO_VALUES = (0,) * 4, (math.nan,) * 8
RECORD_BYTES = 64
assert ROW.itemsize == CONTEXT.itemsize == RECORD_BYTES

PAGE = 4096
MAGIC = 0x3130_4B42_5257  # "WRBK01", little-endian
LANES = 32
NAMES_AT, NAMES_BYTES = PAGE, 64 * 1024
LANES_AT = NAMES_AT + NAMES_BYTES
DATA_AT = LANES_AT + LANES * PAGE
ROWS, CONTEXTS = 16_384, 4_096  # a lane's ring: 1 MB of rows, 256 KB of contexts
LANE_BYTES = (ROWS + CONTEXTS) * RECORD_BYTES
TRACE_BYTES = DATA_AT + LANES * LANE_BYTES
STATUS_AT = 64  # in a lane's page
assert STATUS_AT + STATUS.size <= METER_AT and METER_AT + METER_BYTES <= PAGE
# Words of the header. H_SIZE: ranks in the whole group; H_END: 1 + the number of the last words;
# H_FULL: there was no room for more records at some time.
H_MAGIC, H_RANK, H_PID, H_LANES, H_NAMES, H_COST_PS, H_SIZE, H_END, H_FULL = range(9)

now = time.monotonic_ns
_NAN = math.nan
Write = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Where:
    """Where in training a row belongs; -1 is nowhere."""

    iteration: int = -1
    microbatch: int = -1
    stage: int = -1
    version: int = -1


NOWHERE = Where()


class Lane:
    """The log of one thread at a time: ``write`` a row, set the ``context`` of the rows that
    follow.
    """

    write: Write

    def __init__(
        self, recorder: Recorder, name: str, index: int, rows: _Log, contexts: _Log
    ) -> None:
        self.recorder, self.name, self.index = recorder, name, index
        self._contexts = contexts
        self._context_id = 0
        self._page = LANES_AT + index * PAGE
        self._status_seq = 0
        meter = Meter(recorder.memory[self._page : self._page + PAGE])
        self.write, self._use_context = _row_writer(rows, self, meter)
        self.context()

    def context(
        self,
        collective: int = 0,
        algorithm: int = 0,
        group: int = 0,
        op: int = -1,
        where: Where = NOWHERE,
        generation: int = 0,
    ) -> int:
        """What the rows that follow have in common.

        Names are given as numbers (``Recorder.name``). Returns its id.
        """
        self._context_id += 1
        log = self._contexts
        at = log.claim()  # first: it may bring new memory
        _pack_context(
            log.memory, at, collective, algorithm, group, 0, generation, where.microbatch, op,
            where.iteration, where.stage, where.version, self._context_id, log.seq,
        )  # fmt: skip
        self._use_context(self._context_id)
        return self._context_id

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
        """Say what this lane is in right now; the collector samples it at 20 Hz."""
        self._status_seq += 1
        memory, at = self.recorder.memory, self._page + STATUS_AT
        if shape or values:
            dims = (shape + _NO_SHAPE)[:4]
            _pack_shape(memory, at + _HEAD, min(len(shape), 4), min(len(values), 8), *dims)
            if values:
                _pack_values(memory, at + _VALUES, *(values + _NO_VALUES)[:8])
        else:
            _pack_counts(memory, at + _HEAD, 0, 0)
        _pack_status_head(
            memory, at, self._status_seq, now(), kind + 1, peer, group, collective, algorithm,
            dtype, op, step, chunk,
        )  # fmt: skip

    def idle(self) -> None:
        """Nothing is under way in this lane."""
        self._status_seq += 1
        at = self._page + STATUS_AT
        _pack_status_head(
            self.recorder.memory, at, self._status_seq, now(), 0, -1, 0, 0, 0, 0, -1, -1, -1
        )


class _Log:
    """Records of one lane: a ring in the trace, or a file that grows by a block at a time."""

    def __init__(
        self, memory: memoryview, at: int, records: int, grow: Callable[[int], memoryview] | None
    ) -> None:
        self.memory, self.at, self.records, self.grow = memory, at, records, grow
        # Of the last record claimed, counted from 1: a zero in memory is a record never written.
        self.seq = 0

    def claim(self) -> int:
        """The offset of the next record."""
        place = self.seq % self.records
        if place == 0 and self.grow and self.seq:
            self.memory = self.grow(self.seq // self.records)
        self.seq += 1
        return self.at + place * RECORD_BYTES


def _row_writer(
    log: _Log, lane: Lane | None = None, meter: Meter | None = None
) -> tuple[Write, Callable[[int], None]]:
    """The hot path, as a closure: local names are the fastest that Python has.

    The sequence number is written last, so that a row is there once its number is. One comparison
    finds both the end of a block and a row that is to be timed.
    """
    memory, grow, pack, clock = log.memory, log.grow, _pack_row, now
    end_of_block = log.at + log.records * RECORD_BYTES
    offset, seq, context = log.at - RECORD_BYTES, 0, 0
    stop = end_of_block if meter is None else min(log.at + FIRST * RECORD_BYTES, end_of_block)

    def write(
        kind: int, start: int, end: int, peer: int = -1, step: int = -1, chunk: int = -1,
        slot: int = -1, nbytes: int = -1, name: int = 0, phase: int = 0, value: float = _NAN,
    ) -> None:  # fmt: skip
        nonlocal memory, offset, seq, stop
        offset += 64
        if offset == stop:
            if offset == end_of_block:
                offset, stop = log.at, end_of_block
                if grow:
                    began = clock()
                    memory = grow(seq // log.records)
                    if meter is not None:
                        meter.grown(clock() - began)
            if meter is not None and lane is not None:
                stop = min(offset + EVERY * 64, end_of_block)
                offset -= 64  # the very same row again, as any caller writes it
                again = lane.write
                clock()  # the timing's own code is rarely run: not to be timed while it is fetched
                began = clock()
                again(kind, start, end, peer, step, chunk, slot, nbytes, name, phase, value)
                meter.timed(clock() - began)
                return
        seq += 1
        pack(
            memory, offset, start, end, context, kind, peer, step, chunk, slot, name, phase, nbytes,
            value, seq,
        )  # fmt: skip

    def use_context(number: int) -> None:
        nonlocal context
        context = number

    return write, use_context


def _no_write(*_: object, **__: object) -> None:
    """What stands in for ``write`` where nothing is recorded."""


class Recorder:
    """A rank's trace: its names, its lanes, and where in training it is (``where``)."""

    def __init__(
        self,
        memory: memoryview,
        rank: int,
        segment: Segment | None = None,
        folder: Path | None = None,
    ) -> None:
        """``segment`` is a Run's ring; ``folder`` has files that grow; with neither nothing is
        recorded.
        """
        self.memory, self.rank, self._segment, self._folder = memory, rank, segment, folder
        self.active = segment is not None or folder is not None
        self.where = NOWHERE
        self._words = memory[:PAGE].cast("q")
        self._numbers: dict[str, int] = {}
        self._lanes: dict[str, Lane] = {}
        self._making = threading.Lock()  # of names and lanes: threads meet here, but seldom
        for word, value in (
            (H_RANK, rank), (H_PID, os.getpid()), (H_LANES, 0), (H_NAMES, 0), (H_SIZE, 0),
            (H_END, 0), (H_FULL, 0),
        ):  # fmt: skip
            self._words[word] = value
        self._words[H_MAGIC] = MAGIC
        self.name("")
        if self.active:
            self._words[H_COST_PS] = int(cost_of_a_record() * 1000)

    @classmethod
    def off(cls, rank: int) -> Recorder:
        """A recorder that keeps nothing (``record=False``)."""
        return cls(memoryview(bytearray(DATA_AT)), rank)

    @classmethod
    def into_segment(cls, segment: Segment, rank: int) -> Recorder:
        return cls(segment.memory, rank, segment)

    @classmethod
    def into_folder(cls, folder: Path, rank: int) -> Recorder:
        """Files of this rank in ``folder``; ``wb.load(folder)`` merges those of all ranks."""
        folder = folder / f"rank-{rank}-{os.getpid()}"
        folder.mkdir(parents=True, exist_ok=True)
        return cls(_map_block(folder / "trace", 0, DATA_AT), rank, folder=folder)

    def joined(self, size: int) -> None:
        """The whole group has so many ranks: who reads the trace may wait for the others."""
        self._words[H_SIZE] = size

    def end(self, words: str) -> None:
        """The process ends by itself. ``words``: what it raised, "" if it did not."""
        if self._words[H_PID] == os.getpid():  # no end of ours: a fork's
            self._words[H_END] = 1 + self.name(words)

    def name(self, text: str) -> int:
        """The number that stands for ``text`` in this rank's records; the same text has the same
        number.
        """
        number = self._numbers.get(text)
        if number is None:
            with self._making:
                number = self._numbers.get(text)
                return self._new_name(text) if number is None else number
        return number

    def _new_name(self, text: str) -> int:
        data = text.encode()[:255]
        used = self._words[H_NAMES]
        if used + 1 + len(data) > NAMES_BYTES:  # a table that is full must not stop training
            return 0
        number = len(self._numbers)
        at = NAMES_AT + used
        self.memory[at : at + 1 + len(data)] = bytes([len(data)]) + data
        self._words[H_NAMES] = used + 1 + len(data)  # published last
        self._numbers[text] = number
        return number

    def lane(self, name: str) -> Lane:
        """The lane of this name, made on first use. One thread at a time may write to it."""
        found = self._lanes.get(name)
        if found is None:
            number = self.name(name)
            with self._making:
                found = self._lanes.get(name) or self._new_lane(name, number)
        return found

    def _new_lane(self, name: str, number: int) -> Lane:
        index = len(self._lanes)
        logs = self._logs(name, index) if self.active and index < LANES else None
        if logs is None:
            nowhere = _Log(memoryview(bytearray(RECORD_BYTES)), 0, 1, None)
            lane = Lane(self, name, min(index, LANES - 1), nowhere, nowhere)
            lane.write = _no_write
        else:
            self.memory[LANES_AT + index * PAGE :][:8].cast("q")[0] = number
            lane = Lane(self, name, index, *logs)
            self._words[H_LANES] = index + 1
        self._lanes[name] = lane
        return lane

    def _logs(self, name: str, index: int) -> tuple[_Log, _Log] | None:
        """Where a lane's rows and contexts go; None: there is no room for them on disk."""
        if self._folder is None:
            assert self._segment is not None
            at = DATA_AT + index * LANE_BYTES
            what = f"the records of rank {self.rank}'s lane {name!r}"
            reserve(self._segment.fd, at, LANE_BYTES, what)
            return _Log(self.memory, at, ROWS, None), _Log(
                self.memory, at + ROWS * RECORD_BYTES, CONTEXTS, None
            )
        try:
            rows = self._file_log(f"{index}.rows", ROWS)
            return rows, self._file_log(f"{index}.contexts", CONTEXTS)
        except WorkbenchError as error:
            self._full(error)
            return None

    def _file_log(self, name: str, records: int) -> _Log:
        assert self._folder is not None
        path, block = self._folder / name, records * RECORD_BYTES

        def grow(number: int) -> memoryview:
            try:
                return _map_block(path, number * block, block)
            except WorkbenchError as error:
                self._full(error)
                return memoryview(bytearray(block))  # what is written there nobody reads

        return _Log(_map_block(path, 0, block), 0, records, grow)

    def _full(self, error: WorkbenchError) -> None:
        """The disk is: training goes on, and whoever reads the trace is told."""
        if not self._words[H_FULL]:
            self._words[H_FULL] = 1
            words = f"[workbench] rank {self.rank}: {error}. Not all is recorded from here on"
            print(words, file=sys.stderr, flush=True)

    @contextmanager
    def span(
        self,
        kind: int,
        lane: str = "compute",
        name: str = "",
        value: Callable[[], float] = lambda: _NAN,
    ) -> Iterator[None]:
        """Record what runs inside as one row of ``kind`` (compute; collectives have their own,
        faster way). ``value`` is asked within it, at its end.
        """
        log, number = self.lane(lane), self.name(name)
        log.context(where=self.where)
        log.status(kind)
        start = now()
        try:
            yield
        finally:
            told = value()
            log.write(kind, start, now(), name=number, value=told)
            log.idle()

    def mark(
        self,
        kind: int,
        name: str,
        *,
        value: float = math.nan,
        lane: str = "compute",
        peer: int = -1,
    ) -> None:
        """Record an instant: a metric's number, a fault, something noticed."""
        log, moment = self.lane(lane), now()
        log.context(where=self.where)
        log.write(kind, moment, moment, peer=peer, name=self.name(name), value=value)


def _map_block(path: Path, offset: int, nbytes: int) -> memoryview:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, offset, nbytes)  # before it is mapped: never a bus error later
            return memoryview(mmap.mmap(fd, nbytes, offset=offset))
        finally:
            os.close(fd)
    except OSError as error:
        raise WorkbenchError(
            f"no room for the trace file {path}, which needs {nbytes:,} bytes more: "
            f"{error.strerror}"
        ) from error


def cost_of_a_record(times: int = 512) -> float:
    """What writing one row costs here and now, in nanoseconds (best of five), clock reading
    included.
    """
    write, _ = _row_writer(_Log(memoryview(bytearray(1024 * RECORD_BYTES)), 0, 1024, None))
    best = math.inf
    for _ in range(5):
        start = time.perf_counter_ns()
        for _ in range(times):
            write(SEND, start, now(), 1, 2, 3, 4, 5)
        best = min(best, (time.perf_counter_ns() - start) / times)
    return best


def metered(trace: memoryview) -> tuple[Samples, float]:
    """What the meters of a rank's trace say, and what a row cost there at the start, in ns."""
    words = trace[:PAGE].cast("q")
    pages = (LANES_AT + index * PAGE for index in range(min(words[H_LANES], LANES)))
    samples = sum((meters.read(trace[at : at + PAGE]) for at in pages), Samples())
    return samples, words[H_COST_PS] / 1000
