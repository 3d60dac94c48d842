"""The ledger of the rank that holds most, from moment to moment: a river on an axis of time.

Of the rows of ledgers (rank/bands.py) the newest KEEP iterations are kept, and of what is older
the last row of each kind: what is held since then.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from workbench.recording.events import CODE
from workbench.store.event_store import Store
from workbench.store.table import Batch

KEEP = 20  # iterations
ROWS = pl.Schema(
    {
        "rank": pl.Int32,
        "generation": pl.Int64,
        "iteration": pl.Int64,
        "kind": pl.String,
        "end_ns": pl.Int64,
        "seq": pl.Int64,
        "value": pl.Float64,
    }
)
_MEMORY = CODE["memory"]
_MANY = 64  # pieces that are put together at once

p = pl.col


class Ledgers:
    """The rows of memory of one store, picked as they come; a run without them costs nothing."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._texts = pl.Series([], dtype=pl.String)
        self._parts: list[pl.DataFrame] = [pl.DataFrame(schema=ROWS)]
        self.active = False  # is there a row?

    @property
    def rows(self) -> pl.DataFrame:
        """Those that are kept."""
        if len(self._parts) > 1:
            self._parts = [_newest(pl.concat(self._parts))]
        return self._parts[0]

    def of_frame(self, frame: pl.DataFrame) -> None:
        """Add a piece of the store."""
        picked = frame.filter(p("kind").cast(pl.String) == "memory").with_columns(kind=p("name"))
        self._take(picked.select(p(name).cast(kind) for name, kind in ROWS.items()))

    def of_batches(self, batches: Sequence[Batch]) -> None:
        """Add raw batches."""
        for batch in batches:
            rows = batch.rows[batch.rows["kind"] == _MEMORY]
            if not len(rows):
                continue
            if rows["name"].max() >= len(self._texts):
                self._texts = pl.Series(self._store.names(), dtype=pl.String)
            where = batch.contexts[rows["context"]]
            columns = {
                "rank": np.full(len(rows), batch.rank, np.int32),
                "generation": where["generation"].astype(np.int64),
                "iteration": where["iteration"].astype(np.int64),
                "kind": self._texts.gather(rows["name"].astype(np.uint32)),
                "end_ns": rows["end_ns"].astype(np.int64),
                "seq": rows["seq"].astype(np.int64),
                "value": rows["value"].astype(np.float64),
            }
            self._take(pl.DataFrame(columns, schema=ROWS))

    def _take(self, picked: pl.DataFrame) -> None:
        if picked.height:
            self._parts.append(picked)
            self.active = True
        if len(self._parts) > _MANY:
            _ = self.rows


def _newest(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the newest iterations, and before them the last row of each kind."""
    newest = p("iteration") > int(rows["iteration"].to_numpy().max()) - KEEP
    before = rows.filter(~newest).sort("generation", "seq")
    last = before.group_by("rank", "generation", "kind", maintain_order=True).last()
    return pl.concat([last.select(ROWS.names()), rows.filter(newest)])


def river(rows: pl.DataFrame, limit: int | None, began_ns: int) -> pl.DataFrame:
    """Return rank, iteration, seconds, a column for each kind, and limit: a row per moment of the
    rank that holds most, in the newest generation. ``limit``: bytes, or None.
    """
    if not rows.height:
        return pl.DataFrame({"rank": [], "iteration": [], "seconds": [], "limit": []})
    rows = rows.filter(p("generation") == p("generation").max()).sort("rank", "seq")
    kinds = rows["kind"].unique(maintain_order=True).to_list()
    moments = ["rank", "iteration", "end_ns"]
    wide = rows.pivot("kind", index=moments, values="value", aggregate_function="last")
    held = [p(kind).forward_fill().over("rank").fill_null(0.0) for kind in kinds]
    wide = wide.sort("rank", "end_ns").with_columns(held)
    wide = wide.filter(p("iteration") > p("iteration").max() - KEEP)  # what is older is held since
    totals = wide.select("rank", total=pl.sum_horizontal(kinds)).group_by("rank").max()
    fullest = totals.sort("total", -p("rank"))["rank"][-1]
    return wide.filter(p("rank") == fullest).select(
        "rank",
        "iteration",
        (p("end_ns") - began_ns).truediv(1e9).alias("seconds"),
        *kinds,
        pl.lit(limit, pl.Int64).alias("limit"),
    )
