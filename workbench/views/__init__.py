"""Views: ``select(events) -> columns``, pure; and how columns travel to a browser.

On the wire a message is a small header (JSON) and one block of bytes: the columns of a table, one
after the other, each an array of little-endian numbers of one size, padded to eight bytes. The
header's ``layout`` names them; strings are numbers into its ``strings``. The page maps the arrays
without parsing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

# What the page needs of a row, widest first so that every array is aligned; "" marks a string.
WIRE = {
    "start": "f8", "end": "f8", "nbytes": "f8",
    "step": "i4", "chunk": "i4", "slot": "i4", "seq": "i4",
    "rank": "i2", "peer": "i2", "kind": "u2", "phase": "u2", "name": "u2", "lane": "u2",
}  # fmt: skip
STRINGS = ("kind", "phase", "name", "lane")


@dataclass(frozen=True)
class Message:
    """One batch for the page: ``header`` becomes JSON, ``payload`` stays bytes."""

    header: dict[str, Any]
    payload: bytes = b""


def pack(rows: pl.DataFrame) -> tuple[list[tuple[str, str]], list[str], bytes]:
    """(layout, strings, bytes) of a table with the columns of ``WIRE``.

    Times go as float64 nanoseconds: whole up to 2^53, which is 104 days from the run's origin.
    """
    strings = [""]
    pieces = []
    for column, code in WIRE.items():
        values = _numbers(rows[column], strings) if column in STRINGS else rows[column].to_numpy()
        data = np.ascontiguousarray(values, dtype="<" + code).tobytes()
        pieces.append(data + bytes(-len(data) % 8))
    return list(WIRE.items()), strings, b"".join(pieces)


def _numbers(series: pl.Series, strings: list[str]) -> np.ndarray[Any, np.dtype[np.generic]]:
    """The column's strings as numbers into ``strings``, which grows by what is new."""
    texts: Sequence[str] = series.unique().cast(pl.String).to_list()
    strings.extend(text for text in texts if text not in strings)
    number = {text: strings.index(text) for text in texts}
    return series.cast(pl.String).replace_strict(number, return_dtype=pl.UInt16).to_numpy()
