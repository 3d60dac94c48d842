"""Drivers that are killed before their pool is ready, or soon after: nothing is left of them."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

from tests.live import ROOT
from workbench.shared_memory.segments import process_state

NAME = "WORKBENCH_YOUNG"  # set in a driver and in all that descends from it
TEXT = """
import workbench as wb
from workbench.launchers.processes.pool import warm_pool
warm_pool()
print("started", flush=True)
run = wb.run(wb.Experiment(ranks=2, iterations=100_000, batch_size=16, threads=1))
run.wait()
"""
LATE = 25.0  # seconds


def killed(chance: random.Random) -> tuple[float, str]:
    """Kill one (SIGKILL); seconds until nothing of it is left, and what was wrong."""
    mark = uuid.uuid4().hex
    driver = subprocess.Popen(
        [sys.executable, "-c", TEXT],
        env={**os.environ, "PYTHONPATH": str(ROOT), NAME: mark},
        cwd="/",
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert driver.stdout is not None
    with driver.stdout as out:
        out.readline()
        time.sleep(chance.choice([0.0, chance.uniform(0, 0.3), chance.uniform(0, 4)]))
        driver.kill()
        driver.wait()
    begin = time.monotonic()
    while left := descendants(mark):
        if time.monotonic() - begin > LATE:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return time.monotonic() - begin, f"{len(left)} processes were left"
        time.sleep(0.01)
    return time.monotonic() - begin, ""


def descendants(mark: str) -> list[int]:
    """Living processes that were started with this mark."""
    pids, word = [], f"{NAME}={mark}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if word in (folder / "environ").read_bytes().split(b"\0"):
                pid = int(folder.name)
                pids += [pid] if process_state(pid) not in "ZX" else []
    return pids
