"""The past of a run for pages that come: its newest rows in blocks, each packed once for all.

Rows keep their order in the store, so a block is the same for every page. Of many pages,
each is sent fewer rows: twice the pages, half of the rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from workbench.store.event_store import Store
from workbench.store.table import from_frame
from workbench.views.packing import pack, passages

HISTORY_ROWS = 2_000_000  # the newest; a page holds no more
SHORT_ROWS = 65_536  # the newest, for a page that cannot follow
FULL_PAGES = 4  # that many get them all; of more pages, each gets fewer
BLOCK_ROWS = 32_768  # a message: two megabytes, after which it is the next page's turn
SAVED_ROWS = 250_000  # the same, in a file
READ_ROWS = 262_144  # of the store at once
KEPT_SECONDS = 20.0  # after which blocks that no page has asked for are let go of

Block = tuple[dict[str, Any], bytes]  # what pack() returns


def most_rows(pages: int) -> int:
    """Return how many rows of history each of so many pages is sent."""
    halved = max(0, -(-pages // FULL_PAGES) - 1).bit_length()
    return max(min(SHORT_ROWS, HISTORY_ROWS), HISTORY_ROWS >> halved)


class Past:
    """The packed blocks of one store, for the thread of its feed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.rows = BLOCK_ROWS
        self._kept: dict[tuple[int, int, int], Block] = {}
        self._cut = (0, 0, 0)  # position, most rows: the moment after which they end
        self._used_at = 0.0

    def before(
        self, position: int, origin: int, most: int, keep: bool
    ) -> tuple[int, Iterator[Block]]:
        """Return how many rows up to ``position`` are left out, and the blocks of the newest
        ``most`` others. ``keep``: other pages may ask for the same.

        They are the newest by time, not by place: a file keeps its rows by rank, and every rank's
        last ones are wanted.
        """
        self._used_at = time.monotonic()
        if position <= most:
            return 0, self._blocks(position, origin, None, 0, keep)
        ends = self._store.scan().select("end_ns").head(position).collect()["end_ns"].to_numpy()
        at, of, after = self._cut
        if of != most or not 0 <= position - at < self.rows:  # else the block's next rows are more
            after = int(np.partition(ends, position - most - 1)[position - most - 1])
            self._cut = position, most, after
        older = int((ends <= after).sum())
        return older, self._blocks(position, origin, ends, after, keep)

    def newest(self, position: int, origin: int, most: int) -> tuple[int, Iterator[Block]]:
        """Return the same by their place: at once, of a run that records more than is told."""
        older = max(0, position - most)
        pieces = self._store.pieces(position, older)
        parts = (piece.sort("rank", "lane", maintain_order=True) for piece in pieces)
        return older, (
            pack(passages(from_frame(part, self._store.number)), origin) for part in parts
        )

    def rest(self) -> None:
        """Let go of the blocks, unless a page has asked for them just now."""
        if self._kept and time.monotonic() - self._used_at > KEPT_SECONDS:
            self._kept.clear()

    def _blocks(
        self,
        position: int,
        origin: int,
        ends: npt.NDArray[np.int64] | None,
        after: int,
        keep: bool,
    ) -> Iterator[Block]:
        """Yield the rows that end after that moment; at least one block, which may be empty."""
        frame, first, count = pl.DataFrame(), 0, 0
        for start in range(0, position, self.rows):
            stop = min(start + self.rows, position)
            within = ends[start:stop] if ends is not None else None
            if within is not None and within.max() <= after:
                continue
            whole = within is None or within.min() > after
            key = (start, stop, 0 if whole else after)
            if (block := self._kept.get(key)) is None:
                if not first <= start < stop <= first + frame.height:
                    upto = min(start + max(self.rows, READ_ROWS), position)
                    first, frame = start, pl.concat([*self._store.pieces(upto, start)])
                part = frame.slice(start - first, stop - start)
                part = part if whole else part.filter(pl.col("end_ns") > after)
                part = part.sort("rank", "lane", maintain_order=True)  # long stretches of one lane
                block = pack(passages(from_frame(part, self._store.number)), origin)
                if keep:
                    self._kept[key] = block
            count += 1
            yield block
        if not count:
            yield pack([], origin)
