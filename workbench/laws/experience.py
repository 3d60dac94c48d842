"""The law of what actors play: a block is inserted once, after it was sent, and none is invented.

For each actor and each replay, at any moment: blocks that replay has taken in are no more than the
actor has sent, and the n-th of them was sent before it was taken in. Each is inserted, or dropped
as too old, to the last transition. Once the run is over, replay has taken in all that an actor sent
whose farewell it has; a farewell may come before the last block is taken in.
"""

from __future__ import annotations

import polars as pl

from workbench.laws.violation import Row, Violation, report

_PAIR = ["actor", "replay", "generation"]


def conserved_experience(events: pl.DataFrame, *, complete: bool = True) -> list[Violation]:
    """Check that experience is neither lost nor invented. ``complete``: the run ended well; of
    another one the row of a block's sender, or of its insertion, may be still to come.
    """
    p, named = pl.col, pl.col("name")
    metrics = events.filter(p("kind") == "metric")
    came = metrics.filter(named == "inserted").select(
        p("peer").alias("actor"), p("rank").alias("replay"), "generation", "end_ns", "value"
    )
    if not came.height:
        return []
    sent = events.filter(p("kind") == "send", named == "experience").select(
        p("rank").alias("actor"), p("peer").alias("replay"), "generation", "start_ns"
    )
    number = pl.int_range(pl.len()).over(_PAIR).alias("block")
    matched = (
        came.sort("end_ns")
        .with_columns(number)
        .join(sent.sort("start_ns").with_columns(number), on=[*_PAIR, "block"], how="left")
    )
    unsent = p("start_ns").is_null() & complete
    early = matched.filter(unsent | (p("start_ns") > p("end_ns")))
    return [
        *report("conserved experience", early, _early),
        *(report("conserved experience", _lost(events, came, sent), _missing) if complete else ()),
        *report("conserved experience", _uneven(metrics), _torn),
    ]


def _lost(events: pl.DataFrame, came: pl.DataFrame, sent: pl.DataFrame) -> pl.DataFrame:
    """Return the pairs that have parted while a block was not taken in."""
    p = pl.col
    parted = events.filter(p("kind") == "recv", p("name") == "farewell").select(
        p("peer").alias("actor"), p("rank").alias("replay"), "generation"
    )
    counts = parted.unique().join(
        sent.group_by(_PAIR).agg(pl.len().alias("sent")), on=_PAIR, how="left"
    )
    counts = counts.join(came.group_by(_PAIR).agg(pl.len().alias("came")), on=_PAIR, how="left")
    return counts.with_columns(p("sent", "came").fill_null(0)).filter(p("came") < p("sent"))


def _uneven(metrics: pl.DataFrame) -> pl.DataFrame:
    """Return the blocks of which not as many transitions were inserted or dropped as of others."""
    p = pl.col
    inserted = p("name") == "inserted"
    counts = metrics.filter(inserted | (p("name") == "dropped experience")).sort("rank", "seq")
    blocks = (  # what is dropped of a block is told just before what is inserted of it
        counts.with_columns(p("peer").alias("actor"), p("rank").alias("replay"))
        .with_columns(block=inserted.cast(pl.Int64).cum_sum().over(_PAIR) - inserted)
        .group_by(*_PAIR, "block")
        .agg(p("value").sum().alias("transitions"), inserted.any().alias("whole"))
        .filter("whole")
        .with_columns(usual=p("transitions").mode().max())
    )
    return blocks.filter(p("transitions") != p("usual")).sort(*_PAIR, "block")


def _early(row: Row) -> str:
    when = "that was never sent" if row["start_ns"] is None else "before it was sent"
    return f"replay {row['replay']} inserted block {row['block']} of actor {row['actor']} {when}"


def _missing(row: Row) -> str:
    return (
        f"actor {row['actor']} sent {row['sent']} blocks to replay {row['replay']} and left, and "
        f"{row['came']} of them were taken in"
    )


def _torn(row: Row) -> str:
    return (
        f"replay {row['replay']} inserted and dropped {row['transitions']:.0f} transitions of "
        f"block {row['block']} of actor {row['actor']}, and a block has {row['usual']:.0f}"
    )
