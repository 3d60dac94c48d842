"""Tables that were tampered with: a row less, a row twice, a row that says something else."""

from __future__ import annotations

from typing import Any

import polars as pl

from tests.laws.simulator import simulate
from workbench.laws import check_events
from workbench.store.table import SCHEMA


def without(events: pl.DataFrame, which: pl.Expr) -> pl.DataFrame:
    """``events`` less the first row of ``which``, numbered again so that only its absence tells."""
    rows = events.with_row_index("index")
    gone = rows.filter(which)["index"][0]
    left = rows.filter(pl.col("index") != gone).drop("index")
    return left.with_columns(seq=pl.int_range(pl.len()).over("rank", "lane").cast(pl.Int64))


def changed(events: pl.DataFrame, which: pl.Expr, **to: Any) -> pl.DataFrame:
    """``events`` with columns of the first row of ``which`` set."""
    rows = events.with_row_index("index")
    one = pl.col("index") == rows.filter(which)["index"][0]
    return rows.with_columns(
        pl.when(one).then(pl.lit(value).cast(SCHEMA[column])).otherwise(column).alias(column)
        for column, value in to.items()
    ).drop("index")


def twice(events: pl.DataFrame, which: pl.Expr) -> pl.DataFrame:
    """``events`` with the first row of ``which`` written twice."""
    row = events.filter(which).head(1)
    doubled = pl.concat([events, row]).sort("rank", "end_ns", maintain_order=True)
    return doubled.with_columns(seq=pl.int_range(pl.len()).over("rank", "lane").cast(pl.Int64))


def verdict(events: pl.DataFrame, law: str) -> str:
    """Return what ``law`` says of ``events``; the others may say something too."""
    words = [v.words for v in check_events(events) if v.law == law]
    assert words
    return "\n".join(words)


def row(kind: str, rank: int, step: int, op: int = 0) -> pl.Expr:
    return (
        (pl.col("kind") == kind)
        & (pl.col("rank") == rank)
        & (pl.col("step") == step)
        & (pl.col("op") == op)
    )


RING = simulate("ring", 4, 103, slots=2, ops=2, seed=5)
TEXTBOOK = simulate("ring by exchange", 4, 103, seed=6)
