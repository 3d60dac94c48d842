"""A thousand ranks at the rows per second that a driver takes: its memory, and the page's frames.

The rows are those of a recorded run of eight ranks, in 125 copies (scale_server.py), and all of
them reach the store; the page gets folded time (views/pages/level_of_detail.py). At 50,000 rows per
second of each rank there would be 125 times as many as are played here: then agents fold at the
source (launchers/processes/coarser.py), which is measured beside it, on rows of one rank.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable

import numpy as np

import workbench as wb
from tools.benchmarks.figures import Figure
from tools.benchmarks.pages import chromium, server
from tools.benchmarks.scenes import DRAW
from workbench.launchers.processes.coarser import Folding
from workbench.recording.events import CONTEXT, RECV, ROW, SEND, WAIT

RATE = 400_000  # rows per second, of all ranks
OF_A_RANK = 50_000  # rows per second, of which an agent makes fewer (docs/event_table.md)
MOMENTS = (10, 20, 30, 40)  # seconds after the page came, at which memory is read
SCENES = ("overview", "collectives", "timeline")
# How old the newest row of the page's table is, by the driver's clock (of this machine, too).
NEWEST = "(root) => { const k = root.stage.known(); return k.table.to + k.origin; }"


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        recorded = f"{folder}/recorded.parquet"
        run = wb.run(wb.Experiment(ranks=8, iterations=6, threads=1))
        run.wait(120, progress=False)
        run.store.save(recorded)
        wb.shutdown()
        lines: list[str] = []
        pipe = subprocess.PIPE
        module = "tools.benchmarks.scale_server"
        with server(module, "{port}", recorded, str(RATE), stdout=pipe) as (address, driver):
            assert driver.stdout is not None
            threading.Thread(target=_keep, args=(driver.stdout, lines), daemon=True).start()
            figures = _frames(address)
            deadline = time.monotonic() + 60
            while len(lines) < MOMENTS[-1] and time.monotonic() < deadline:
                threading.Event().wait(0.2)
    rows, memory, late = zip(*(map(float, line.split()) for line in lines), strict=True)
    rate = (rows[-1] - rows[len(rows) // 2]) / (len(rows) - 1 - len(rows) // 2)
    load = f"load {os.getloadavg()[0]:.0f}"
    detail = f"1,000 ranks, {rate:,.0f} rows/s, {rows[-1]:,.0f} in all; {load}"
    held = [memory[min(at, len(memory)) - 1] for at in MOMENTS]
    return [
        *(
            Figure(f"driver's memory after {at} s", mb, None, "MB", False, load)
            for at, mb in zip(MOMENTS, held, strict=True)
        ),
        Figure("driver's memory, 40 s over 20 s", held[3] - held[1], 100, "MB", False, detail),
        Figure("behind its clock", late[-1], 1, "s", False, detail),
        *figures,
        *(_folded(ranks) for ranks in (8, 64, 1000)),
    ]


def _folded(ranks: int) -> Figure:
    """Fold what one rank records of ring all-reduces, as an agent does at its coarsest level."""
    steps = 2 * (ranks - 1)
    calls = max(1, 16_000 // (3 * steps))
    rows = np.zeros(calls * 3 * steps, ROW)
    rows["kind"] = np.tile([SEND, WAIT, RECV], calls * steps)
    rows["peer"] = np.where(rows["kind"] == SEND, 1, ranks - 1)
    rows["step"] = np.tile(np.repeat(np.arange(steps), 3), calls)
    rows["chunk"], rows["phase"] = rows["step"] % ranks, rows["step"] >= ranks - 1
    rows["nbytes"] = np.where(rows["kind"] == WAIT, 0, 4096)
    rows["context"] = 1 + np.repeat(np.arange(calls), 3 * steps)
    rows["seq"] = np.arange(1, 1 + len(rows))
    rows["start_ns"], rows["value"] = rows["seq"] * 100, np.nan
    rows["end_ns"] = rows["start_ns"] + 60
    seconds, left = [], 0
    for _ in range(21):
        start = time.perf_counter()
        left = len(Folding().take(rows, np.zeros(0, CONTEXT), 2)[0])
        seconds.append(time.perf_counter() - start)
    speed = len(rows) / sorted(seconds)[10]
    detail = f"{speed / 1e6:.1f} M rows/s on one core; {OF_A_RANK / 3 / steps:,.0f} calls/s"
    what = f"of {OF_A_RANK:,} rows/s of a ring of {ranks:,}, sums of calls"
    return Figure(what, left / len(rows) * OF_A_RANK, None, "rows/s", False, detail)


def _keep(lines: Iterable[bytes], kept: list[str]) -> None:
    for line in lines:
        if line.startswith(b"at "):
            kept.append(line.decode()[3:])


def _frames(address: str) -> list[Figure]:
    figures = []
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        page.goto(address)
        stage = page.locator(".wb-stage")
        stage.wait_for(timeout=60_000)
        page.wait_for_timeout(5000)
        for scene in SCENES:
            stage.evaluate("(root, name) => root.stage.open(name)", scene)
            page.wait_for_timeout(1500)
            drawn = page.evaluate(DRAW, [stage.element_handle(), 6])
            gaps, costs = sorted(drawn["gaps"]), sorted(drawn["costs"])
            late = (time.monotonic_ns() - stage.evaluate(NEWEST)) / 1e9
            p95 = int(0.95 * len(gaps))
            detail = (
                f"p95 {gaps[p95]:.1f}, longest {gaps[-1]:.0f}; script p95 {costs[p95]:.1f} ms; "
                f"load {os.getloadavg()[0]:.0f}"
            )
            middle = gaps[len(gaps) // 2]
            figures.append(Figure(f"{scene}, frame to frame", middle, 17, "ms", False, detail))
            figures.append(Figure(f"{scene}, newest row is of", late, 3, "s ago", False))
    return figures
