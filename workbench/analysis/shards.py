"""The curve "held": what each rank of a sharded model holds, and its rows.

Ranks of FSDP write down what they hold as it changes, activations among it ("held" and
"activations" rows). Theory: a rank that kept all parameters, gradients and the optimiser's state.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from workbench.recording.events import CODE
from workbench.store.event_store import Store
from workbench.store.table import Batch

NAMES = ("held", "activations")  # of its rows
KEEP = 20  # newest iterations: a line has some forty corners in each
ROWS = pl.Schema(
    {
        "rank": pl.Int32,
        "iteration": pl.Int64,
        "name": pl.String,
        "value": pl.Float64,
        "end_ns": pl.Int64,
    }
)
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
_METRIC = CODE["metric"]
_MANY = 64  # pieces that are put together at once


def unsharded(metadata: Mapping[str, str]) -> int | None:
    """Return bytes of parameters, gradients and optimizer state on a rank that keeps them whole."""
    facts = json.loads(metadata.get("shards", "null"))
    if not facts:
        return None
    return int(sum(layer["bytes"] for layer in facts["layers"]) * (2 + facts["states"]))


def curve(rows: pl.DataFrame, whole: int | None, origin_ns: int) -> pl.DataFrame:
    """Return each change of what a rank holds: all of it, and the model's share of it.

    The model's share is without activations. ``rows``: ROWS, in any order.
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


def pick(frame: pl.DataFrame) -> pl.DataFrame:
    """Return such rows (ROWS) of the event table."""
    p = pl.col
    named = p("name").cast(pl.String).is_in(NAMES)
    own = frame.filter((p("kind").cast(pl.String) == "metric") & named & (p("iteration") >= 0))
    return own.select(p(name).cast(kind) for name, kind in ROWS.items())


class Held:
    """Such rows of one store, of its KEEP newest iterations, picked as they come."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._parts: list[pl.DataFrame] = [pl.DataFrame(schema=ROWS)]
        self._numbers: dict[int, str] = {}  # of the names, in the store
        self._seen = 0  # texts of the store
        self.active = False  # are there rows of "held"? A pipeline has "activations" too

    @property
    def rows(self) -> pl.DataFrame:
        if len(self._parts) > 1:
            whole = pl.concat(self._parts)
            newest = whole["iteration"].to_numpy().max(initial=-1)
            self._parts = [whole.filter(pl.col("iteration") > newest - KEEP)]
        return self._parts[0]

    def of_frame(self, frame: pl.DataFrame) -> None:
        """Add a piece of the store."""
        self._take(pick(frame))

    def of_batches(self, batches: Sequence[Batch]) -> None:
        """Add raw batches."""
        for number, text in enumerate(self._store.names(self._seen), self._seen):
            self._seen = number + 1
            if text in NAMES:
                self._numbers[number] = text
        for batch in batches if self._numbers else ():
            for number, text in self._numbers.items():
                rows = batch.rows[(batch.rows["kind"] == _METRIC) & (batch.rows["name"] == number)]
                if not len(rows):
                    continue
                columns = {
                    "rank": np.full(len(rows), batch.rank, np.int32),
                    "iteration": batch.contexts["iteration"][rows["context"]].astype(np.int64),
                    "name": [text] * len(rows),
                    "value": rows["value"].astype(np.float64),
                    "end_ns": rows["end_ns"].astype(np.int64),
                }
                self._take(pl.DataFrame(columns, schema=ROWS).filter(pl.col("iteration") >= 0))

    def _take(self, own: pl.DataFrame) -> None:
        if own.height:
            self._parts.append(own)
            self.active = self.active or (own["name"] == NAMES[0]).any()
        if len(self._parts) > _MANY:
            _ = self.rows
