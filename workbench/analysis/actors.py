"""Reinforcement learning, as columns: returns, frames, ages, bytes by kind; and their rows.

returns  an episode a row: when it ended, the frames that all actors had played by then, its return,
         and the mean return of the newest ``EPISODES``, of whichever actors
ages     a piece of the run a row: frames per second of all actors; by how many updates the
         parameters that actors pulled were newer than those they had (policy lag); how many
         updates old the policies are that a minibatch was played by (sample age)
kinds    a kind of message a row: its bytes, and by formula (training/reinforcement/bytes_by_kind)
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from workbench.analysis.metric_rows import MetricRows
from workbench.recording.events import CODE, SEND
from workbench.store.event_store import Store
from workbench.store.table import Batch
from workbench.training.reinforcement import bytes_by_kind

EPISODES = 20  # whose mean a curve of returns shows
PIECES = 100  # of a run, for means over time
SHORTEST = 0.05  # seconds of a piece, at least
FRAMES, RETURN, LAG, AGE = NAMES = ("frames", "return", "policy lag", "sample age")
RETURNS = pl.Schema(
    {
        "seconds": pl.Float64,
        "frames": pl.Int64,
        "rank": pl.Int32,
        "value": pl.Float64,
        "mean": pl.Float64,
    }
)
AGES = pl.Schema(
    {
        "seconds": pl.Float64,
        "frames_per_s": pl.Float64,
        "lag": pl.Float64,
        "age": pl.Float64,
    }
)
_METRIC, _LOSS = CODE["metric"], "loss"
_COUNTED = (*bytes_by_kind.KINDS, _LOSS)  # texts whose rows are only counted


def frames(rows: pl.DataFrame, origin_ns: int) -> pl.DataFrame:
    """Return seconds, frames: of all actors, whenever one of them told how many it has played."""
    p = pl.col
    return (
        rows.filter(p("name") == FRAMES)
        .sort("end_ns")
        .with_columns(new=p("value") - p("value").shift(1).over("rank").fill_null(0.0))
        .select(seconds=(p("end_ns") - origin_ns) * 1e-9, frames=p("new").cum_sum().cast(pl.Int64))
    )


def returns(rows: pl.DataFrame, origin_ns: int) -> pl.DataFrame:
    """Return the episodes in the order in which they ended, with columns of RETURNS."""
    p = pl.col
    ended = (
        rows.filter(p("name") == RETURN)
        .sort("end_ns")
        .with_columns(seconds=(p("end_ns") - origin_ns) * 1e-9)
    )
    return ended.join_asof(frames(rows, origin_ns), on="seconds").select(
        "seconds",
        p("frames").fill_null(0),
        "rank",
        "value",
        mean=p("value").rolling_mean(EPISODES, min_samples=1),
    )


def ages(rows: pl.DataFrame, origin_ns: int) -> pl.DataFrame:
    """Return means over pieces of the run, with columns of AGES; null where nothing was told."""
    p, played = pl.col, frames(rows, origin_ns)
    if not played.height:
        return pl.DataFrame(schema=AGES)
    metrics = rows.filter(p("name").is_in([LAG, AGE])).select(
        "name", "value", seconds=(p("end_ns") - origin_ns) * 1e-9
    )
    last = max(float(played["seconds"][-1]), *(metrics["seconds"].to_list() or [0.0]))
    width = max(last / PIECES, SHORTEST)
    ends = width * np.arange(1, int(last / width) + 1)  # of pieces that are over
    by_then = np.searchsorted(played["seconds"].to_numpy(), ends, "right")
    total = np.concatenate([[0], played["frames"].to_numpy()])[by_then]
    columns = {"seconds": ends, "frames_per_s": np.diff(total, prepend=0) / width}
    for column, name in (("lag", LAG), ("age", AGE)):
        series = metrics.filter(p("name") == name)
        at = np.minimum((series["seconds"].to_numpy().clip(0) / width).astype(int), len(ends))
        count = np.bincount(at, minlength=len(ends) + 1)[: len(ends)]
        sums = np.bincount(at, series["value"].to_numpy(), len(ends) + 1)[: len(ends)]
        columns[column] = np.divide(sums, count, np.full(len(ends), np.nan), where=count > 0)
    return pl.DataFrame(columns, schema=AGES)


def mean(column: pl.Series) -> float | None:
    """Return the mean of a column of ``ages``; None where nothing was told."""
    values = column.fill_nan(None).drop_nulls().to_numpy()
    return float(values.mean()) if len(values) else None


class Actors(MetricRows):
    """Such rows of one store; the messages of each kind are only counted."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, NAMES, counted=_COUNTED)
        self._messages: Counter[str] = Counter()
        self._nbytes: Counter[str] = Counter()

    @property
    def began_ns(self) -> int:
        """When the first block was played; 0 before."""
        return int(self.rows["end_ns"].to_numpy().min(initial=2**62)) if self.active else 0

    def kinds(self, metadata: Mapping[str, str]) -> pl.DataFrame:
        """Return the bytes of each kind of message so far; no rows where there is one role."""
        if "roles" not in metadata:
            return pl.DataFrame(schema=bytes_by_kind.SCHEMA)
        roles, p = json.loads(metadata["roles"]), pl.col
        played = self.rows.filter(p("name") == FRAMES).group_by("rank").agg(p("value").max())
        counted = {name: (self._messages[name], self._nbytes[name]) for name in bytes_by_kind.KINDS}
        return bytes_by_kind.table(
            counted, roles, int(played["value"].to_numpy().sum()), self._messages[_LOSS]
        )

    def of_frame(self, frame: pl.DataFrame) -> None:
        super().of_frame(frame)
        p = pl.col
        kind, name = p("kind").cast(pl.String), p("name").cast(pl.String)
        sent = (kind == "send") & name.is_in(bytes_by_kind.KINDS)
        counted = frame.filter(sent | ((kind == "metric") & (name == _LOSS)))
        for text, messages, nbytes in (
            counted.group_by(name).agg(pl.len(), p("nbytes").sum()).iter_rows()
        ):
            self._messages[text] += messages
            self._nbytes[text] += nbytes

    def of_batches(self, batches: Sequence[Batch]) -> None:
        super().of_batches(batches)
        for batch in batches if self._numbers_counted else ():
            kind, named = batch.rows["kind"], batch.rows["name"]
            for number, text in self._numbers_counted.items():
                picked = batch.rows[
                    (kind == (_METRIC if text == _LOSS else SEND)) & (named == number)
                ]
                if len(picked):
                    self._messages[text] += len(picked)
                    self._nbytes[text] += int(picked["nbytes"].sum())
