"""Runs of judges: small, real, waited for, and then read from their record."""

from __future__ import annotations

from typing import Any

import polars as pl

from workbench.experiment.spec import Experiment
from workbench.runs.run import Run, start

PATIENCE = 120.0  # seconds: a run that lasts longer has not ended


def experiment(**fields: Any) -> Experiment:
    """Return an experiment, of a class as its task too."""
    return Experiment(**fields)


def finished(exp: Experiment, timeout: float = PATIENCE) -> Run:
    """Run ``exp`` to its end. Raises what the run raises, a WorkbenchError."""
    started = start(exp)
    try:
        started.wait(timeout, progress=False)
    finally:
        if not started.done:
            started.stop()
    return started


def sent_bytes(of: Run, **where: Any) -> dict[int, int]:
    """Return the payload bytes that each rank sent; ``where`` filters the rows."""
    rows = of.events.filter(kind="send", **where).group_by("rank").agg(pl.col("nbytes").sum())
    return dict(rows.sort("rank").rows())


def calls_ms(of: Run, **where: Any) -> list[float]:
    """Return how long each collective lasted, from the first rank's start to the last's end."""
    rows = of.events.filter(kind="collective", **where)
    spans = rows.group_by("op").agg(pl.col("start_ns").min(), pl.col("end_ns").max()).sort("op")
    return [(end - start) / 1e6 for start, end in spans.select("start_ns", "end_ns").rows()]


def between_ends_ms(of: Run, **where: Any) -> float:
    """Return the median time from the end of one collective to the end of the next: how many fit
    into a second, where each begins before all ranks have ended the one before.
    """
    rows = of.events.filter(kind="collective", **where)
    ends = rows.group_by("op").agg(pl.col("end_ns").max()).sort("op")["end_ns"]
    between: Any = ends.diff().drop_nulls().median()
    return float(between) / 1e6
