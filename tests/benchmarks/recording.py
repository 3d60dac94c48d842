"""Measure what recording costs: one record, and its share of a LeNet step under DDP."""

from __future__ import annotations

import statistics

import workbench as wb
from tests.benchmarks.figures import Figure
from workbench.recording import lane

PAIRS = 31
WITHIN = 9, 21  # of 31 values in order, where their median lies between, in 95 of 100 samples


def cost_of_a_record() -> Figure:
    nanoseconds = min(lane.cost_of_a_record(20_000) for _ in range(5))
    return Figure("one record, clock reading included", nanoseconds, 300, "ns", False)


def share_of_a_step(ranks: int) -> list[Figure]:
    """What the run's own meter says, records and the collector; and what pairs of runs say, with
    and without recording in turn, with the interval in which the median of such pairs lies.
    """
    base = wb.Experiment(
        strategy="ddp", task="lenet_digits", ranks=ranks, iterations=150, batch_size=64, threads=1
    )
    shares, added = [], []
    for pair in range(PAIRS):
        seconds = {}
        for record in (True, False) if pair % 2 else (False, True):
            run = wb.run(base.replace(record=record))
            seconds[record] = run.wait(120).wall_seconds
            if record:
                shares.append(run.overhead().share * 100)
        added.append((seconds[True] / seconds[False] - 1) * 100)
    metered, ordered = statistics.median(shares), sorted(added)
    low, high = (ordered[at] for at in WITHIN)
    detail = f"95 %: {low:.1f} to {high:.1f} %, in which the meter's {metered:.1f} % "
    detail += "lies" if low <= metered <= high else "does not lie"
    what = f"LeNet under DDP, n={ranks}: recording"
    return [
        Figure(f"{what}, by its meter", metered, 0.5, "% of the step", False),
        Figure(f"{what}, by {PAIRS} pairs", statistics.median(added), None, "%", False, detail),
    ]


def measure() -> list[Figure]:
    return [cost_of_a_record(), *(one for n in (2, 4) for one in share_of_a_step(n))]
