"""The time of a run, from its rows: checkpoints, lost work, recovery, and what is left.

    checkpoint  training waits for one: rows "copy" and "wait", the longest of the ranks'
    lost        from the start of the iteration that training went back to, until the failure
    recovery    from the failure until that iteration begins again

The three never overlap: a checkpoint in lost work is lost work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from workbench.analysis.recovery import TRAINING
from workbench.store.recoveries import Recovery, recoveries_of

EXPOSED = ("copy", "wait")


@dataclass(frozen=True)
class Measured:
    """One run that came to its end, in seconds."""

    every: int  # iterations between two checkpoints
    iterations: int  # that count
    seconds: float  # from the first iteration's start to the last one's end
    checkpoints: tuple[float, ...] = ()  # how long training waited for each, but for lost ones
    lost: tuple[float, ...] = ()  # work that each failure threw away
    recovery: tuple[float, ...] = ()  # of each failure


def measure(
    events: pl.LazyFrame, metadata: Mapping[str, str], every: int, iterations: int
) -> Measured | None:
    """Measure a run from its rows; None for one that did no iteration."""
    training, waits, faults = _rows(events)
    if not training.height:
        return None
    start, end = _least(training["start_ns"]), _most(training["end_ns"])
    lost, recovery, spans = list[float](), list[float](), list[tuple[int, int]]()
    for one in recoveries_of(metadata):
        failed, again = _failed(faults, one), _begun(training, one.generation)
        if failed is None or again is None:
            continue  # a failure while the ranks recovered from the one before: part of that
        before = training.filter(
            pl.col("generation") < one.generation, pl.col("iteration") >= one.iteration
        )
        before = before.filter(pl.col("generation") == pl.col("generation").max())
        back = min(_least(before["start_ns"]), failed) if before.height else failed
        lost.append((failed - back) * 1e-9)
        recovery.append((again - failed) * 1e-9)
        spans.append((back, again))
        start = min(start, back)
    p = pl.col
    outside = pl.all_horizontal(
        p("start_ns") < end, *(~p("start_ns").is_between(*span) for span in spans)
    )
    costs = _costs(waits.filter(outside))
    return Measured(
        every,
        iterations,
        (end - start) * 1e-9,
        tuple(costs["seconds"]),
        tuple(lost),
        tuple(recovery),
    )


def iteration_seconds(events: pl.LazyFrame) -> float | None:
    """Return the median time of an iteration of a run without failures; None where fewer than three
    were done: the first ones warm up. Of iterations without a checkpoint where there are two such;
    else what a checkpoint takes is left out.
    """
    training, waits, _ = _rows(events)
    begun = training.group_by("iteration").agg(pl.min("start_ns")).sort("iteration")
    if begun.height < 3:
        return None
    costs = dict(_costs(waits).select("iteration", "seconds").iter_rows())
    took = np.diff(begun["start_ns"].to_numpy()) * 1e-9
    after = begun["iteration"][1:]  # a checkpoint of this iteration is in the one before
    seconds = [(float(one), costs.get(i, 0.0)) for one, i in zip(took, after, strict=True)][1:]
    plain = [one for one, cost in seconds if not cost]
    some = plain if len(plain) > 1 else [one - cost for one, cost in seconds]
    return max(float(np.median(some)), 1e-9)


def _rows(events: pl.LazyFrame) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Return the rows of training, those of waits for checkpoints, and those of failures."""
    p = pl.col
    columns = ("rank", "generation", "peer", "iteration", "start_ns", "end_ns")
    kinds = [*TRAINING, "checkpoint", "fault", "detect"]
    rows = (
        events.with_columns(p("kind", "name").cast(pl.String))
        .filter(p("kind").is_in(kinds))
        .select("kind", "name", *(p(one).cast(pl.Int64) for one in columns))
        .collect()
    )
    training = rows.filter(p("kind").is_in(TRAINING), p("iteration") >= 0, p("rank") >= 0)
    waits = rows.filter(
        p("kind") == "checkpoint", p("name").is_in(EXPOSED), p("iteration") >= 0, p("rank") >= 0
    )
    kill = (p("kind") == "fault") & (p("name") == "kill")
    return training, waits, rows.filter(kill | (p("kind") == "detect"))


def _costs(waits: pl.DataFrame) -> pl.DataFrame:
    """Return how long training waited for each checkpoint: as long as the last rank."""
    p = pl.col
    each = waits.with_columns(spent=(p("end_ns") - p("start_ns")) * 1e-9)
    by_rank = each.group_by("generation", "iteration", "rank").agg(p("spent").sum())
    return (
        by_rank.group_by("generation", "iteration").agg(seconds=p("spent").max()).sort("iteration")
    )


def _failed(faults: pl.DataFrame, one: Recovery) -> int | None:
    """Return when the ranks were lost: killed, or else noticed to have ended."""
    p, lost = pl.col, [int(rank) for rank in one.lost]
    old = faults.filter(p("generation") == one.generation - 1)
    kill = old.filter(p("kind") == "fault", p("rank").is_in(lost))
    losses = kill if kill.height else old.filter(p("kind") == "detect", p("peer").is_in(lost))
    return _least(losses["end_ns"]) if losses.height else None


def _begun(training: pl.DataFrame, generation: int) -> int | None:
    """Return when a generation began to train."""
    of_generation = training.filter(pl.col("generation") == generation)
    return _least(of_generation["start_ns"]) if of_generation.height else None


def _least(values: pl.Series) -> int:
    return int(values.to_numpy().min())


def _most(values: pl.Series) -> int:
    return int(values.to_numpy().max())
