"""Helpers for tests of live runs: small experiments, waits with a deadline, a look at processes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

import workbench as wb
from workbench.shared_memory.segments import process_state

ROOT = Path(__file__).parents[1]
PATIENCE = 180.0  # seconds that no wait of a test falls short of: the cores may be busy
Value = TypeVar("Value")
LONG = 100_000  # iterations: more than any test waits for


def lenet(**fields: Any) -> wb.Experiment:
    """A small experiment that trains LeNet on the digits.

    One thread a rank, also of a single one: two that wait for each other crawl on a busy machine.
    A run that goes on until it is stopped is padded, to leave the cores to what watches it.
    """
    small: dict[str, Any] = {"ranks": 2, "iterations": 5, "batch_size": 16, "threads": 1}
    if fields.get("iterations") == LONG:
        small["pad_compute"] = "10 ms"
    return wb.Experiment(**{**small, **fields})


def until(
    condition: Callable[[], Any], seconds: float = 60.0, what: str = "", every: float = 0.005
) -> None:
    """Wait for the condition; fail if it takes much longer than ``seconds``, which are those of an
    idle machine. ``every``: seconds between two looks; more where a look takes long.
    """
    start, own = time.monotonic(), time.thread_time()
    while not condition():
        waited = time.monotonic() - start
        assert waited < max(seconds, PATIENCE), f"not within {waited:.0f} s: {what or condition}"
        look, own = time.thread_time() - own, time.thread_time()
        time.sleep(max(every, min(2 * look, 0.2)))


def crowding() -> float:
    """Return how many tasks want each core: 1 on a machine that has nothing else to do.

    For "within a second": on a busy machine that many times as long. No second try: what was
    measured once is judged once.
    """
    stat = Path("/proc/stat").read_text()
    running = int(stat.partition("procs_running ")[2].split()[0]) - 1  # but for this one
    return max(1.0, max(running, os.getloadavg()[0]) / (os.cpu_count() or 1))


def training(run: wb.Run, iterations: int = 3) -> wb.Run:
    """The run, once every rank is in that iteration."""
    until(lambda: run.done or run.iteration >= iterations, 60, "the ranks train")
    assert not run.done, run.result.error
    return run


def complete(coroutine: Coroutine[Any, Any, Value]) -> Value:
    """Run the coroutine to its end, in a thread: browser tests leave a loop running in this one.

    As long as a few waits that follow each other may take.
    """
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result(3 * PATIENCE)


def gone(pids: Iterable[int]) -> bool:
    """Has every one of these processes ended?"""
    return all(process_state(pid) in "ZX" for pid in pids)


@contextmanager
def over_in_the_end(run: wb.Run) -> Iterator[wb.Run]:
    """A run that would go on forever: killed when the test is over, and seen to be gone."""
    try:
        yield run
    finally:
        for rank in run.pids:
            run.kill(rank)
        run.wait(timeout=90, check=False)
    assert gone(run.pids.values())


def asleep(pids: Iterable[int]) -> bool:
    """Does every thread of these processes sleep? One that has no core at the moment does not."""
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):  # it has just ended
                if (thread / "stat").read_text().rpartition(")")[2].split()[0] not in "SIZX":
                    return False
    return True


def cpu_seconds(pids: Iterable[int]) -> float:
    """Processor time that these processes have used so far."""
    ticks = 0
    for pid in pids:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(words[11]) + int(words[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def lasting(events: pl.DataFrame) -> pl.Series:
    """Return how long each row lasted, in ms."""
    return (events["end_ns"] - events["start_ns"]) / 1e6


def of(events: pl.DataFrame, **values: Any) -> pl.DataFrame:
    """The rows with these values."""
    return events.filter(*(pl.col(column) == value for column, value in values.items()))


def trained(events: pl.DataFrame) -> pl.DataFrame:
    """The rows that belong to training: metrics and checks left out."""
    return events.filter(pl.col("group") != "metrics")


def script(path: Path, text: str) -> subprocess.Popen[str]:
    """Start a user's script. The caller waits for it, or kills it."""
    path.write_text(text)
    return subprocess.Popen(
        [sys.executable, str(path)],
        cwd=path.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
