"""DDP on paced links: the share that backward hides of the communication that it could hide."""

from __future__ import annotations

import statistics

import workbench as wb
from tools.benchmarks.figures import Figure
from workbench.presets.ddp import bucketed

CAPS = (0.05, 0.1, 0.2)  # MiB
ITERATIONS, REPEATS = 20, 3
LEAST = 70.0  # %


def measure() -> list[Figure]:
    figures = []
    for cap in CAPS:
        overlaps = []
        for _ in range(REPEATS):
            run = wb.run(bucketed(ITERATIONS, bucket_cap_mb=cap))
            run.wait(120)
            overlaps.append(run.overlap())
        shares = [100 * one.hidden_share for one in overlaps]
        middle = sorted(overlaps, key=lambda one: one.hidden_share)[REPEATS // 2]
        detail = (
            f"{middle.mean('hidden'):.1f} of {middle.mean('hidable'):.1f} ms, "
            f"{middle.mean('communication'):.1f} in all; step {middle.mean('step'):.1f} ms"
        )
        what = f"hidden of what could be, n=4, buckets of {cap:g} MiB"
        figures.append(Figure(what, statistics.median(shares), LEAST, "%", True, detail))
    return figures
