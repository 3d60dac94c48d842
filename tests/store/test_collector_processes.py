"""The collector beside processes that write: killed, or fast; and what their lanes are in now."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.live import until
from tests.store.whole_rows import assert_whole, reading, write
from workbench.recording import events
from workbench.recording.events import CODE, CONTEXTS, ROWS, TRACE_BYTES
from workbench.recording.recorder import Recorder
from workbench.recording.run_queue import busiest, thread_times
from workbench.shared_memory.segments import Segment
from workbench.store.event_store import Store


def in_child(work: Callable[[], None]) -> int:
    """Run ``work`` in a forked process; its pid."""
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            work()
            os._exit(0)
        os._exit(1)
    return pid


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
    until(lambda: len(store) >= 20_000, what="rows come")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    collector.stop()
    table = store.events
    assert table.height >= 20_000
    assert_whole(table)
    assert table["seq"][-1] + 1 == table.height + collector.dropped
    assert store.now.select("lane", "kind", "peer", "op").rows() == [("comm", "wait", 1, 8)]


def test_four_lanes_at_fifty_thousand_rows_per_second_lose_nothing() -> None:
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
    before, begin = thread_times(os.getpid()), events.now()
    pids = [in_child(lambda rank=rank: work(rank)) for rank in (0, 1)]  # type: ignore[misc]
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0, 0]
    _, without_core = busiest(before, thread_times(os.getpid()), events.now() - begin)
    collector.stop()
    assert len(store) + collector.dropped == 4 * per_lane
    if without_core < ROWS / 50_000 * 1e9:  # in less time no lane's ring overflows
        assert collector.dropped == 0
    assert_whole(store.events)
    assert 0 < collector.cpu_ns < 1_000_000_000 and collector.records == len(store)
    for segment in segments:
        segment.close()


def test_rings_are_read_while_the_driver_keeps_the_interpreter(segment: Segment) -> None:
    """As it does while it loads a large library. A fast rank's compute lane, with a context for
    each row, laps its ring of contexts meanwhile.
    """
    store, collector = reading(segment)
    collector.start()
    driver, (wakes, wake), half = os.getpid(), os.pipe(), CONTEXTS // 2
    watching = next(one for one in threading.enumerate() if one.name == "workbench rings")

    def naps() -> int:
        status = Path(f"/proc/{driver}/task/{watching.native_id}/status").read_text()
        return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])

    def work() -> None:
        lane = Recorder.into_segment(segment, 0).lane("compute")
        for first in range(0, 5 * half, half):
            for number in range(first, first + half):
                lane.context(op=number)
                write(lane, number, 1)
            before, deadline = naps(), time.monotonic() + 20
            while naps() < before + 2 and time.monotonic() < deadline:  # it had a core
                time.sleep(0.001)
        os.write(wake, b"!")

    pid = in_child(work)
    ctypes.PyDLL(None).read(wakes, ctypes.create_string_buffer(1), 1)  # with the interpreter's lock
    assert os.waitpid(pid, 0)[1] == 0
    collector.stop()
    os.close(wakes)
    os.close(wake)
    assert (len(store), collector.dropped) == (5 * half, 0)
    assert_whole(store.events)


# ---- what is under way


def test_now_shows_what_lanes_are_in(segment: Segment) -> None:
    recorder = Recorder.into_segment(segment, 0)
    name, before = recorder.name, events.now()
    recorder.lane("comm").status(
        CODE["recv"],
        peer=2,
        group=name("default"),
        collective=name("all_reduce"),
        algorithm=name("ring"),
        dtype=name("float32"),
        op=7,
        step=3,
        chunk=1,
        shape=(3, 4),
        values=(1.5, -2.0),
    )
    recorder.lane("compute").status(CODE["forward"])
    recorder.lane("send").status(CODE["send"])
    recorder.lane("send").idle()
    recorder.lane("server")
    store, collector = reading(segment)
    collector.drain()
    comm, compute = store.now.to_dicts()
    assert before <= comm.pop("since_ns") <= events.now()
    assert comm == {
        "rank": 0,
        "lane": "comm",
        "kind": "recv",
        "peer": 2,
        "group": "default",
        "collective": "all_reduce",
        "algorithm": "ring",
        "op": 7,
        "step": 3,
        "chunk": 1,
        "dtype": "float32",
        "shape": "(3, 4)",
        "values": [1.5, -2.0],
    }
    assert (compute["kind"], compute["peer"], compute["shape"]) == ("forward", -1, "")
    recorder.lane("comm").idle()
    recorder.lane("compute").idle()
    collector.stop()
    assert store.now.is_empty() and store.now.schema == Store().now.schema
