"""The curve "held": what each rank of a sharded model holds, and its rows.

Ranks of FSDP write down what they hold as it changes, activations among it ("held" and
"activations" rows). Theory: a rank that kept all parameters, gradients and the optimizer's state.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import polars as pl

from workbench.analysis.metric_rows import MetricRows
from workbench.store.event_store import Store

NAMES = ("held", "activations")  # of its rows
KEEP = 20  # newest iterations: a line has some forty corners in each
CURVE = pl.Schema(
    {
        "rank": pl.Int32,
        "iteration": pl.Int64,
        "end_ns": pl.Int64,
        "seconds": pl.Float64,
        "model": pl.Float64,
        "held": pl.Float64,
        "unsharded": pl.Int64,
    }
)


def unsharded(metadata: Mapping[str, str]) -> int | None:
    """Return bytes of parameters, gradients and optimizer state on a rank that keeps them whole."""
    facts = json.loads(metadata.get("shards", "null"))
    if not facts:
        return None
    return int(sum(layer["bytes"] for layer in facts["layers"]) * (2 + facts["states"]))


def curve(rows: pl.DataFrame, whole: int | None, origin_ns: int) -> pl.DataFrame:
    """Return each change of what a rank holds: all of it, and the model's share of it.

    The model's share is without activations. ``rows``: metric_rows.ROWS, in any order.
    """
    p = pl.col
    held, active = (rows.filter(p("name") == name) for name in NAMES)
    both = held.join(
        active.select("rank", "end_ns", p("value").alias("active")).unique(["rank", "end_ns"]),
        on=["rank", "end_ns"],
        how="left",
    )
    return both.sort("rank", "end_ns").select(
        p("rank"),
        p("iteration"),
        p("end_ns"),
        ((p("end_ns") - origin_ns) * 1e-9).alias("seconds"),
        (p("value") - p("active").fill_null(0)).alias("model"),
        p("value").alias("held"),
        pl.lit(whole, pl.Int64).alias("unsharded"),
    )


class Held(MetricRows):
    """Such rows of one store, of its KEEP newest iterations."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, NAMES)  # active by "held": a pipeline has "activations" too

    def trim(self, rows: pl.DataFrame) -> pl.DataFrame:
        newest = rows["iteration"].to_numpy().max(initial=-1)
        return rows.filter(pl.col("iteration") > newest - KEEP)
