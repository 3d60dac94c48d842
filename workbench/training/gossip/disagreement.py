"""The replicas' distances from their mean, estimated from the recorded sketches."""

from __future__ import annotations

import polars as pl


def disagreement(events: pl.DataFrame) -> pl.DataFrame:
    """Return each replica's distance from the mean of all after each iteration.

    Columns iteration, rank, distance, norm (of its parameters). Empty without sketches; see
    ``workbench.rank.parameter_sketch`` for their precision. For asynchronous workers, iterations of
    the same number are compared, at whatever time they ran. Iterations that some rank has not done
    are left out.
    """
    c = pl.col
    table = events.filter(c("kind") == "metric", c("name") == "sketch", c("iteration") >= 0)
    ranks = table["rank"].n_unique()
    every = ["iteration", "chunk"]
    return (
        table.select(*every, "rank", "value")
        .with_columns(mean=c("value").mean().over(every), ranks=c("rank").n_unique().over(every))
        .filter(c("ranks") == ranks)
        .group_by("iteration", "rank")
        .agg(
            distance=(c("value") - c("mean")).pow(2).sum().sqrt(),
            norm=c("value").pow(2).sum().sqrt(),
        )
        .sort("iteration", "rank")
    )
