"""What ranks write is what the store holds: whole, in order, and what is lost is counted."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from workbench import collector as module
from workbench import events
from workbench.collector import Collector
from workbench.events import CODE, CONTEXTS, RECV, ROWS, SEND, TRACE_BYTES, Lane, Recorder, Where
from workbench.shared import Segment
from workbench.store import Store


@pytest.fixture
def segment() -> Iterator[Segment]:
    segment = Segment.create(TRACE_BYTES, "a test")
    yield segment
    segment.close()


def reading(*segments: Segment) -> tuple[Store, Collector]:
    store = Store()
    return store, Collector(store, {rank: one.memory for rank, one in enumerate(segments)})


def write(lane: Lane, first: int, count: int) -> None:
    """Rows whose fields all follow from their number, so that a torn one shows."""
    for i in range(first, first + count):
        lane.write(SEND, i, 2 * i, i % 7, i % 11, i % 13, i % 17, 3 * i, value=float(i))


def assert_whole(table: pl.DataFrame) -> None:
    """Every row is the one that ``write`` wrote under its number, in order."""
    i = pl.col("seq")
    fields = {"start_ns": i, "end_ns": 2 * i, "peer": i % 7, "step": i % 11, "chunk": i % 13}
    fields |= {"slot": i % 17, "nbytes": 3 * i, "value": i.cast(pl.Float64)}
    wrong = table.filter(~pl.all_horizontal(pl.col(name) == told for name, told in fields.items()))
    assert wrong.is_empty(), wrong
    for _, own in table.group_by("rank", "lane"):
        assert own["seq"].is_sorted()
        assert own["seq"].is_unique().all()


def in_child(work: Callable[[], None]) -> int:
    """Run ``work`` in a forked process; its pid."""
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            work()
            os._exit(0)
        os._exit(1)
    return pid


def test_every_column_arrives_as_it_was_written(segment: Segment) -> None:
    recorder = Recorder.into_segment(segment, 0)
    lane, name = recorder.lane("comm"), recorder.name
    where = Where(iteration=3, microbatch=1, stage=2, version=9)
    ring = lane.context(name("all_reduce"), name("ring"), name("default"), 5, where, generation=4)
    lane.write(RECV, 10, 20, 1, 2, 3, 4, 4096, name("fused"), name("all_gather"))
    with recorder.span(CODE["forward"], lane="comm", name="layer"):
        pass
    lane.again(ring)
    lane.write(SEND, 30, 40, 3)
    recorder.mark(CODE["metric"], "loss", value=0.5, lane="server")
    store, collector = reading(segment)
    collector.drain()

    rows = store.events.to_dicts()
    first = {
        "rank": 0, "lane": "comm", "seq": 0, "generation": 4, "kind": "recv", "start_ns": 10,
        "end_ns": 20, "collective": "all_reduce", "algorithm": "ring", "phase": "all_gather",
        "group": "default", "op": 5, "peer": 1, "step": 2, "chunk": 3, "slot": 4, "nbytes": 4096,
        "iteration": 3, "microbatch": 1, "stage": 2, "version": 9, "value": None, "name": "fused",
    }  # fmt: skip
    assert {**rows[0], "value": None} == first and np.isnan(rows[0]["value"])
    assert (rows[1]["kind"], rows[1]["name"], rows[1]["collective"]) == ("forward", "layer", "")
    assert rows[2] | {"op": 5, "peer": 3, "algorithm": "ring", "name": "", "step": -1} == rows[2]
    assert (rows[3]["lane"], rows[3]["kind"], rows[3]["value"]) == ("server", "metric", 0.5)
    assert [row["seq"] for row in rows] == [0, 1, 2, 0]
    assert (collector.records, collector.dropped, len(store)) == (4, 0, 4)


@example([ROWS], True)
@example([100, ROWS, 1], True)
@given(st.lists(st.integers(0, ROWS + 3), min_size=1, max_size=6), st.booleans())
def test_written_is_stored_or_counted(amounts: list[int], last_is_torn: bool) -> None:
    segment = Segment.create(TRACE_BYTES, "a test")
    lane = Recorder.into_segment(segment, 0).lane("comm")
    store, collector = reading(segment)
    written = 0
    for amount in amounts:
        write(lane, written, amount)
        written += amount
        if last_is_torn:  # what the writer does first with the next record
            at = events.DATA_AT + written % ROWS * 64
            segment.memory[at : at + 64] = bytes(64)
        collector.drain()
    assert len(store) + collector.dropped == written
    assert store.dropped == collector.dropped
    assert_whole(store.events)
    if max(amounts) < ROWS - 1:
        assert collector.dropped == 0
    else:
        assert len(store) >= ROWS - 2  # the newest are there
    segment.close()


@pytest.mark.parametrize("more", [1, 5, ROWS - 3, ROWS - 1, ROWS, ROWS + 5, 2 * ROWS + 1])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_writer_that_laps_us_while_we_copy(
    segment: Segment, monkeypatch: pytest.MonkeyPatch, more: int, when: str
) -> None:
    """The race, made to happen: the writer goes on just before or after the rows are copied."""
    lane = Recorder.into_segment(segment, 0).lane("comm")
    store, collector = reading(segment)
    write(lane, 0, 100)
    collector.drain()
    write(lane, 100, 500)
    written, cut, armed = 600, module._cut, [True]

    def racing(ring: np.ndarray, first: int, stop: int) -> np.ndarray:
        nonlocal written
        if not armed:
            return cut(ring, first, stop)
        armed.clear()
        found = cut(ring, first, stop) if when == "after" else None
        write(lane, written, more)
        written += more
        # ... and has begun the next record: its times are gone, its old number is still there.
        at = events.DATA_AT + written % ROWS * 64
        segment.memory[at : at + 16] = bytes(16)
        return cut(ring, first, stop) if found is None else found

    monkeypatch.setattr(module, "_cut", racing)
    collector.drain()
    monkeypatch.undo()
    collector.drain()
    assert_whole(store.events)
    assert len(store) + collector.dropped == written


def test_a_damaged_row_within_a_lap_is_left_out(segment: Segment) -> None:
    lane = Recorder.into_segment(segment, 0).lane("comm")
    store, collector = reading(segment)
    write(lane, 0, ROWS + 1000)
    at = events.DATA_AT + 5000 * 64
    segment.memory[at : at + 16] = bytes(16)
    segment.memory[at + 56 : at + 64] = bytes(range(8))
    collector.drain()
    assert_whole(store.events)
    assert 5000 not in store.events["seq"]
    assert len(store) + collector.dropped == ROWS + 1000
    assert collector.dropped <= 1003


def test_rows_whose_context_was_overwritten_are_counted(segment: Segment) -> None:
    lane = Recorder.into_segment(segment, 0).lane("comm")
    store, collector = reading(segment)
    for op in range(CONTEXTS + 500):
        lane.context(op=op)
        lane.write(SEND, op, op)
    collector.drain()
    table = store.events
    assert table.select((pl.col("op") == pl.col("start_ns")).all()).item()
    assert len(store) + collector.dropped == CONTEXTS + 500
    assert 500 <= collector.dropped <= 502


def test_a_row_may_go_back_to_a_context_that_was_read_long_ago(segment: Segment) -> None:
    lane = Recorder.into_segment(segment, 0).lane("comm")
    store, collector = reading(segment)
    outer = lane.context(op=77)
    for batch in range(3):
        for op in range(CONTEXTS - 10):
            lane.context(op=batch * CONTEXTS + op)
            lane.write(SEND, 0, 0)
        collector.drain()
    lane.again(outer)
    lane.write(SEND, 1, 1)
    collector.drain()
    assert store.events["op"][-1] == 77 and collector.dropped == 0


def test_names_and_lanes_that_appear_while_it_runs(segment: Segment) -> None:
    recorder = Recorder.into_segment(segment, 0)
    store, collector = reading(segment)
    for i in range(events.LANES + 2):  # the last two have no room: they record nothing
        recorder.lane(f"comm:{i}").write(SEND, i, i, name=recorder.name(f"Größe {i}"))
        collector.drain()
    assert store.events["name"].to_list() == [f"Größe {i}" for i in range(events.LANES)]
    assert store.events["lane"].to_list() == [f"comm:{i}" for i in range(events.LANES)]


def test_a_rank_that_restarts_goes_on_counting(segment: Segment) -> None:
    again = Segment.create(TRACE_BYTES, "a test")
    store, collector = reading(segment)
    write(Recorder.into_segment(segment, 0).lane("comm"), 0, 5)
    lane = Recorder.into_segment(again, 0).lane("comm")
    collector.add(0, again.memory)
    lane.write(RECV, 0, 0)
    collector.drain()
    assert store.events["seq"].to_list() == [0, 1, 2, 3, 4, 5]
    again.close()


# ---- odd memory


def test_stray_bytes_in_one_rank_leave_the_others_alone(segment: Segment) -> None:
    chance = random.Random(0)
    stray, rows = (Segment.create(TRACE_BYTES, "a test") for _ in range(2))
    stray.memory[:] = chance.randbytes(TRACE_BYTES)
    stray.words[events.H_MAGIC] = events.MAGIC
    # Here only the ring is overwritten, under a reader that is in the middle of it.
    other = Recorder.into_segment(rows, 2).lane("comm")
    write(other, 0, 50)
    lane = Recorder.into_segment(segment, 0).lane("comm")
    store, collector = reading(segment, stray, rows)
    collector.drain()
    rows.memory[events.DATA_AT :] = chance.randbytes(TRACE_BYTES - events.DATA_AT)
    collector.start()
    write(lane, 0, 1000)
    deadline = time.monotonic() + 5
    while len(store) < 1050 and time.monotonic() < deadline:
        time.sleep(0.01)
    collector.stop()
    assert store.events.filter(pl.col("rank") == 0).height == 1000
    assert store.events.filter(pl.col("rank") == 2).height == 50
    assert len(store) == 1050 and collector.dropped == 0  # nothing is made of stray bytes
    stray.close()
    rows.close()


def test_memory_without_a_recorder_is_empty(segment: Segment) -> None:
    store, collector = reading(segment)
    assert collector.drain() == 0
    assert len(store) == 0 and store.now.is_empty() and not collector.broken


def test_a_rank_that_cannot_be_read_is_named(segment: Segment) -> None:
    write(Recorder.into_segment(segment, 0).lane("comm"), 0, 5)
    store = Store()
    collector = Collector(store, {0: segment.memory, 1: segment.memory[: events.DATA_AT]})
    collector.drain()
    collector.drain()
    assert len(store) == 5
    assert list(collector.broken) == [1]


# ---- processes


def test_a_rank_killed_while_it_writes_leaves_whole_rows(segment: Segment) -> None:
    def work() -> None:
        lane = Recorder.into_segment(segment, 0).lane("comm")
        lane.status(CODE["wait"], peer=1, op=8)
        at = 0
        while True:
            write(lane, at, 100)
            at += 100
            time.sleep(0)

    store, collector = reading(segment)
    collector.start()
    pid = in_child(work)
    deadline = time.monotonic() + 10
    while len(store) < 20_000 and time.monotonic() < deadline:
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    collector.stop()
    table = store.events
    assert table.height >= 20_000
    assert_whole(table)
    assert table["seq"][-1] + 1 == table.height + collector.dropped
    assert store.now.select("lane", "kind", "peer", "op").rows() == [("comm", "wait", 1, 8)]


def test_four_lanes_at_fifty_thousand_rows_a_second_lose_nothing() -> None:
    per_lane, slices, segments = 30_000, 300, [Segment.create(TRACE_BYTES, "a test") for _ in "ab"]

    def work(rank: int) -> None:
        recorder = Recorder.into_segment(segments[rank], rank)
        lanes, each = [recorder.lane(name) for name in ("send", "recv")], per_lane // slices
        begin = time.monotonic()
        for i in range(slices):
            for lane in lanes:
                write(lane, i * each, each)
            time.sleep(max(0.0, begin + (i + 1) * each / 50_000 - time.monotonic()))

    store, collector = reading(*segments)
    collector.start()
    pids = [in_child(lambda rank=rank: work(rank)) for rank in (0, 1)]  # type: ignore[misc]
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0, 0]
    collector.stop()
    assert (len(store), collector.dropped) == (4 * per_lane, 0)
    assert_whole(store.events)
    assert 0 < collector.cpu_ns < 1_000_000_000 and collector.records == 4 * per_lane
    for segment in segments:
        segment.close()


# ---- what is under way


def test_now_shows_what_lanes_are_in(segment: Segment) -> None:
    recorder = Recorder.into_segment(segment, 0)
    name, before = recorder.name, events.now()
    recorder.lane("comm").status(
        CODE["recv"], peer=2, group=name("default"), collective=name("all_reduce"),
        algorithm=name("ring"), dtype=name("float32"), op=7, step=3, chunk=1, shape=(3, 4),
        values=(1.5, -2.0),
    )  # fmt: skip
    recorder.lane("compute").status(CODE["forward"])
    recorder.lane("send").status(CODE["send"])
    recorder.lane("send").idle()
    recorder.lane("server")
    store, collector = reading(segment)
    collector.drain()
    comm, compute = store.now.to_dicts()
    assert before <= comm.pop("since_ns") <= events.now()
    assert comm == {
        "rank": 0, "lane": "comm", "kind": "recv", "peer": 2, "group": "default",
        "collective": "all_reduce", "algorithm": "ring", "op": 7, "step": 3, "chunk": 1,
        "dtype": "float32", "shape": "(3, 4)", "values": [1.5, -2.0],
    }  # fmt: skip
    assert (compute["kind"], compute["peer"], compute["shape"]) == ("forward", -1, "")
    recorder.lane("comm").idle()
    recorder.lane("compute").idle()
    collector.stop()
    assert store.now.is_empty() and store.now.schema == Store().now.schema
