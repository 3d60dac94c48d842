"""The compiled reader of rings takes what the Python one takes, from any memory, and only reads."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.store.whole_rows import assert_whole, reading, write
from workbench import native
from workbench.launchers.processes.relay import TraceReader, apply
from workbench.recording import events
from workbench.recording.events import CONTEXT, CONTEXTS, KINDS, LANES, RECORD_BYTES, ROW, ROWS
from workbench.recording.lane import Lane
from workbench.recording.recorder import Recorder
from workbench.shared_memory.segments import Segment
from workbench.store import rank_reader
from workbench.store.rank_reader import CompiledReader, RankReader

SMALL_ROWS, SMALL_CONTEXTS, SMALL_LANES = 24, 8, 3
NAMES = 20
Batch = tuple[int, int, bytes, bytes]


class Scribble:
    """A trace with small rings, and a writer that does to it what any writer, or a stray pointer,
    might.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        size = events.DATA_AT + SMALL_LANES * (SMALL_ROWS + SMALL_CONTEXTS) * RECORD_BYTES
        self.data = bytearray(size)
        self.memory = memoryview(self.data)
        self.words = self.memory.cast("q")
        self.words[events.H_MAGIC] = events.MAGIC
        names = b"".join(bytes([len(text)]) + text for text in map(str.encode, map(str, range(20))))
        self.memory[events.NAMES_AT : events.NAMES_AT + len(names)] = names
        self.words[events.H_NAMES] = len(names)
        self.written = [[0, 0] for _ in range(SMALL_LANES)]  # rows, contexts

    def ring(self, lane: int, contexts: bool) -> np.ndarray:
        at = events.DATA_AT + lane * (SMALL_ROWS + SMALL_CONTEXTS) * RECORD_BYTES
        if contexts:
            return np.frombuffer(self.data, CONTEXT, SMALL_CONTEXTS, at + SMALL_ROWS * RECORD_BYTES)
        return np.frombuffer(self.data, ROW, SMALL_ROWS, at)

    def put(self, lane: int, contexts: bool, count: int) -> None:
        """Write records as a lane does: fields first, the number last."""
        ring, chance = self.ring(lane, contexts), self.chance
        for _ in range(count):
            number = self.written[lane][contexts] = self.written[lane][contexts] + 1
            record = ring[(number - 1) % len(ring) :][:1]
            record.view(np.uint8)[:] = np.frombuffer(chance.randbytes(RECORD_BYTES), np.uint8)
            if contexts:
                record["lane"] = chance.choice((1, 1, 1, 2))
                record["first"] = chance.randrange(3)
            else:
                known = self.written[lane][1]
                record["context"] = max(0, known - chance.choice((0, 0, 0, 1, 2, 40)))
                record["kind"] = chance.randrange(len(KINDS) + chance.choice((0, 0, 1)))
            for name in ("name", "phase") if not contexts else ("collective", "algorithm", "group"):
                record[name] = chance.randrange(NAMES + 3)  # some are of no name
            record["seq"] = number

    def write(self) -> None:
        self.words[events.H_LANES] = max(self.words[events.H_LANES], self.chance.randint(1, 3))
        lane = self.chance.randrange(SMALL_LANES)
        for _ in range(self.chance.randint(1, 4)):
            self.put(lane, True, self.chance.randint(0, 3))
            self.put(lane, False, self.chance.choice((0, 1, 2, 5, 9, SMALL_ROWS)))

    def lap(self) -> None:
        lane = self.chance.randrange(SMALL_LANES)
        self.put(lane, True, self.chance.choice((1, SMALL_CONTEXTS + 1)))
        self.put(lane, False, self.chance.randint(SMALL_ROWS - 2, 3 * SMALL_ROWS))

    def tear(self) -> None:
        """Begin the next record, as a writer that is put aside in the middle of it."""
        lane, contexts = self.chance.randrange(SMALL_LANES), self.chance.random() < 0.3
        ring = self.ring(lane, contexts)
        record = ring[self.written[lane][contexts] % len(ring) :][:1]
        part = self.chance.choice((8, 16, 56, 64))  # with 64 the old number is gone, too
        record.view(np.uint8)[:part] = 0

    def stray(self) -> None:
        """Overwrite a stretch of the rings; now and then with a number that could be one."""
        at = self.chance.randrange(events.DATA_AT, len(self.data) - 8) // 8 * 8
        if self.chance.random() < 0.5:
            number = self.chance.choice((0, -1, 2**62, 2**63 - 1, -(2**63), 30, 1 + at // 64 % 24))
            self.words[at // 8 // 8 * 8 + 7] = number
        else:
            some = self.chance.randbytes(min(self.chance.choice((8, 64, 700)), len(self.data) - at))
            self.memory[at : at + len(some)] = some

    def damage(self) -> None:
        """Damage the header: how many lanes there are, or whether there is a trace at all."""
        word, values = self.chance.choice(
            ((events.H_LANES, (-5, 0, 2, -(2**63))), (events.H_MAGIC, (0, events.MAGIC)))
        )
        self.words[word] = self.chance.choice(values)

    def magic(self) -> None:
        self.words[events.H_MAGIC] = events.MAGIC


ACTIONS = "write write write lap tear stray damage magic drain drain".split()


def small_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_reader, "ROWS", SMALL_ROWS)
    monkeypatch.setattr(rank_reader, "CONTEXTS", SMALL_CONTEXTS)
    monkeypatch.setattr(rank_reader, "KNOWN", 4 * SMALL_CONTEXTS)


class Taker:
    """A reader, and what it handed over."""

    def __init__(self, kind: type[RankReader], memory: memoryview) -> None:
        self.batches: list[Batch] = []
        self.reader = kind(self.append, lambda text: 100 + int(text), 0, memory, {102: 1000})

    def append(self, rank: int, lane: int, rows: np.ndarray, contexts: np.ndarray) -> None:
        self.batches.append((rank, lane, rows.tobytes(), contexts.tobytes()))

    def drain(self) -> tuple[list[Batch], int, int]:
        self.batches.clear()
        stored, dropped, _ = self.reader.drain()
        return list(self.batches), stored, dropped


@given(st.integers(0, 2**32), st.lists(st.sampled_from(ACTIONS), min_size=1, max_size=40))
def test_both_readers_take_the_same_from_any_memory(seed: int, actions: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        small_rings(patch)
        trace = Scribble(seed)
        python, c = (Taker(kind, trace.memory) for kind in (RankReader, CompiledReader))
        for action in [*actions, "magic", "drain"]:
            if action == "drain":
                before = bytes(trace.data)
                assert c.drain() == python.drain()
                assert bytes(trace.data) == before
            else:
                getattr(trace, action)()


def test_the_differential_test_sees_rows_of_every_sort(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over 300 seeds: whole, lost, of two lanes in one ring, without a context."""
    small_rings(monkeypatch)
    stored = dropped = lanes = 0
    for seed in range(300):
        trace = Scribble(seed)
        taker = Taker(CompiledReader, trace.memory)
        for action in trace.chance.choices(ACTIONS, k=30):
            if action != "drain":
                getattr(trace, action)()
                continue
            batches, more, lost = taker.drain()
            stored, dropped = stored + more, dropped + lost
            lanes += len({lane for _, lane, *_ in batches}) > 1
    assert stored > 5000 and dropped > 5000 and lanes > 50, (stored, dropped, lanes)


def test_a_trace_too_short_for_its_lanes_is_refused_by_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small_rings(monkeypatch)
    for lanes in (SMALL_LANES + 1, LANES, 2**40):
        trace = Scribble(0)
        trace.words[events.H_LANES] = lanes
        for kind in (RankReader, CompiledReader):
            with pytest.raises(ValueError):
                Taker(kind, trace.memory).drain()


# ---- while the interpreter is elsewhere


def rings_of(segment: Segment) -> tuple[Any, CompiledReader, list[int]]:
    mover, counts = native.compiled(), list[int]()
    assert mover is not None
    append: Callable[..., None] = lambda rank, lane, rows, contexts: counts.append(len(rows))  # noqa: E731
    return mover, CompiledReader(append, lambda text: 1, 0, segment.memory, {}), counts


def test_rings_that_are_watched_lose_nothing_while_none_takes(segment: Segment) -> None:
    """Three laps, a quarter at a time, between two drains: Python alone would lose two of them."""
    mover, reader, counts = rings_of(segment)
    lane, words = Recorder.into_segment(segment, 0).lane("comm"), np.zeros(2, np.int64)
    for quarter in range(12):
        write(lane, quarter * ROWS // 4, ROWS // 4)
        mover.watch_rings((reader.rings,), 0.001, words)
    assert reader.drain()[:2] == (3 * ROWS, 0) and sum(counts) == 3 * ROWS


def test_rows_that_come_after_the_names_were_read_wait_for_the_next_drain(
    segment: Segment,
) -> None:
    """Their names may be new: what is gathered meanwhile is not taken."""
    mover, reader, _ = rings_of(segment)
    lane, words = Recorder.into_segment(segment, 0).lane("comm"), np.zeros(2, np.int64)
    write(lane, 0, 10)
    reader.rings.gather()
    write(lane, 10, ROWS // 4)
    mover.watch_rings((reader.rings,), 0.001, words)
    assert reader.rings.take()[0] == 10
    assert reader.drain()[0] == ROWS // 4


@pytest.mark.parametrize(("rows", "stay"), [(ROWS // 8, True), (ROWS // 8 + 1, False)])
def test_a_ring_that_is_not_filling_is_left_to_its_reader(
    segment: Segment, rows: int, stay: bool
) -> None:
    mover, reader, _ = rings_of(segment)
    lane, words = Recorder.into_segment(segment, 0).lane("comm"), np.zeros(2, np.int64)
    reader.drain()
    write(lane, 0, rows)
    mover.watch_rings((reader.rings,), 0.001, words)
    np.frombuffer(segment.memory, ROW, ROWS, events.DATA_AT)["seq"] = 0  # what lies there is gone
    assert reader.drain()[0] == (0 if stay else rows)


def test_what_is_not_taken_for_long_is_counted_and_not_kept(segment: Segment) -> None:
    mover, reader, counts = rings_of(segment)
    lane, words = Recorder.into_segment(segment, 0).lane("comm"), np.zeros(2, np.int64)
    write(lane, 0, ROWS)
    ring = np.frombuffer(segment.memory, ROW, ROWS, events.DATA_AT)
    laps = 80  # 80 MB
    for _ in range(laps - 1):
        mover.watch_rings((reader.rings,), 0.001, words)
        ring["seq"] += ROWS
    stored, dropped, fullest = reader.drain()
    assert stored + dropped == laps * ROWS and sum(counts) == stored
    assert 2**20 - ROWS <= stored <= 2**20 + ROWS and fullest == 1.0
    ring["seq"] += ROWS
    assert sum(reader.drain()[:2]) == ROWS  # it goes on


def test_the_word_ends_the_watch_at_once(segment: Segment) -> None:
    """Without being woken, a watcher would look after one second."""
    mover, reader, _ = rings_of(segment)
    took = []
    for _ in range(4):
        words = np.zeros(2, np.int64)
        thread = threading.Thread(
            target=mover.watch_rings, args=((reader.rings,), 3000.0, words), daemon=True
        )
        thread.start()
        time.sleep(0.02)
        begun = time.monotonic()
        words[0] = 1
        mover.wake_watch(words)
        thread.join(60)
        assert not thread.is_alive()
        took.append(time.monotonic() - begun)
    assert min(took) < 0.1


def rows(lane: Lane) -> None:
    write(lane, 0, ROWS // 2)


def contexts(lane: Lane) -> None:
    for op in range(CONTEXTS // 2):
        lane.context(op=op)


@pytest.mark.parametrize(
    ("writer", "fill"),
    [("c", rows), ("c", contexts), ("python", rows)],
    ids=["rows", "contexts", "a writer in Python"],
)
def test_a_watcher_sleeps_until_a_ring_fills(
    segment: Segment, monkeypatch: pytest.MonkeyPatch, writer: str, fill: Callable[[Lane], None]
) -> None:
    """Of its own accord it looks after a second; where a writer never knocks, after 40 ms."""
    mover, reader, _ = rings_of(segment)
    monkeypatch.setenv("WORKBENCH_MOVER", writer)
    lane = Recorder.into_segment(segment, 0).lane("compute")
    took = []
    for _ in range(3):
        words = np.zeros(2, np.int64)
        thread = threading.Thread(target=mover.watch_rings, args=((reader.rings,), 3000.0, words))
        thread.start()
        await_waking(words, 0)  # from now on it sleeps for as long as it may
        woken, begun = int(words[1]), time.monotonic()
        fill(lane)
        await_waking(words, woken)
        took.append(time.monotonic() - begun)
        words[0] = 1
        mover.wake_watch(words)
        thread.join()
    assert min(took) < 0.1


def await_waking(words: np.ndarray, after: int) -> None:
    """Wait until the thread has woken up. ``after``: its processor time before."""
    while words[1] == after:
        time.sleep(1e-4)


def test_a_trace_of_another_host_is_looked_at_without_a_knock(segment: Segment) -> None:
    """Say that no rank knocks: a writer on the other host wakes none here."""
    write(Recorder.into_segment(segment, 0).lane("comm"), 0, ROWS // 2)
    here = memoryview(bytearray(events.TRACE_BYTES))
    parts, data = TraceReader(segment.memory).read()
    apply(here, parts, memoryview(data))
    knocks = [one.cast("q")[events.H_KNOCKS] for one in (segment.memory, here)]
    assert knocks[0] > 0 and knocks[1] == 0
    assert RankReader(lambda *_: None, lambda _: 1, 0, here, {}).drain()[0] == ROWS // 2


@pytest.mark.parametrize("rings", [3, 20])
def test_contexts_wait_with_their_rows(segment: Segment, rings: int) -> None:
    """The compute lane has a context for almost every row: many rings of them, a quarter at a time,
    between two drains, and the same once more.
    """
    mover, reader, _ = rings_of(segment)
    lane, words = Recorder.into_segment(segment, 0).lane("compute"), np.zeros(2, np.int64)
    for _ in range(2):
        for _ in range(rings * 4):
            for op in range(CONTEXTS // 4):
                lane.context(op=op)
                lane.write(events.SEND, op, op)
            mover.watch_rings((reader.rings,), 0.001, words)
        assert reader.drain()[:2] == (rings * CONTEXTS, 0)


def test_a_collector_with_either_reader_ends_with_the_same_table(
    segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane = Recorder.into_segment(segment, 0).lane("comm")
    write(lane, 0, 5000)
    tables = []
    for mover in ("python", "c"):
        monkeypatch.setenv("WORKBENCH_MOVER", mover)
        store, collector = reading(segment)
        collector.start()
        collector.stop()
        assert_whole(store.events)
        tables.append(store.events)
    assert tables[0].equals(tables[1], null_equal=True) and tables[0].height == 5000


# ---- what it is given


def test_what_is_not_a_trace_is_refused() -> None:
    mover = native.compiled()
    assert mover is not None
    numbers, memory = np.zeros(65_536, np.uint16), bytearray(1 << 20)
    layout = (events.MAGIC, 8192, 16, 16, 22)
    mover.Reader(memory, numbers, *layout)
    for wrong in (
        (memory[:100], numbers, *layout),
        (memory, numbers[1:], *layout),
        (memory, numbers, events.MAGIC, 8192, 0, 16, 22),
        (memory, numbers, events.MAGIC, 8192, 16, 2**40, 22),
        (memory, numbers, events.MAGIC, -8192, 16, 16, 22),
        (memory, numbers, events.MAGIC, 2**63 - 1, 16, 16, 22),
    ):
        with pytest.raises(ValueError):
            mover.Reader(*wrong)
    with pytest.raises(TypeError):
        mover.Reader(memory, None, *layout)
    for wrong_watch in (
        ([], 0.0, numbers[:8]),
        ((3,), 0.0, numbers[:8]),
        ((), 0.0, numbers),
        ((), 0.0, bytes(16)),
        ((), -1.0, numbers[:8]),
        ((), float("nan"), numbers[:8]),
    ):
        with pytest.raises((TypeError, SystemError)):
            mover.watch_rings(*wrong_watch)


def test_a_reader_gives_back_what_it_was_given() -> None:
    mover = native.compiled()
    assert mover is not None
    numbers = np.zeros(65_536, np.uint16)
    for _ in range(100):
        memory = bytearray(1 << 16)
        reader = mover.Reader(memory, numbers, events.MAGIC, 8192, 16, 16, 22)
        with pytest.raises(BufferError):
            memory.clear()
        reader.gather()
        del reader
        memory.clear()  # nothing holds it any more
