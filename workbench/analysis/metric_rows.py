"""Metrics of certain names in one store, picked as they come: what Curves keeps of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from workbench.recording.events import CODE
from workbench.store.event_store import Store
from workbench.store.table import Batch

ROWS = pl.Schema(
    {
        "rank": pl.Int32,
        "iteration": pl.Int64,
        "name": pl.String,
        "value": pl.Float64,
        "end_ns": pl.Int64,
    }
)
_METRIC = CODE["metric"]
_MANY = 64  # pieces that are put together at once


def pick(frame: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Return the metrics of these names (ROWS) of the event table."""
    p = pl.col
    named = p("name").cast(pl.String).is_in(names)
    picked = frame.filter((p("kind").cast(pl.String) == "metric") & named & (p("iteration") >= 0))
    return picked.select(p(name).cast(kind) for name, kind in ROWS.items())


class MetricRows:
    """The metrics ``names`` of one store; a run without them costs next to nothing."""

    def __init__(self, store: Store, names: Sequence[str], counted: Sequence[str] = ()) -> None:
        """Pick rows of ``names``; those of the texts ``counted`` are a subclass's to count."""
        self._store, self._names, self._counted = store, names, counted
        self._parts: list[pl.DataFrame] = [pl.DataFrame(schema=ROWS)]
        self._numbers: dict[int, str] = {}  # of the names, in the store
        self._numbers_counted: dict[int, str] = {}  # of the other texts
        self._text_count = 0  # texts of the store
        self.active = False  # is there a row of the first name?

    @property
    def rows(self) -> pl.DataFrame:
        """All of them that are kept."""
        if len(self._parts) > 1:
            self._parts = [self.trim(pl.concat(self._parts))]
        return self._parts[0]

    def trim(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows to keep: all of them, unless a subclass says otherwise."""
        return rows

    def of_frame(self, frame: pl.DataFrame) -> None:
        """Add a piece of the store."""
        self._take(pick(frame, self._names))

    def of_batches(self, batches: Sequence[Batch]) -> None:
        """Add raw batches."""
        for number, text in enumerate(self._store.names(self._text_count), self._text_count):
            self._text_count = number + 1
            if text in self._names:
                self._numbers[number] = text
            if text in self._counted:
                self._numbers_counted[number] = text
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

    def _take(self, picked: pl.DataFrame) -> None:
        if picked.height:
            self._parts.append(picked)
            self.active = self.active or bool((picked["name"] == self._names[0]).any())
        if len(self._parts) > _MANY:
            _ = self.rows
