"""Measure what recording costs: one record, and its share of a LeNet step under DDP."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterable
from pathlib import Path

import workbench as wb
from tools.benchmarks.figures import Figure
from workbench.recording import lane

PAIRS = 31
WITHIN = 9, 21  # of 31 values in order, where their median lies between, in 95 of 100 samples


def cost_of_a_record() -> Figure:
    nanoseconds = min(lane.cost_of_a_record(20_000) for _ in range(5))
    return Figure("one record, clock reading included", nanoseconds, 300, "ns", False)


def processor_ns(pids: Iterable[int]) -> int:
    """Return the processor time that all threads of these processes have had so far."""
    files = (file for pid in pids for file in Path(f"/proc/{pid}/task").glob("*/schedstat"))
    return sum(int(file.read_text().split()[0]) for file in files)


def processor_per_iteration(experiment: wb.Experiment) -> tuple[float, wb.Run]:
    """Return the processor time, in ns, that an iteration takes of ranks and driver together, and
    the run. Where ranks outnumber cores it is what the wall time comes to, and neither what else is
    busy nor how ranks happen to be placed changes it much.
    """
    run = wb.run(experiment)
    moments = []
    for iteration in (20, experiment.iterations - 10):
        while run.iteration < iteration and not run.done:
            time.sleep(2e-3)
        moments.append((run.iteration, processor_ns([*run.pids.values(), os.getpid()])))
    run.wait(120)
    (first, begun), (last, ended) = moments
    return (ended - begun) / (last - first), run


def share_of_a_step(ranks: int) -> list[Figure]:
    """What the run's own meter says, records and the collector; and what pairs of runs say, with
    and without recording in turn, with the interval in which the median of such pairs lies.
    """
    base = wb.Experiment(
        strategy="ddp", task="lenet_digits", ranks=ranks, iterations=150, batch_size=64, threads=1
    )
    shares, added = [], []
    for pair in range(PAIRS):
        spent = {}
        for record in (True, False) if pair % 2 else (False, True):
            spent[record], run = processor_per_iteration(base.replace(record=record))
            if record:
                shares.append(run.overhead().share * 100)
        added.append((spent[True] / spent[False] - 1) * 100)
    metered, ordered = statistics.median(shares), sorted(added)
    low, high = (ordered[at] for at in WITHIN)
    detail = f"95 %: {low:.1f} to {high:.1f} %, in which the meter's {metered:.1f} % "
    detail += "lies" if low <= metered <= high else "does not lie"
    what = f"LeNet under DDP, n={ranks}: recording"
    pairs = f"{what}, processor time of {PAIRS} pairs"
    return [
        Figure(f"{what}, by its meter", metered, 0.5, "% of the step", False),
        Figure(pairs, statistics.median(added), None, "%", False, detail),
    ]


def measure() -> list[Figure]:
    return [cost_of_a_record(), *(one for n in (2, 4) for one in share_of_a_step(n))]
