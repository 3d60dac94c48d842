"""Measure how fast the collector drains, and whether it loses records at 4 x 50,000 per second."""

from __future__ import annotations

import threading
import time

from tools.benchmarks.figures import Figure
from workbench.recording.events import ROWS, SEND, now
from workbench.recording.recorder import Recorder
from workbench.recording.trace_memory import trace_segment
from workbench.store.collector import Collector
from workbench.store.event_store import Store

RATE, SECONDS, RANKS = 50_000, 3.0, 4


def drain_rate() -> Figure:
    """Records per second through ``drain``, the ring filled again before each."""
    segment = trace_segment("a benchmark")
    recorder = Recorder.into_segment(segment, 0)
    write = recorder.lane("comm").write
    collector = Collector(Store(), {0: segment.memory})
    records, best = ROWS - 64, 0.0
    for _ in range(20):
        for i in range(records):
            write(SEND, i, i + 1, 1, 2, 3, 4, 5)
        start = time.perf_counter()
        collector.drain()
        best = max(best, records / (time.perf_counter() - start))
    return Figure("the collector drains", best / 1e6, 3, "million records/s", True)


def losses() -> Figure:
    """Four writers at 50,000 records per second each, paced in bursts of a millisecond."""
    segments = [trace_segment("a benchmark") for _ in range(RANKS)]
    collector = Collector(Store(), {i: s.memory for i, s in enumerate(segments)})
    collector.start()
    writers = [
        threading.Thread(target=_write, args=(Recorder.into_segment(segment, rank),))
        for rank, segment in enumerate(segments)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    collector.stop()
    total = int(RATE * SECONDS) * RANKS
    detail = f"{len(collector.store):,} of {total:,} stored"
    return Figure(
        "lost at 4 × 50,000 records/s",
        float(total - len(collector.store)),
        0,
        "records",
        False,
        detail,
    )


def _write(recorder: Recorder) -> None:
    write, start = recorder.lane("comm").write, time.monotonic()
    for burst in range(int(SECONDS * 1000)):
        for i in range(RATE // 1000):
            write(SEND, now(), now(), 1, burst, i, 0, 64)
        time.sleep(max(0.0, start + (burst + 1) / 1000 - time.monotonic()))


def measure() -> list[Figure]:
    return [drain_rate(), losses()]
