"""The rows of a pipeline's newest iterations, picked as they come: what Curves keeps for staged.py;
and the most memory that each rank has held, whatever the strategy.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from workbench.analysis.stages import KEEP
from workbench.experiment.stored import settings
from workbench.experiment.traits import stored_traits
from workbench.recording.events import CODE, ROW
from workbench.store.event_store import Store
from workbench.store.iterations import MANY
from workbench.store.table import EMPTY, Batch, Names, to_frame

_FAULT, _METRIC = CODE["fault"], CODE["metric"]


def _has_stages(store: Store) -> bool:
    return stored_traits(settings(store.metadata).get("strategy")).messages == "stages"


class Staged:
    """``rows`` of one store with a stage, and faults: of its KEEP newest iterations, in no order.

    A run without stages costs a look at each batch's contexts.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._names = Names()
        self._number: dict[str, int] = {}  # of each text of the store that ``_names`` has
        self._parts: list[pl.DataFrame] = [EMPTY]
        self._newest = -1  # iteration
        self.memory: dict[int, float] = {}  # rank -> the most bytes that it has held
        self.active = _has_stages(store)

    @property
    def rows(self) -> pl.DataFrame:
        if len(self._parts) > 1:
            whole = pl.concat(self._parts)
            self._parts = [whole.filter(pl.col("iteration") > self._newest - KEEP)]
        return self._parts[0]

    def of_frame(self, frame: pl.DataFrame) -> None:
        """Add a piece of the store."""
        p = pl.col
        kind, name = p("kind").cast(pl.String), p("name").cast(pl.String)
        stage_rows = frame.filter(
            ((p("stage") >= 0) & ~((kind == "metric") & (name == "posted"))) | (kind == "fault")
        )
        self._take(stage_rows)
        held = frame.filter((kind == "metric") & (name == "memory"))
        self._remember(dict(held.group_by("rank").agg(p("value").max()).iter_rows()))

    def of_batches(self, batches: Sequence[Batch]) -> None:
        """Add raw batches; most of their rows are not read."""
        for text in self._store.names(len(self._number)):
            self._number[text] = self._names.number(text)
        number = self._number
        kept = []
        for batch in batches:
            kind, name = batch.rows["kind"], batch.rows["name"]
            faults = kind == _FAULT
            if "memory" in number:
                held = batch.rows["value"][(kind == _METRIC) & (name == number["memory"])]
                if len(held):
                    self._remember({batch.rank: float(held.max())})
            staged = len(batch.contexts) and batch.contexts["stage"].max() >= 0
            if not staged and not faults.any():
                continue
            where = batch.rows["context"]
            keep = batch.contexts["stage"][where] >= 0
            if "posted" in number:
                keep &= (kind != _METRIC) | (name != number["posted"])
            keep |= faults
            keep &= batch.contexts["iteration"][where] > self._newest - KEEP
            rows = batch.rows.view(f"V{ROW.itemsize}")[keep].view(ROW)
            if len(rows):
                kept.append(Batch(batch.rank, batch.lane, rows, batch.contexts))
        if kept:
            self._take(to_frame(kept, self._names))

    def _take(self, rows: pl.DataFrame) -> None:
        if not rows.height:
            return
        self.active = self.active or bool((rows["stage"] >= 0).any())
        self._newest = max(self._newest, int(rows["iteration"].to_numpy().max()))
        self._parts.append(rows)
        if len(self._parts) > MANY:
            _ = self.rows  # lets go of what is older

    def _remember(self, held: dict[int, float]) -> None:
        self.memory |= {rank: max(most, self.memory.get(rank, 0.0)) for rank, most in held.items()}
