"""The curve "disagreement": the distance of mixing replicas from their mean, and its rows.

Distances are estimated from sketches (workbench.rank.parameter_sketch). Of workers that run on
their own time the replicas are compared as they were at one moment, when the slowest had done an
iteration, as the stage draws them; of others after the same iteration, as run.disagreement() does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from workbench.recording.events import CODE
from workbench.store.event_store import Store
from workbench.store.table import Batch

Floats = npt.NDArray[np.float64]
SKETCH = "sketch"  # the name of its rows
ROWS = pl.Schema(
    {
        "rank": pl.Int32,
        "iteration": pl.Int64,
        "chunk": pl.Int32,
        "value": pl.Float64,
        "end_ns": pl.Int64,
    }
)
CURVE = pl.Schema(
    {
        "iteration": pl.Int64,
        "end_ns": pl.Int64,
        "rms": pl.Float64,
        "nearest": pl.Float64,
        "furthest": pl.Float64,
        "alone": pl.Float64,
    }
)
_METRIC = CODE["metric"]


def facts(metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return the strategy's description of which ranks mix; {} if there is none."""
    mixing: dict[str, Any] = json.loads(metadata.get("peers", "{}"))
    return mixing


def disagreement(rows: pl.DataFrame, mixing: Mapping[str, Any]) -> pl.DataFrame:
    """Return iteration, end_ns (when all ranks had done it), rms, nearest, furthest, alone.

    The distances are from the mean; alone: what mixing alone would leave of the greatest rms, NaN
    before it and without a theory. ``rows``: of sketches (ROWS). Iterations that some rank has not
    done
    are left out.
    """
    result = distances_of(rows, mixing)
    if result is None:
        return pl.DataFrame(schema=CURVE)
    iterations, ends, distances = result
    rms = np.sqrt((distances**2).mean(0))
    return pl.DataFrame(
        {
            "iteration": iterations,
            "end_ns": ends,
            "rms": rms,
            "nearest": distances.min(0),
            "furthest": distances.max(0),
            "alone": _alone(iterations, rms, mixing),
        },
        schema=CURVE,
    )


def distances_of(rows: pl.DataFrame, mixing: Mapping[str, Any]) -> tuple[Any, Any, Floats] | None:
    """Return iterations that all ranks have done, their ends, and distances (rank, iteration).

    A distance is a replica's from the mean of all. None: there is no such iteration, or not every
    rank
    has begun.
    """
    if rows["rank"].n_unique() < _ranks(mixing):
        return None
    whole = _whole(rows)
    if not whole:
        return None
    iterations, ends, vectors = whole
    if not mixing.get("synchronous", True):
        vectors = _as_of(rows, ends, vectors)
    return iterations, ends, np.linalg.norm(vectors - vectors.mean(0), axis=2)


def _ranks(mixing: Mapping[str, Any]) -> int:
    """Return how many ranks mix, as far as is known: each is in an edge."""
    return 1 + max((max(a, b) for a, b, _ in mixing.get("edges", ())), default=-1)


def pick(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of sketches (ROWS) of the event table."""
    p = pl.col
    sketches = frame.filter((p("kind") == "metric") & (p("name") == SKETCH) & (p("iteration") >= 0))
    return sketches.select(p(name).cast(kind) for name, kind in ROWS.items())


def _whole(rows: pl.DataFrame) -> tuple[Any, Any, Floats] | None:
    """Return iterations that every rank has done, their ends, and (rank, iteration, number)."""
    p = pl.col
    numbers, ranks = rows["chunk"].n_unique(), rows["rank"].n_unique()
    table = rows.unique(["rank", "iteration", "chunk"])
    table = table.filter(pl.len().over("iteration") == numbers * ranks)
    if not table.height:
        return None
    table = table.sort("rank", "iteration", "chunk")
    ends = table.group_by("iteration").agg(p("end_ns").max()).sort("iteration")
    vectors = table["value"].to_numpy().reshape(ranks, -1, numbers)
    return ends["iteration"].to_numpy(), ends["end_ns"].to_numpy(), vectors


def _as_of(rows: pl.DataFrame, ends: Any, vectors: Floats) -> Floats:
    """Return the same, with each rank's latest values by then."""
    result = np.empty_like(vectors)
    for at, (_, of_rank) in enumerate(sorted(rows.group_by("rank"), key=lambda each: each[0])):
        table = of_rank.sort("iteration", "chunk")
        numbers = vectors.shape[2]
        mine = table.filter(pl.len().over("iteration") == numbers)
        when = mine["end_ns"].to_numpy().reshape(-1, numbers).max(1)
        values = mine["value"].to_numpy().reshape(-1, numbers)
        result[at] = values[np.searchsorted(when, ends, "right") - 1]
    return result


def _alone(iterations: Any, rms: Floats, mixing: Mapping[str, Any]) -> Floats:
    rate = mixing.get("rate")
    left = np.full(len(rms), np.nan)
    if rate is None or not 0 < rate < 1:
        return left
    top = int(rms.argmax())
    rounds = (iterations[top:] - iterations[top]) / max(mixing.get("every", 1), 1)
    left[top:] = rms[top] * rate**rounds
    return left


class Mixed:
    """The sketches of one store, picked as they come; a run without them costs next to nothing."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._parts: list[pl.DataFrame] = [pl.DataFrame(schema=ROWS)]
        self._number, self._text_count = -1, 0  # of the name, among so many texts

    @property
    def active(self) -> bool:
        return len(self._parts) > 1 or self._parts[0].height > 0

    @property
    def rows(self) -> pl.DataFrame:
        if len(self._parts) > 1:
            self._parts = [pl.concat(self._parts)]
        return self._parts[0]

    def of_frame(self, frame: pl.DataFrame) -> None:
        """Add a piece of the store."""
        if (sketches := pick(frame)).height:
            self._parts.append(sketches)

    def of_batches(self, batches: Sequence[Batch]) -> None:
        """Add raw batches."""
        if not batches or not self._is_named():
            return
        for batch in batches:
            rows = batch.rows[
                (batch.rows["kind"] == _METRIC) & (batch.rows["name"] == self._number)
            ]
            if not len(rows):
                continue
            columns = {
                "rank": np.full(len(rows), batch.rank, np.int32),
                "iteration": batch.contexts["iteration"][rows["context"]].astype(np.int64),
                "chunk": rows["chunk"].astype(np.int32),
                "value": rows["value"].astype(np.float64),
                "end_ns": rows["end_ns"].astype(np.int64),
            }
            self._parts.append(pl.DataFrame(columns, schema=ROWS).filter(pl.col("iteration") >= 0))

    def _is_named(self) -> bool:
        """Return whether the store knows the name of such rows by now."""
        if self._number < 0:
            texts = self._store.names(self._text_count)
            if SKETCH in texts:
                self._number = self._text_count + texts.index(SKETCH)
            self._text_count += len(texts)
        return self._number >= 0
