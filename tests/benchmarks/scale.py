"""A thousand ranks at the rows a second that a driver takes: its memory, and the page's frames.

The rows are those of a recorded run of eight ranks, in 125 copies (scale_server.py), whole: nothing
is left out. At 50,000 rows a second of each rank there would be 125 times as many as are played
here; an agent's ring then laps what is not read in time, and those rows are counted.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from collections.abc import Iterable

import workbench as wb
from tests.benchmarks.figures import Figure
from tests.benchmarks.pages import chromium, server
from tests.benchmarks.scenes import DRAW

RATE = 400_000  # rows a second, of all ranks
SECONDS = 60  # that are watched
SCENES = ("overview", "collectives", "timeline")


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        recorded = f"{folder}/recorded.parquet"
        run = wb.run(wb.Experiment(ranks=8, iterations=6, threads=1))
        run.wait(120, progress=False)
        run.store.save(recorded)
        wb.shutdown()
        lines: list[str] = []
        pipe = subprocess.PIPE
        module = "tests.benchmarks.scale_server"
        with server(module, "{port}", recorded, str(RATE), stdout=pipe) as (address, driver):
            assert driver.stdout is not None
            threading.Thread(target=_keep, args=(driver.stdout, lines), daemon=True).start()
            figures = _frames(address)
            while len(lines) < SECONDS:
                threading.Event().wait(0.2)
    rows, memory, late = zip(*(map(float, line.split()) for line in lines), strict=True)
    half = len(rows) // 2
    grown = max(memory[half:]) - max(memory[half // 2 : half])
    rate = (rows[-1] - rows[half]) / (len(rows) - 1 - half)
    detail = (
        f"1,000 ranks, {rate:,.0f} rows/s, {rows[-1]:,.0f} in all; load {os.getloadavg()[0]:.0f}"
    )
    return [
        Figure("driver's memory, second half over second quarter", grown, 100, "MB", False, detail),
        Figure("driver's memory at most", max(memory), None, "MB", False, detail),
        Figure("behind its clock", late[-1], 1, "s", False, detail),
        *figures,
    ]


def _keep(lines: Iterable[bytes], kept: list[str]) -> None:
    for line in lines:
        if line.startswith(b"at "):
            kept.append(line.decode()[3:])


def _frames(address: str) -> list[Figure]:
    figures = []
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1040, "height": 1000})
        page.goto(address)
        stage = page.locator(".wb-stage")
        stage.wait_for(timeout=60_000)
        page.wait_for_timeout(5000)
        for scene in SCENES:
            stage.evaluate("(root, name) => root.stage.open(name)", scene)
            page.wait_for_timeout(1500)
            drawn = page.evaluate(DRAW, [stage.element_handle(), 4])
            costs, rate = sorted(drawn["costs"]), 1e3 * len(drawn["gaps"]) / sum(drawn["gaps"])
            detail = f"script a frame, p95 {costs[int(0.95 * len(costs))]:.1f} ms"
            figures.append(Figure(f"{scene}, frames a second", rate, 60, "/s", True, detail))
    return figures
