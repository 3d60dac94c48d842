"""How far replicas are from their mean, estimated from the sketches that they have recorded."""

from __future__ import annotations

import polars as pl


def disagreement(events: pl.DataFrame) -> pl.DataFrame:
    """iteration, rank, distance of its replica from the mean of all after that iteration, norm of
    its parameters. Empty where nothing was sketched; see ``workbench.gossip.sketch`` for how exact
    it is.

    Of asynchronous workers, iterations of one number are compared, wherever they are in time. Those
    that some rank has not done (yet) are left out.
    """
    c = pl.col
    told = events.filter(c("kind") == "metric", c("name") == "sketch", c("iteration") >= 0)
    ranks = told["rank"].n_unique()
    every = ["iteration", "chunk"]
    return (
        told.select(*every, "rank", "value")
        .with_columns(mean=c("value").mean().over(every), ranks=c("rank").n_unique().over(every))
        .filter(c("ranks") == ranks)
        .group_by("iteration", "rank")
        .agg(
            distance=(c("value") - c("mean")).pow(2).sum().sqrt(),
            norm=c("value").pow(2).sum().sqrt(),
        )
        .sort("iteration", "rank")
    )
