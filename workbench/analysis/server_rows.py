"""The rows of a parameter server, picked as they come: what Curves keeps for served.py."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from workbench.analysis import servers
from workbench.analysis.servers import ROWS
from workbench.experiment.stored import settings
from workbench.recording.events import CODE, KINDS, ROW
from workbench.store.event_store import Store
from workbench.store.iterations import MANY
from workbench.store.table import Batch

_KINDS = pl.Series(KINDS)
_SPANS = np.array([kind in servers.KINDS and kind not in ("wait", "metric") for kind in KINDS])
_SERVES = np.array([kind in ("apply", "clock") for kind in KINDS])
_OF_ROW = {"peer": "i4", "nbytes": "i8", "value": "f8", "start_ns": "i8", "end_ns": "i8"}


class Served:
    """``rows`` of one store, for the functions of served.py; none until the first worker of a
    parameter server is seen, so that another strategy's run costs nothing.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._parts = [pl.DataFrame(schema=ROWS)]
        self._texts = pl.Series([], dtype=pl.String)
        self.active = servers.serves(settings(store.metadata))

    @property
    def rows(self) -> pl.DataFrame:
        if len(self._parts) > 1:
            self._parts = [pl.concat(self._parts, rechunk=len(self._parts) > MANY)]
        return self._parts[0]

    def of_frame(self, frame: pl.DataFrame, before: int) -> None:
        """Add a piece of the store; ``before``: the number of rows before it."""
        if self._is_served(frame["kind"].cast(pl.String).is_in(["apply", "clock"]).any(), before):
            self._parts.append(servers.pick(frame))

    def of_batches(self, batches: Sequence[Batch], before: int) -> None:
        """Add raw batches; ``before``: the number of rows of the store before them."""
        serves = self.active or any(_SERVES[batch.rows["kind"]].any() for batch in batches)
        if not batches or not self._is_served(serves, before):
            return
        self._texts = pl.Series(self._store.names(), dtype=pl.String)
        numbers = {text: number for number, text in enumerate(self._texts)}
        codes = np.array([numbers[name] for name in servers.METRICS if name in numbers])
        result = (self._of_batch(batch, codes, numbers) for batch in batches)
        self._parts += [rows for rows in result if rows is not None]

    def _is_served(self, serves: bool, before: int) -> bool:
        """Return whether rows of a server were seen; rows before them count too."""
        if serves and not self.active:
            self.active = True
            self._parts += [servers.pick(piece) for piece in self._store.pieces(before)]
        return self.active

    def _of_batch(
        self, batch: Batch, codes: np.ndarray, numbers: dict[str, int]
    ) -> pl.DataFrame | None:
        kind, context = batch.rows["kind"], batch.contexts
        where = context["iteration"][batch.rows["context"]]
        keep = _SPANS[kind] & ((where >= 0) | (kind == CODE["detect"]))
        if batch.lane == numbers.get(servers.GRANTS):
            keep |= kind == CODE["wait"]
        metric = kind == CODE["metric"]
        if metric.any():
            keep |= metric & np.isin(batch.rows["name"], codes) & (batch.rows["phase"] == 0)
        if not keep.any():
            return None
        rows = batch.rows.view(f"V{ROW.itemsize}")[keep].view(ROW)
        which = rows["context"]
        columns = {
            "rank": np.full(len(rows), batch.rank, np.int32),
            "kind": _KINDS.gather(rows["kind"].astype(np.uint32)),
            "name": self._texts.gather(rows["name"].astype(np.uint32)),
            "phase": self._texts.gather(rows["phase"].astype(np.uint32)),
            "iteration": context["iteration"][which],
            "version": context["version"][which],
        }
        columns |= {name: rows[name].astype(code) for name, code in _OF_ROW.items()}
        return pl.DataFrame({name: columns[name] for name in ROWS}, schema=ROWS)
