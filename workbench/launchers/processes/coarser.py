"""A coarser record, made at the source where the way to the driver cannot keep up.

    0  every piece of a message       send send send send recv recv recv recv
    1  whole messages                 send x 4            recv x 4
    2  a call's messages to a peer    send x 40           recv x 40

A folded row stands for ``value`` rows: its bytes and its length are their sums, its end is the last
one's, and what differed among them (slot; step and chunk, too) is -1. Rows are numbered again after
folding, so that a gap in the numbers is a loss, as ever. The rank itself knows nothing of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from workbench.launchers.processes.session import MOST_KEPT
from workbench.recording.events import COPY, RECV, REDUCE, SEND, WAIT

if TYPE_CHECKING:  # else it would import polars, and agents start without
    from workbench.store.table import Records

CHUNKED = (SEND, RECV, REDUCE, COPY, WAIT)
KEYS = ("context", "kind", "peer", "phase", "name", "step", "chunk")  # of a whole message
LATE, LATER, ROOM = 1.0, 3.0, 0.3  # seconds that the driver is behind
LEAST, MUCH = 1 << 20, 4 << 20  # bytes that wait


def level(before: int, waiting: int, behind: float) -> int:
    """Return the level from now on. ``waiting``: bytes that the driver does not have; ``behind``:
    for how many seconds the oldest of them have waited.
    """
    if waiting > MOST_KEPT // 2 or (behind > LATER and waiting > MUCH):
        return 2
    if waiting > MOST_KEPT // 4 or (behind > LATE and waiting > LEAST):
        return max(before, 1)
    return 0 if behind < ROOM or waiting < LEAST // 4 else before


def _groups(
    rows: Records, keys: tuple[str, ...]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the group of each row, by its values of ``keys``, and how many rows each group has."""
    group, span = np.zeros(len(rows), np.int64), 1
    for name in keys if len(rows) else ():
        column = rows[name].astype(np.int64)
        column -= column.min()
        count = int(column.max()) + 1
        if span * count >= 1 << 63:  # of int64
            group = np.unique(group, return_inverse=True)[1]
            span = len(rows)
        group, span = group * count + column, span * count
    _, which, counts = np.unique(group, return_inverse=True, return_counts=True)
    return which, counts


class Folding:
    """Folds the rows of one ring, batch by batch. ``chunks``, ``rows``: so many were folded into so
    many.
    """

    def __init__(self) -> None:
        self.chunks = self.rows = 0
        self._gone = 0  # rows that are not there any more
        self._firsts = {0: 0}  # where a lane's own count begins: as written, as numbered again
        self._whole_until = 0

    def take(self, rows: Records, contexts: Records, level: int) -> tuple[Records, Records]:
        """Return rows and contexts that were read together, the rows folded."""
        for first in np.unique(contexts["first"]).tolist():
            if first not in self._firsts:  # another lane's rows begin: these stay as they are
                self._firsts[first] = first - self._gone
                self._whole_until, level = max(first, self._whole_until), 0
        if len(self._firsts) > 1 and len(contexts):
            contexts = contexts.copy()
            contexts["first"] = [self._firsts[first] for first in contexts["first"].tolist()]
        if level and len(rows) and rows["seq"][0] > self._whole_until:
            rows, gone = self._fold(rows, KEYS[: None if level == 1 else -2])
        else:
            gone = np.zeros(len(rows), np.int64)
        if len(rows) and (self._gone or gone[-1]):
            rows = rows.copy()
            rows["seq"] -= gone + self._gone
            self._gone += int(gone[-1])
        return rows, contexts

    def _fold(self, rows: Records, keys: tuple[str, ...]) -> tuple[Records, npt.NDArray[np.int64]]:
        """Return the rows that are left, each with how many before it are gone; the last one is
        left.
        """
        at = np.flatnonzero(np.isin(rows["kind"], CHUNKED) & np.isnan(rows["value"]))
        which, counts = _groups(rows[at], keys)
        last = np.zeros(len(counts), np.int64)
        np.maximum.at(last, which, at)
        nbytes, took = np.zeros_like(last), np.zeros_like(last)
        np.add.at(nbytes, which, rows["nbytes"][at])
        np.add.at(took, which, rows["end_ns"][at] - rows["start_ns"][at])
        many = counts > 1
        stays = np.ones(len(rows), bool)
        stays[at] = ~many[which] | (last[which] == at)
        rows, place = rows.copy(), last[many]
        rows["nbytes"][place], rows["value"][place] = nbytes[many], counts[many]
        rows["start_ns"][place] = rows["end_ns"][place] - took[many]
        for name in ("slot", *(one for one in ("step", "chunk") if one not in keys)):
            rows[name][place] = -1
        self.chunks += int(counts[many].sum())
        self.rows += int(many.sum())
        return rows[stays], np.cumsum(~stays)[stays]
