"""The overhead meter: records timed in place, on every 251st of this run, and nothing assumed."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workbench as wb
from tests.live import lenet
from workbench.recording import events
from workbench.recording import lane as hot_writer
from workbench.recording.events import ROWS, SEND
from workbench.recording.lane import cost_of_a_record
from workbench.recording.meter import ENOUGH, EVERY, FIRST, OCTAVES, Meter, Samples, read
from workbench.recording.recorder import Recorder, read_meters
from workbench.recording.trace_memory import trace_segment
from workbench.shared_memory.segments import Segment
from workbench.store.result import Overhead
from workbench.tasks.lenet_digits import Task as LeNet

SLOWER_NS = 20_000


@pytest.fixture
def python_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are written by Python: the tests that break its writer mean that one."""
    monkeypatch.setenv("WORKBENCH_MOVER", "python")


def wait(ns: int) -> None:
    """Busy for so long: as a slow writer is."""
    until = time.perf_counter_ns() + ns
    while time.perf_counter_ns() < until:
        pass


def written(rows: int, lanes: tuple[str, ...] = ("comm",)) -> Segment:
    """A rank's trace after so many rows a lane."""
    segment = trace_segment("a test")
    recorder = Recorder.into_segment(segment, 0)
    for name in lanes:
        write = recorder.lane(name).write
        for i in range(rows):
            write(SEND, i, events.now(), 1, 2, 3, 4, 5)
    return segment


@pytest.mark.parametrize("mover", ("c", "python"))
def test_every_251st_row_of_every_lane_is_timed_and_every_row_is_there_once(
    mover: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_MOVER", mover)
    rows = 3 * ROWS + 100  # three laps of the ring
    segment = written(rows, ("comm", "send"))
    samples, _ = read_meters(segment.memory)
    # A lap's end is a sample too, and the count begins again there.
    lap = 1 + (ROWS - 1) // EVERY
    first = 1 + (ROWS - 1 - FIRST) // EVERY
    assert len(samples) == 2 * (first + 2 * lap + 1)
    at = events.DATA_AT
    ring = np.frombuffer(segment.memory, events.ROW, ROWS, at)
    order = np.argsort(ring["seq"])
    assert ring["seq"][order].tolist() == list(range(rows - ROWS + 1, rows + 1))
    assert (ring["start_ns"] == ring["seq"] - 1).all()
    assert (
        (ring["slot"] == 4).all() and (ring["nbytes"] == 5).all() and np.isnan(ring["value"]).all()
    )


def cost_of_a_loop(times: int = 512) -> float:
    """Measure what `cost_of_a_record` does beside writing: a loop that reads the clock, in ns."""
    laps = []
    for _ in range(5):
        start = time.perf_counter_ns()
        for _ in range(times):
            events.now()
        laps.append((time.perf_counter_ns() - start) / times)
    return min(laps)


@pytest.mark.alone
def test_what_it_says_is_about_what_a_record_costs() -> None:
    """Within a factor of two, but for the loop around the record, which the meter does not see."""
    costs = []
    for _ in range(10):
        samples, at_start = read_meters(written(ROWS).memory)
        measured = samples.mean_ns()
        assert measured is not None and at_start > 0
        record = min(cost_of_a_record() for _ in range(3))
        costs.append(measured / (record - min(cost_of_a_loop() for _ in range(3))))
        if 0.7 < costs[-1] < 2:
            return
    pytest.fail(f"of the cost of a record, ten times: {costs}")


@contextmanager
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    packer = hot_writer._packer

    def slow_packer(fields: str) -> Callable[..., None]:
        pack = packer(fields)

        def slower(*record: Any) -> None:
            wait(SLOWER_NS)
            pack(*record)

        return slower

    with monkeypatch.context() as patch:
        patch.setattr(hot_writer, "_packer", slow_packer)
        yield


@pytest.mark.usefixtures("python_s")
def test_it_rises_with_a_slower_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    before = read_meters(written(4000).memory)[0].mean_ns()
    with slow(monkeypatch):
        after = read_meters(written(4000).memory)[0].mean_ns()
    assert before is not None and after is not None
    assert after > before + 0.95 * SLOWER_NS


@pytest.mark.parametrize("mover", ("c", "python"))
def test_a_wrapped_write_shows_too(mover: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_MOVER", mover)
    recorder = Recorder.into_segment(segment := trace_segment("a test"), 0)
    lane = recorder.lane("comm")
    plain = lane.write

    def slower(*row: Any, **more: Any) -> None:
        wait(SLOWER_NS)
        plain(*row, **more)

    lane.write = slower
    for i in range(3000):
        lane.write(SEND, i, i)
    mean = read_meters(segment.memory)[0].mean_ns()
    assert mean is not None and mean > SLOWER_NS
    seqs = np.frombuffer(segment.memory, events.ROW, 3000, events.DATA_AT)["seq"]
    assert seqs.tolist() == list(range(1, 3001))


class SlowWriting(LeNet):
    """LeNet on ranks whose writers pack slowly: this code runs in the rank itself."""

    def __init__(self, slower_ns: int = 0) -> None:
        import time

        from workbench.process_group.session import session

        def slow_down(write: Any) -> None:
            cell = write.__closure__[write.__code__.co_freevars.index("pack")]
            pack = cell.cell_contents

            def slower(*record: Any) -> None:
                until = time.perf_counter_ns() + slower_ns
                while time.perf_counter_ns() < until:
                    pass
                pack(*record)

            cell.cell_contents = slower

        for lane in session().recorder._lanes.values() if slower_ns else ():
            slow_down(lane.write)


@pytest.mark.usefixtures("python_s")
def test_a_run_s_meter_is_read_while_it_goes_on_and_rises_with_its_ranks_writer() -> None:
    costs, shares = [], []
    for slower in (0, SLOWER_NS):
        run = wb.run(lenet(task=SlowWriting, task_options={"slower_ns": slower}, iterations=10_000))
        deadline = time.monotonic() + 60
        while run.overhead().samples < 4 * ENOUGH and not run.done and time.monotonic() < deadline:
            time.sleep(0.02)
        live = run.overhead()
        run.stop()
        assert run.wait(30).ok
        end = run.overhead()
        assert end.samples >= live.samples >= 4 * ENOUGH and not live.dropped
        costs += [live.record_ns, end.record_ns]
        shares += [live.share, end.share]
    assert min(costs[2:]) > max(costs[:2]) + SLOWER_NS / 2
    assert 0 < max(shares[:2]) < min(shares[2:]) < 1


def test_few_samples_say_nothing_and_the_figure_of_the_start_stands_in() -> None:
    assert read_meters(written(FIRST).memory)[0].mean_ns() is None
    samples, at_start = read_meters(written(EVERY * (ENOUGH - 2)).memory)
    assert 0 < len(samples) < ENOUGH and samples.mean_ns() is None
    cost = Overhead.of(100, 0, [(samples, at_start)], 0.0, 1.0)
    assert cost.record_ns == pytest.approx(at_start) and cost.samples == len(samples)


def test_a_thread_put_aside_by_the_scheduler_is_not_a_cost() -> None:
    page = memoryview(bytearray(events.PAGE))
    meter = Meter(page)
    for _ in range(199):
        meter.timed(300)
    meter.timed(4_000_000)
    assert read(page).mean_ns() == 300
    for _ in range(20):  # a tenth of them is not chance
        meter.timed(10_000)
    mean = read(page).mean_ns()
    assert mean is not None and 1_000 < mean < 1_300
    meter.timed(2**60)
    assert read(page).counts[OCTAVES - 1] == 1


def test_a_trace_folder_has_it_with_what_growing_took(tmp_path: Path) -> None:
    recorder = Recorder.into_folder(tmp_path, 0)
    write = recorder.lane("comm").write
    for i in range(ROWS + 300):
        write(SEND, i, i)
    data = (tmp_path / f"rank-0-{os.getpid()}" / "trace").read_bytes()
    samples, at_start = read_meters(memoryview(data))
    assert len(samples) > ROWS // EVERY and samples.beside_ns > 0 and at_start > 0
    loaded = wb.load(tmp_path).overhead()
    assert (loaded.records, loaded.samples) == (ROWS + 300, len(samples))
    mean = samples.mean_ns()
    assert mean is not None and mean < loaded.record_ns < mean + samples.beside_ns


def test_samples_of_lanes_add_up() -> None:
    page = memoryview(bytearray(events.PAGE))
    Meter(page).timed(100)
    Meter(page).took(7)
    both = read(page) + read(page) + Samples()
    assert (len(both), int(both.sums.sum()), both.beside_ns) == (2, 200, 14)
    assert struct.unpack_from("q", page, 1024) == (7,)
