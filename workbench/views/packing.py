"""Views: ``select(events) -> columns``, pure; and how rows travel to a browser.

On the wire a message is a small header (JSON) and one block of bytes: columns, one after the other,
each an array of little-endian numbers of one size, padded to eight bytes. First those of the rows
(``layout``), then those of the passages (``passage_layout``). A *passage* is what rows of one lane
that follow each other have in common (which collective, which iteration ...); its ``count`` rows
follow each other in the block, so the passages in their order cover all rows. Strings are the
store's numbers for them. The page maps the arrays without parsing.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.recording.events import CONTEXT, ROW
from workbench.store.table import Batch, Records, concatenated

# Widest first, so that every array is aligned. Times in ns since the origin.
ROW_LAYOUT = {
    "start": "f8",
    "end": "f8",
    "nbytes": "f8",
    "value": "f8",
    "seq": "i4",
    "step": "i4",
    "chunk": "i4",
    "slot": "i4",
    "peer": "i2",
    "name": "u2",
    "phase": "u2",
    "kind": "u1",
}
PASSAGE_LAYOUT = {
    "op": "i4",
    "iteration": "i4",
    "generation": "i4",
    "microbatch": "i4",
    "stage": "i4",
    "version": "i4",
    "count": "u4",
    "rank": "i2",
    "lane": "u2",
    "collective": "u2",
    "algorithm": "u2",
    "group": "u2",
}
_I4 = np.iinfo(np.int32)
Numbers = npt.NDArray[np.integer]


@dataclass(frozen=True)
class Message:
    """One message for the page: ``header`` becomes JSON, ``payload`` stays bytes."""

    header: dict[str, Any]
    payload: bytes = b""
    common: Message | None = None  # the message to all pages of which this is one page's
    own: Mapping[str, Any] = field(default_factory=dict)  # what it has beside the common one

    @cached_property
    def packet(self) -> bytes:
        """The whole message as one block, made once for all receivers: the length of the
        header (u4), the header as JSON, the payload.
        """
        header = json.dumps(self.header, allow_nan=False).encode()
        return struct.pack("<I", len(header)) + header + self.payload

    def to_page(self, own: Mapping[str, Any]) -> Message:
        """Return the message as one page gets it: what its ``own`` names is changed, two deep."""
        header = dict(self.header)
        for name, value in own.items():
            header[name] = {**header[name], **value} if isinstance(value, Mapping) else value
        return Message(header, self.payload, self, own)


@dataclass(frozen=True)
class Passages:
    """Batches as one: all their rows (events.ROW) in order, and what stretches of them share.

    Passage p is the ``count[p]`` rows from ``first[p]`` on; ``context[p]`` is their events.CONTEXT.
    """

    rows: Records
    first: Numbers
    count: Numbers
    rank: Numbers
    lane: Numbers
    context: Records


def passages(batches: Sequence[Batch]) -> Passages:
    """Return the rows of ``batches`` in their order, cut where the lane or the context changes."""
    batches = [batch for batch in batches if len(batch.rows)]
    if not batches:
        none = np.zeros(0, np.int64)
        return Passages(np.zeros(0, ROW), none, none, none, none, np.zeros(0, CONTEXT))
    sizes = np.array([len(batch.rows) for batch in batches])
    offsets = np.cumsum([0] + [len(batch.contexts) for batch in batches[:-1]])
    rows = concatenated([batch.rows for batch in batches])
    which = rows["context"] + np.repeat(
        offsets, sizes
    )  # distinct for every batch, so for lanes too
    changes = np.flatnonzero(which[1:] != which[:-1]) + 1
    first = np.concatenate([[0], changes])
    batch_of = np.searchsorted(np.cumsum(sizes), first, "right")
    return Passages(
        rows,
        first,
        np.diff(first, append=len(rows)),
        np.array([batch.rank for batch in batches])[batch_of],
        np.array([batch.lane for batch in batches])[batch_of],
        concatenated([batch.contexts for batch in batches])[which[first]],
    )


def joined(parts: Sequence[Passages]) -> Passages:
    """Return these passages as one, in their order."""
    parts = [part for part in parts if len(part.rows)]
    if not parts:
        return passages([])
    offsets = np.cumsum([0] + [len(part.rows) for part in parts[:-1]])
    return Passages(
        concatenated([part.rows for part in parts]),
        np.concatenate([part.first + at for part, at in zip(parts, offsets, strict=True)]),
        np.concatenate([part.count for part in parts]),
        np.concatenate([part.rank for part in parts]),
        np.concatenate([part.lane for part in parts]),
        concatenated([part.context for part in parts]),
    )


def pack(batches: Passages | Sequence[Batch], origin: int) -> tuple[dict[str, Any], bytes]:
    """Return the block of these rows, and the fields of the header that describe it.

    ``origin``: absolute nanoseconds of time 0. Times go as float64: whole up to 2^53, which is 104
    days from the origin. Counts beyond 32 bits are cut off at the largest that fits.
    """
    batches = batches if isinstance(batches, Passages) else passages(batches)
    rows, context = batches.rows, batches.context
    columns_of_run = {
        "start": rows["start_ns"] - origin,
        "end": rows["end_ns"] - origin,
        "seq": rows["seq"] - 1,
        "count": batches.count,
        "rank": batches.rank,
        "lane": batches.lane,
    }
    columns = [
        (columns_of_run[name] if name in columns_of_run else rows[name], code)
        for name, code in ROW_LAYOUT.items()
    ]
    columns += [
        (columns_of_run[name] if name in columns_of_run else _clip(context[name]), code)
        for name, code in PASSAGE_LAYOUT.items()
    ]
    header = {
        "rows": len(rows),
        "layout": [*ROW_LAYOUT.items()],
        "passages": len(context),
        "passage_layout": [*PASSAGE_LAYOUT.items()],
    }
    return header, _block(columns)


def _clip(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.clip(column, _I4.min, _I4.max) if column.itemsize == 8 else column


def _block(columns: Sequence[tuple[npt.NDArray[Any], str]]) -> bytes:
    """Return the columns as numbers of these types, one after the other, each padded to eight
    bytes.
    """
    sizes = [-(-len(column) * np.dtype(code).itemsize // 8) * 8 for column, code in columns]
    block = np.zeros(sum(sizes), np.uint8)
    at = 0
    for (column, code), size in zip(columns, sizes, strict=True):
        dtype = np.dtype("<" + code)
        block[at : at + len(column) * dtype.itemsize].view(dtype)[:] = column
        at += size
    return block.tobytes()
