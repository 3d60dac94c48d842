"""What ranks write is what the store holds: whole, in order, and what is lost is counted."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.live import until
from tests.store.whole_rows import assert_whole, reading, write
from workbench.recording import events
from workbench.recording import lane as lane_module
from workbench.recording import ring as module
from workbench.recording.events import CODE, CONTEXTS, RECV, ROWS, SEND, TRACE_BYTES, Where
from workbench.recording.recorder import Recorder
from workbench.shared_memory.segments import Segment
from workbench.store.collector import PERIOD_S, Collector
from workbench.store.event_store import Store

pytestmark = pytest.mark.usefixtures("mover")


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
        "rank": 0,
        "lane": "comm",
        "seq": 0,
        "generation": 4,
        "kind": "recv",
        "start_ns": 10,
        "end_ns": 20,
        "collective": "all_reduce",
        "algorithm": "ring",
        "phase": "all_gather",
        "group": "default",
        "op": 5,
        "peer": 1,
        "step": 2,
        "chunk": 3,
        "slot": 4,
        "nbytes": 4096,
        "iteration": 3,
        "microbatch": 1,
        "stage": 2,
        "version": 9,
        "value": None,
        "name": "fused",
    }
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
    written, cut, armed = 600, module.cut, [True]

    def racing(ring: np.ndarray, first: int, stop: int) -> np.ndarray:
        nonlocal written
        if not armed:
            return cut(ring, first, stop)
        armed.clear()
        piece = cut(ring, first, stop) if when == "after" else None
        write(lane, written, more)
        written += more
        # ... and has begun the next record: its times are gone, its old number is still there.
        at = events.DATA_AT + written % ROWS * 64
        segment.memory[at : at + 16] = bytes(16)
        return cut(ring, first, stop) if piece is None else piece

    monkeypatch.setattr(module, "cut", racing)
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


def test_marks_of_one_iteration_have_one_context(segment: Segment) -> None:
    """So that the ring of contexts, a quarter of that of rows, is not the first to overflow."""
    recorder = Recorder.into_segment(segment, 0)
    store, collector = reading(segment)
    for iteration in range(ROWS // 8):
        recorder.where = Where(iteration, version=3)
        for number in range(7):
            recorder.mark(CODE["metric"], "loss", value=float(number))
    collector.drain()
    assert (len(store), collector.dropped) == (ROWS // 8 * 7, 0)
    assert (store.events["iteration"] == store.events["seq"] // 7).all()


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
    for i in range(events.LANES + 2):  # the last two have no room: what they record is counted
        recorder.lane(f"comm:{i}").write(SEND, i, i, name=recorder.name(f"Größe {i}"))
        collector.drain()
    assert store.events["name"].to_list() == [f"Größe {i}" for i in range(events.LANES)]
    assert store.events["lane"].to_list() == [f"comm:{i}" for i in range(events.LANES)]
    assert collector.dropped == store.dropped == 2


def test_lanes_that_are_given_back_serve_others(segment: Segment) -> None:
    """Of many times the lanes that there is room for no row is lost, and each lane has its own
    numbers; one that comes again counts on.
    """
    recorder = Recorder.into_segment(segment, 0)
    store, collector = reading(segment)
    kept = recorder.lane("compute")
    for turn in range(2):
        for i in range(3 * events.LANES):
            lanes = [recorder.take_lane(f"{kind}:{i}") for kind in ("comm", "send")]
            for lane in lanes:
                lane.context(op=i)
                write(lane, 5 * turn, 5)
                lane.status(CODE["wait"])
            if i % 3 == 0:  # else several lanes' rows are read at once
                collector.drain()
            for lane in lanes:
                recorder.give_back(lane)
        write(kept, 5 * turn, 5)
    collector.stop()
    assert recorder._words[events.H_LANES] == 3 and collector.dropped == 0
    names = {"compute", *(f"{kind}:{i}" for kind in ("comm", "send") for i in range(96))}
    assert set(store.events["lane"].cast(pl.String)) == names
    assert_whole(store.events)
    assert store.events.height == 10 * len(names)
    own = store.events.filter(pl.col("lane") != "compute")
    assert (own["op"].cast(pl.String) == own["lane"].cast(pl.String).str.extract(r"(\d+)$")).all()
    assert store.now.is_empty()  # of what was given back nothing is under way


def test_a_place_that_changes_hands_in_a_full_ring(segment: Segment) -> None:
    recorder = Recorder.into_segment(segment, 0)
    store, collector = reading(segment)
    for i, rows in enumerate((ROWS, ROWS - 3, 7, 2 * ROWS)):
        lane = recorder.take_lane(f"comm:{i}")
        write(lane, 0, rows)
        if i != 1:  # then the third lane's rows have overwritten some of the second's
            collector.drain()
        recorder.give_back(lane)
    counts = dict(store.events.group_by(pl.col("lane").cast(pl.String)).len().iter_rows())
    # Of a full ring the oldest row is not known to be whole.
    assert counts == {"comm:0": ROWS - 1, "comm:1": ROWS - 8, "comm:2": 7, "comm:3": ROWS - 1}
    assert collector.dropped == 1 + 5 + ROWS + 1
    assert_whole(store.events)


def test_lanes_without_room_are_counted_and_tell_nothing_of_others(
    segment: Segment, capfd: pytest.CaptureFixture[str]
) -> None:
    recorder = Recorder.into_segment(segment, 0)
    store, collector = reading(segment)
    lanes = [recorder.take_lane(f"comm:{i}") for i in range(events.LANES)]
    lanes[-1].status(CODE["recv"], peer=7)
    for i in range(3):
        more = recorder.take_lane(f"more:{i}")
        more.status(CODE["send"], peer=3)
        write(more, 0, 10)
        more.idle()
    collector.drain()
    assert collector.dropped == store.dropped == 30 and not len(store)
    assert store.now["lane"].to_list() == [lanes[-1].name] and store.now["peer"].to_list() == [7]
    collector.drain()
    assert collector.dropped == 30  # once
    message = capfd.readouterr().err
    assert message.count("rank 0: its trace has room for 32 lanes") == 1 and "'more:0'" in message
    write(lanes[0], 0, 2)
    recorder.give_back(lanes[0])
    write(lanes[0], 2, 3)  # a writer where another lane may be
    again = recorder.take_lane("more:3")
    write(again, 0, 4)
    collector.drain()
    assert store.events["lane"].to_list() == ["comm:0"] * 2 + ["more:3"] * 4
    assert collector.dropped == 33


def test_names_without_room_are_said(segment: Segment, capfd: pytest.CaptureFixture[str]) -> None:
    recorder = Recorder.into_segment(segment, 0)
    store, collector = reading(segment)
    lane, before = recorder.lane("comm"), recorder.name("short")
    names = [recorder.name(f"{i} {'x' * 240}") for i in range(300)]
    for name in (before, *names):
        lane.write(SEND, 0, 1, name=name)
    more = recorder.take_lane("another lane")
    write(more, 0, 5)
    collector.drain()
    texts = store.events["name"].cast(pl.String).to_list()
    kept = len(set(names)) - 1
    assert texts == ["short", *(f"{i} {'x' * 240}" for i in range(kept))] + [events.MORE_NAMES] * (
        300 - kept
    )
    assert 250 < kept < 300 and store.dropped == 5
    assert capfd.readouterr().err.count("the trace is full of names") == 1


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
    until(lambda: len(store) >= 1050, 5, "the rows of the others")
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


def test_what_is_under_way_has_its_names_at_once(segment: Segment) -> None:
    """Also those that were published since the rings were emptied."""
    recorder = Recorder.into_segment(segment, 0)
    store, collector = reading(segment)
    lane = recorder.lane("comm:0")
    collector.start()
    try:
        for i in range(8):
            lane.status(SEND, peer=i, dtype=recorder.name(f"dtype {i}"), shape=(i,), values=(0.5,))
            until(lambda: store.now["peer"].to_list() == [i], 30)  # noqa: B023
            assert store.now["dtype"].to_list() == [f"dtype {i}"]
    finally:
        collector.stop()


def test_a_status_that_is_half_written_is_not_believed(
    segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank may be taken off its core between any two of its fields, which Python writes here."""
    with monkeypatch.context() as written:
        written.setenv("WORKBENCH_MOVER", "python")
        recorder = Recorder.into_segment(segment, 0)
        lane = recorder.lane("comm:0")
    store, collector = reading(segment)
    lane.status(SEND, peer=1)
    looks: list[list[int]] = []

    def stands_still(pack: Callable[..., None]) -> Callable[..., None]:
        def packed(*values: Any) -> None:
            look()
            pack(*values)

        return packed

    def look() -> None:
        time.sleep(PERIOD_S)
        collector.drain()
        looks.append(store.now["peer"].to_list())

    for name in ("_pack_shape", "_pack_values", "_pack_status_head"):
        monkeypatch.setattr(lane_module, name, stands_still(getattr(lane_module, name)))
    lane.status(RECV, peer=2, shape=(3,), values=(0.5,))
    assert looks == [[], [], []]
    look()
    assert looks[-1] == [2]
