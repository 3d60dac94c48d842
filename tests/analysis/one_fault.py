"""Runs with one known fault each, and balanced ones.

``python -m tests.analysis.one_fault [NAME ...]`` records all of them, or those that are named, into
tests/analysis/recorded/.

Computing is padded, so that ranks sleep instead of sharing the cores of the machine that records.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import workbench as wb
from tests.live import PATIENCE, lenet, training, until

FOLDER = Path(__file__).parent / "recorded"
BEGINS = 3  # the iteration, from 0, in which a fault begins that is not there from the start


@dataclass(frozen=True)
class Case:
    """A run and the only cause that may be named of it; ``begins``: the first iteration with it."""

    experiment: wb.Experiment
    cause: str
    ranks: tuple[int, ...] = ()  # whose doing it is; of a link its two ends
    begins: int = 0
    held: bool = False  # by the user, in the middle


def averaged(**more: Any) -> wb.Experiment:
    """Four ranks that average gradients over a ring, in one bucket."""
    own = {"strategy": "ddp", "ranks": 4, "iterations": 8, "pad_compute": "30 ms"}
    return lenet(**{**own, **more})


def piped(**more: Any) -> wb.Experiment:
    options = {"schedule": "gpipe", "microbatches": 4, **more.pop("options", {})}
    own = {"ranks": 3, "iterations": 6, "batch_size": 8, "pad_compute": "80 ms"}
    return lenet(strategy="pipeline", **{**own, **more}, options=options)


def served(**more: Any) -> wb.Experiment:
    own = {"strategy": "parameter_server", "options": {"consistency": "asp"}}
    return averaged(**{**own, **more})


NARROW = wb.Network(bandwidth="20 Mbit/s")
SMALL = {"bucket_cap_mb": 0.0001}
LATE = {"at_iteration": BEGINS}

FAULTS: dict[str, Case] = {
    "slow link": Case(
        averaged(network=wb.Network(links={(1, 2): wb.Link(latency="40 ms")}), iterations=5),
        "slow link",
        (1, 2),
    ),
    "latency": Case(averaged(network=wb.Network(latency="8 ms"), iterations=5), "latency"),
    "bandwidth": Case(averaged(network=NARROW, iterations=5), "bandwidth"),
    "shared card": Case(
        averaged(network=wb.Network(levels=(2, 2), nic="20 Mbit/s"), iterations=5), "card"
    ),
    "slow rank": Case(
        averaged(faults=wb.Slow(rank=2, factor=8, **LATE)), "straggler", (2,), BEGINS
    ),
    "jitter": Case(averaged(faults=wb.Jitter(probability=0.4, factor=8), iterations=12), "turns"),
    "frozen rank": Case(
        averaged(faults=wb.Freeze(rank=1, seconds=2.5, **LATE)), "straggler", (1,), BEGINS
    ),
    "two slow ranks": Case(
        averaged(faults=[wb.Slow(rank=one, factor=8, **LATE) for one in (1, 3)]),
        "straggler",
        (1, 3),
        BEGINS,
    ),
    "small buckets": Case(
        averaged(network=wb.Network(latency="8 ms"), options=SMALL, iterations=4),
        "latency",
    ),
    "hot server": Case(served(ranks=5, network=NARROW, iterations=5), "server", (0,)),
    "few cores": Case(lenet(strategy="ddp", ranks=8, iterations=4, batch_size=256), "cores"),
    "slow data": Case(averaged(faults=wb.SourceDown(seconds=2.5, **LATE)), "data"),
    "bubble": Case(piped(options={"microbatches": 2}), "bubble"),
    "slow stage": Case(piped(faults=wb.Slow(rank=1, factor=4, **LATE)), "stage", (1,), BEGINS),
    "held by the user": Case(averaged(iterations=24), "compute", held=True),
}
BALANCED: dict[str, Case] = {
    f"balanced {name}": Case(experiment, "compute")
    for name, experiment in {
        "ring": averaged(strategy="data_parallel", iterations=4),
        "pair": averaged(ranks=2),
        "naive": averaged(ranks=3, all_reduce="naive"),
        "buckets": averaged(options={"bucket_cap_mb": 0.05}),
        "gossip": averaged(strategy="gossip"),
        "server": served(ranks=4),
        "shards": averaged(ranks=2, strategy="fsdp"),
        "local": averaged(strategy="local_sgd", options={"every": 2}),
    }.items()
}
CASES = FAULTS | BALANCED


def file_of(name: str) -> Path:
    """Return the file of a case's rows."""
    return FOLDER / f"{name.replace(' ', '_')}.parquet"


def live(case: Case) -> wb.Run:
    """Run a case to its end."""
    run = wb.run(case.experiment)
    if case.held:
        training(run, BEGINS)
        run.pause()
        time.sleep(2)
        run.resume()
        at = run.iteration
        until(lambda: run.done or run.iteration > at + BEGINS, PATIENCE)
    run.wait(timeout=PATIENCE)
    return run


def main() -> None:
    """Record all of them, or those that are named."""
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or CASES:
        run = live(CASES[name])
        run.store.save(file_of(name))
        print(name, file_of(name).stat().st_size, run.events.height, run.bottleneck(), flush=True)


if __name__ == "__main__":
    main()
