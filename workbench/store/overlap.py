"""Overlap: the communication that computation hides, that is exposed, that could be hidden.

For one rank and one iteration:

    step           from the start of its first row to the end of its last one
    compute        the union of its computing
    communication  the union of its collectives, pushes and pulls, what they waited inside included
    hidden         where both happen at once
    exposed        communication - hidden: what no computing hides, waiting included
    hidable        of DDP's buckets: no more than all but the last one's communication, since that
                   one is full only when backward ends; and no more than what is left of backward
                   once the first one is full

Source  Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB
        2020, section 3.2.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from workbench.store.iterations import COMPUTE, OUTER, ROWS, steps

TIMES = ("step", "compute", "communication", "hidden", "exposed", "hidable")
FULL = "bucket full"  # the metric that says so; its value is the bucket's number
NAMED = r"^bucket (\d+)$"  # a collective's name


@dataclass(frozen=True)
class Overlap:
    """The measured overlap.

    All means are over ranks and iterations without the first two: DDP builds its buckets again in
    the second one.
    """

    table: pl.DataFrame  # iteration, rank, and of TIMES: step_ms, ...; hidable_ms null: no buckets
    buckets: pl.DataFrame  # iteration, rank, bucket, nbytes; full, begins, ends: ms from the step's

    def mean(self, name: str) -> float:
        """Return the mean of one of TIMES in ms; NaN where it is unknown."""
        result = self.settled[f"{name}_ms"].drop_nulls()
        return float(result.to_numpy().mean()) if len(result) else float("nan")

    @property
    def settled(self) -> pl.DataFrame:
        """The table without the first two iterations, if there are more."""
        later = self.table.filter(pl.col("iteration") > 1)
        return later if later.height else self.table

    @property
    def exposed_share(self) -> float:
        """The exposed share of a step."""
        return self.mean("exposed") / self.mean("step")

    @property
    def hidden_share(self) -> float:
        """The hidden share of what could be hidden; NaN without buckets."""
        table = self.settled.drop_nulls("hidable_ms")
        could = float(table["hidable_ms"].to_numpy().sum())
        done = table.select(pl.min_horizontal("hidden_ms", "hidable_ms")).to_series()
        return float(done.to_numpy().sum()) / could if could else float("nan")

    def by_rank(self) -> pl.DataFrame:
        """Return rank, and the means over its iterations of all of TIMES, in ms."""
        times = [pl.col(f"{name}_ms").mean() for name in TIMES]
        return self.settled.group_by("rank").agg(times).sort("rank")

    def by_bucket(self) -> pl.DataFrame:
        """Return a row per bucket: when it is full, begins and ends, in ms from the step's start:
        medians over ranks and iterations, as ``settled``.
        """
        late = self.buckets.filter(pl.col("iteration") > 1)
        times = pl.col("full", "begins", "ends").median()
        return late.group_by("bucket").agg(times).sort("bucket")

    @property
    def words(self) -> str:
        """The overlap in a sentence."""
        if not self.table.height:
            return "no iteration is complete"
        step, exposed = self.mean("step"), self.mean("exposed")
        text = (
            f"a step takes {step:.1f} ms, of which {exposed:.1f} ms ({self.exposed_share:.0%}) are "
            f"exposed communication and waiting; {self.mean('hidden'):.1f} ms are hidden behind "
            "computing"
        )
        if self.hidden_share == self.hidden_share:
            could = self.mean("hidable")
            text += f", {self.hidden_share:.0%} of the {could:.1f} ms that could be"
        return text

    def __str__(self) -> str:
        return self.words


def measure(events: pl.DataFrame, holds: Sequence[tuple[int, int]] = ()) -> Overlap:
    """Measure the overlap in every iteration that a rank has ended. ``holds``: when a reader held
    the ranks.
    """
    p = pl.col
    kind, name = p("kind").cast(pl.String), p("name").cast(pl.String)
    picked = events.filter(
        (p("iteration") >= 0) & (p("rank") >= 0) & kind.is_in([*COMPUTE, *OUTER])
    ).with_columns(name=name, kind=kind)
    columns = [p(column).cast(ROWS[column]) for column in ROWS]
    result = steps(picked.select(columns), holds).filter("ended")
    took = {f"{one}_ms": p(f"{one}_ns") / 1e6 for one in TIMES if one != "exposed"}
    table = result.select(
        "iteration", "rank", **took, exposed_ms=(p("communication_ns") - p("hidden_ns")) / 1e6
    ).sort("iteration", "rank")
    began = result.select("iteration", "rank", began="start_ns")
    return Overlap(table, _buckets(picked, began))


def _buckets(rows: pl.DataFrame, began: pl.DataFrame) -> pl.DataFrame:
    """Return when each bucket was full, and when its communication began and ended."""
    p, key = pl.col, ["iteration", "rank", "bucket"]
    full = rows.filter(p("kind") == "metric", p("name") == FULL).select(
        "iteration", "rank", bucket=p("value").cast(pl.Int64), full="start_ns"
    )
    moved = (
        rows.filter(p("kind") == "collective")
        .with_columns(bucket=p("name").str.extract(NAMED).cast(pl.Int64))
        .drop_nulls("bucket")
        .group_by(key)
        .agg(p("nbytes").sum(), begins=p("start_ns").min(), ends=p("end_ns").max())
    )
    since = [((p(name) - p("began")) / 1e6).alias(name) for name in ("full", "begins", "ends")]
    return (
        full.join(moved, on=key)
        .join(began, on=["iteration", "rank"])
        .select(*key, "nbytes", *since)
        .sort(key)
    )
