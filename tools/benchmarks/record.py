"""The record at scale: bytes an event, ten million opened and asked, the driver's memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import polars as pl

import workbench as wb
from tools.benchmarks.figures import Figure
from workbench.recording.events import COLUMNS, SEND, now
from workbench.recording.recorder import Recorder
from workbench.recording.trace_memory import trace_segment
from workbench.store import parquet
from workbench.store.collector import Collector
from workbench.store.event_store import Store

ROOT = Path(__file__).resolve().parents[2]
MILLIONS = 10
RUNS = {
    "ring, 4 ranks": {"ranks": 4, "chunk_bytes": 16_384, "iterations": 150},
    "DDP, 2 ranks": {"strategy": "ddp", "ranks": 2, "iterations": 300},
    "parameter server": {"strategy": "parameter_server", "ranks": 4, "iterations": 150},
    "pipeline, 4 stages": {"strategy": "pipeline", "ranks": 4, "iterations": 60},
}
SECONDS, WRITERS, RATE = 60.0, 4, 100_000  # of the long run; RATE: records per second and writer


def sizes(folder: Path) -> Iterator[Figure]:
    """Bytes an event of real runs, the first of which is kept for what follows."""
    for name, fields in RUNS.items():
        run = wb.run(wb.Experiment(threads=1, **fields))
        run.wait(120)
        path = folder / f"{name}.parquet"
        run.store.save(path)
        rows = len(run.store)
        yield Figure(
            f"{name}: in Parquet",
            path.stat().st_size / rows,
            10,
            "bytes an event",
            False,
            f"{rows:,} events",
        )


def repeated(path: Path, rows: int) -> Iterator[pl.DataFrame]:
    """A run's rows again and again, each time later, as if it had gone on."""
    events = wb.load(path).events.sort("end_ns", maintain_order=True)
    took = events["end_ns"].max() - events["start_ns"].min()
    ops, iterations = events["op"].max() + 1, events["iteration"].max() + 1
    longer = events.group_by("rank", "lane").agg(many=pl.len())
    events = events.join(longer, on=["rank", "lane"], how="left", maintain_order="left")
    shifts = {"start_ns": took, "end_ns": took, "op": ops, "iteration": iterations}
    for turn in range(-(-rows // events.height)):
        part = events.head(rows - turn * events.height)
        yield part.select(_later(name, turn, shifts) for name in COLUMNS)


def _later(name: str, turn: int, shifts: dict[str, int]) -> pl.Expr:
    own = pl.col(name)
    if name == "seq":
        return own + turn * pl.col("many").cast(pl.Int64)
    if name in shifts:
        return pl.when(own < 0).then(own).otherwise(own + turn * shifts[name]).alias(name)
    return own


def large(folder: Path) -> Iterator[Figure]:
    """Ten million rows through the writer; then opened and asked by a process of its own."""
    rows, path = MILLIONS * 1_000_000, folder / "large.parquet"
    began = time.perf_counter()
    parquet.write(repeated(folder / "ring, 4 ranks.parquet", rows), path, 0, {})
    took = time.perf_counter() - began
    size = path.stat().st_size
    yield Figure(
        f"{MILLIONS} million events in Parquet",
        size / rows,
        10,
        "bytes an event",
        False,
        f"{size / 1e6:.0f} MB, written in {took:.1f} s",
    )
    report = _child("asked", str(path))
    yield Figure(
        "opened", report["open"], 1, "s", False, f"{report['opened_mb']:.0f} MB more memory"
    )
    for what in ("10 ms of it", "a rank's faults", "an iteration of a rank", "bytes by rank"):
        seconds, count = report[what]
        yield Figure(f"  {what}", seconds, 1, "s", False, f"{count:,} rows")
    yield Figure("  memory after all of it", report["mb"], 1000, "MB more", False)


def queries(path: str) -> dict[str, object]:
    p, before = pl.col, resident_mb()
    began = time.perf_counter()
    run = wb.load(path)
    report: dict[str, object] = {"open": time.perf_counter() - began}
    report["opened_mb"] = resident_mb() - before
    scan = run.store.scan
    middle = int(scan().select(p("start_ns").median()).collect().item())
    asks: dict[str, Callable[[], pl.LazyFrame]] = {
        "10 ms of it": lambda: scan().filter(p("start_ns").is_between(middle, middle + 10_000_000)),
        "a rank's faults": lambda: scan().filter(p("kind") == "fault", p("rank") == 1),
        "an iteration of a rank": lambda: scan().filter(p("iteration") == 777, p("rank") == 2),
        "bytes by rank": lambda: (
            scan().filter(p("kind") == "send").group_by("rank").agg(p("nbytes").sum())
        ),
    }
    for what, ask in asks.items():
        began = time.perf_counter()
        count = ask().collect().height
        report[what] = time.perf_counter() - began, count
    return report | {"mb": resident_mb() - before}


def long_run() -> Iterator[Figure]:
    """A driver that stores 400,000 records per second for a minute: an hour of 6,700 per second."""
    report = _child("driver", str(SECONDS))
    yield Figure(
        "a long run: the driver's memory",
        report["most_mb"],
        1000,
        "MB",
        False,
        f"{report['rows'] / 1e6:.1f} million events, {report['dropped']:,} dropped, "
        f"{report['parts']} parts on disk",
    )
    yield Figure("  it grows, second half", report["slope"], 0.5, "MB a million events", False)


def driver(seconds: str) -> dict[str, object]:
    segments = [trace_segment("a benchmark") for _ in range(WRITERS)]
    children = [_writer(segment, rank, float(seconds)) for rank, segment in enumerate(segments)]
    collector = Collector(Store(), {i: s.memory for i, s in enumerate(segments)})
    collector.start()
    samples: list[tuple[int, float]] = []
    deadline = time.monotonic() + float(seconds)
    while time.monotonic() < deadline:
        time.sleep(0.2)
        samples.append((len(collector.store), resident_mb()))
    for child in children:
        os.waitpid(child, 0)
    collector.stop()
    store = collector.store
    rows, memory = np.array(samples[len(samples) // 2 :]).T
    return {
        "most_mb": max(mb for _, mb in samples),
        "rows": len(store),
        "dropped": store.dropped,
        "parts": len(store._parts),
        "slope": float(np.polyfit(rows / 1e6, memory, 1)[0]),
    }


def _writer(segment: object, rank: int, seconds: float) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        recorder = Recorder.into_segment(segment, rank)  # type: ignore[arg-type]
        lane, start = recorder.lane("comm"), time.monotonic()
        number = recorder.name("all_reduce")
        for burst in range(int(seconds * 1000)):
            lane.context(number, op=burst)
            for i in range(RATE // 1000):
                lane.write(SEND, now(), now(), 1, i, i, 0, 64)
            time.sleep(max(0.0, start + (burst + 1) / 1000 - time.monotonic()))
    finally:
        os._exit(0)


def resident_mb() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


def _child(what: str, *args: str) -> dict[str, object]:
    command = [sys.executable, "-m", "tools.benchmarks.record", what, *args]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=900)
    return dict(json.loads(done.stdout))


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [*sizes(folder), *large(folder), *long_run()]


if __name__ == "__main__":
    print(json.dumps({"asked": queries, "driver": driver}[sys.argv[1]](sys.argv[2])))
