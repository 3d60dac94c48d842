"""Measure what recording costs: one record, and its share of a LeNet step under DDP."""

from __future__ import annotations

import statistics

import workbench as wb
from tests.benchmarks.figures import Figure
from workbench.recording import lane

PAIRS = 21


def cost_of_a_record() -> Figure:
    nanoseconds = min(lane.cost_of_a_record(20_000) for _ in range(5))
    return Figure("one record, clock reading included", nanoseconds, 300, "ns", False)


def share_of_a_step() -> list[Figure]:
    """Records times their cost plus the collector, and pairs of runs with and without recording."""
    base = wb.Experiment(
        strategy="ddp", task="lenet_digits", ranks=2, iterations=150, batch_size=64, threads=1
    )
    shares, seconds = [], {True: [], False: []}
    for _ in range(PAIRS):
        for record in (True, False):
            run = wb.run(base.replace(record=record))
            seconds[record].append(run.wait(120).wall_seconds)
            if record:
                shares.append(run.overhead().share * 100)
    on, off = statistics.median(seconds[True]), statistics.median(seconds[False])
    detail = f"{on:.3f} s with, {off:.3f} s without"
    return [
        Figure("LeNet under DDP: recording", statistics.median(shares), 1, "% of the step", False),
        Figure("the same, timed in pairs", (on / off - 1) * 100, 3, "%", False, detail),
    ]


def measure() -> list[Figure]:
    return [cost_of_a_record(), *share_of_a_step()]
