"""Iterations: when they began and ended, and the rows that belong to some of them.

An iteration lasts from the last end of the one before it, over all ranks, to its own. One is
finished when every rank that computed in it has begun the next, or the run is over. In a record
without computing, calls say when it was; in one without iterations, all of it is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from workbench.analysis.critical_path.moments import COMPUTES
from workbench.analysis.critical_path.spans import UNTRAINED
from workbench.analysis.time_spent import MOST_ROWS, TRAINS

p = pl.col


@dataclass(frozen=True)
class Iterations:
    """``table``: iteration, begin_ns, start_ns, end_ns of those that are finished, in order.
    ``computes``: whether computing was recorded.
    """

    table: pl.DataFrame
    computes: bool

    @property
    def newest(self) -> int | None:
        return int(self.table["iteration"][-1]) if self.table.height else None

    @property
    def oldest(self) -> int | None:
        return int(self.table["iteration"][0]) if self.table.height else None

    def find(self, iteration: int) -> tuple[int, int] | None:
        """Return when an iteration began and ended, ns; None where it is not finished."""
        row = self.table.filter(p("iteration") == iteration)
        return (row["begin_ns"][0], row["end_ns"][0]) if row.height else None


def iterations_of(events: pl.LazyFrame, metadata: Mapping[str, str]) -> Iterations:
    """Return the finished iterations of a run or a job."""
    kind, lasts = p("kind").cast(pl.String), p("end_ns") > p("start_ns")
    whole = lasts & (p("group").cast(pl.String) != UNTRAINED)
    computing = events.filter(whole, kind.is_in(COMPUTES) & (kind != "metric"))
    rows = _by_rank(computing)
    computes = computing.filter(kind.is_in(TRAINS)).head(1).collect().height > 0
    if not rows.height:
        rows = _by_rank(events.filter(whole, kind == "collective"))
    numbered = rows.filter(p("iteration") >= 0)
    rows = numbered if numbered.height else rows
    if "ok" not in metadata and numbered.height:  # it can still go on
        last = rows.group_by("rank").agg(p("iteration").max())
        rows = rows.filter(p("iteration") < last["iteration"].min())
    table = (
        rows.group_by("iteration")
        .agg(p("start_ns").min(), p("end_ns").max())
        .sort("iteration")
        .with_columns(before=p("end_ns").shift(1), previous=p("iteration").shift(1))
    )
    follows = (p("previous") == p("iteration") - 1) & (p("before") < p("end_ns"))
    begin = pl.when(follows).then("before").otherwise("start_ns").alias("begin_ns")
    return Iterations(table.select("iteration", begin, "start_ns", "end_ns"), computes)


def _by_rank(rows: pl.LazyFrame) -> pl.DataFrame:
    ends = p("start_ns").min(), p("end_ns").max()
    return rows.group_by("rank", "iteration").agg(*ends).collect()


def window(events: pl.LazyFrame, begin_ns: int, end_ns: int) -> pl.LazyFrame:
    """Return the rows that began in a span of time."""
    return events.filter(p("start_ns").is_between(begin_ns, end_ns))


def newest_rows(events: pl.LazyFrame, begin_ns: int) -> int:
    """Return from when on the newest MOST_ROWS rows began, ``begin_ns`` at the earliest."""
    starts = events.select("start_ns").top_k(MOST_ROWS, by="start_ns").select(p("start_ns").min())
    return max(begin_ns, int(starts.collect().item() or 0))


def middle(events: pl.LazyFrame, known: Iterations) -> tuple[int, int]:
    """Return the first and the last iteration that are looked at of a long run: those of its
    middle, without the very first, in which connections are made.
    """
    numbers = known.table["iteration"].to_list()[1:]
    count = events.select(pl.len()).collect().item()
    keep = max(1, min(len(numbers), len(numbers) * MOST_ROWS // max(1, count)))
    first = (len(numbers) - keep) // 2
    return numbers[first], numbers[first + keep - 1]
