"""The findings of a study of the checkpoint interval: pure, from measured runs.

every         iterations between two checkpoints; interval_s: seconds of training between them
runs          that came to their end; failures: of all of them together
seconds       of a useful iteration, which no later one did again: the median over the runs;
              seconds_least and seconds_most over them
checkpoint_s  the part of it in which training waits for checkpoints; lost_s: for work that a
              failure threw away; recovery_s: from a failure until that work begins again; medians
expected_s    what Young's first-order model has for ``seconds``, from the costs of ``costs_of``
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from workbench.formulas.checkpoint_interval import daly, first_order, young
from workbench.studies.interval.reading import Measured

SCHEMA = pl.Schema(
    {
        "every": pl.Int64(),
        "interval_s": pl.Float64(),
        "runs": pl.Int64(),
        "failures": pl.Int64(),
        "seconds": pl.Float64(),
        "seconds_least": pl.Float64(),
        "seconds_most": pl.Float64(),
        "checkpoint_s": pl.Float64(),
        "lost_s": pl.Float64(),
        "recovery_s": pl.Float64(),
        "expected_s": pl.Float64(),
    }
)


@dataclass(frozen=True)
class Costs:
    """The quantities of theory, in seconds."""

    iteration: float  # of training, without checkpoints and failures
    checkpoint: float  # C: the time that training waits for one checkpoint
    restart: float  # R: from a failure until lost work begins again; 0 without failures
    mtbf: float  # M

    @property
    def young(self) -> float:
        """Young's interval in iterations."""
        return young(self.checkpoint, self.mtbf) / self.iteration

    @property
    def daly(self) -> float:
        """Daly's interval in iterations."""
        return daly(self.checkpoint, self.mtbf) / self.iteration

    def expected(self, every: float) -> float:
        """Return the expected seconds of a useful iteration, to first order."""
        interval = every * self.iteration
        return self.iteration * first_order(interval, self.checkpoint, self.mtbf, self.restart)


def costs_of(runs: Sequence[Measured], iteration: float | None, mtbf: float) -> Costs | None:
    """Return what was measured of the costs; None while no checkpoint was.

    A checkpoint's cost is the median over intervals of each one's median, so that short intervals,
    which write most of them, count no more than long ones.
    """
    by_every = {
        one.every: [c for r in runs if r.every == one.every for c in r.checkpoints] for one in runs
    }
    medians = [float(np.median(each)) for each in by_every.values() if each]
    if iteration is None or not medians:
        return None
    restarts = [one for run in runs for one in run.recovery]
    restart = float(np.median(restarts)) if restarts else 0.0
    return Costs(iteration, float(np.median(medians)), restart, mtbf)


def table_of(runs: Sequence[Measured], costs: Costs | None) -> pl.DataFrame:
    """Return a row per interval, shortest first, with the columns above."""
    rows = []
    for every in sorted({run.every for run in runs}):
        of_interval = [run for run in runs if run.every == every]
        each = [run.seconds / run.iterations for run in of_interval]
        rows.append(
            {
                "every": every,
                "interval_s": None if costs is None else every * costs.iteration,
                "runs": len(of_interval),
                "failures": sum(len(run.recovery) for run in of_interval),
                "seconds": float(np.median(each)),
                "seconds_least": min(each),
                "seconds_most": max(each),
                "checkpoint_s": float(
                    np.median([sum(r.checkpoints) / r.iterations for r in of_interval])
                ),
                "lost_s": float(np.median([sum(r.lost) / r.iterations for r in of_interval])),
                "recovery_s": float(
                    np.median([sum(r.recovery) / r.iterations for r in of_interval])
                ),
                "expected_s": None if costs is None else costs.expected(every),
            }
        )
    return pl.DataFrame(rows, schema=SCHEMA)


def best_of(table: pl.DataFrame) -> int | None:
    """Return the interval whose useful iterations took least, in iterations; None: none was run."""
    return int(table.sort("seconds")["every"][0]) if table.height else None
