"""The rows of a recording that another tool made, on their way into the event table."""

from __future__ import annotations

import gzip
import heapq
import json
import math
import os
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from workbench.common.errors import WorkbenchError, short
from workbench.formats._alignment import shifts
from workbench.recording.events import KINDS
from workbench.store.regular_file import opened
from workbench.store.table import MOST_RANKS, SCHEMA

LARGEST = 1 << 30  # bytes of a text, unpacked
DENSEST = 100  # bytes that a packed one may unpack to: profilers' texts have 10 to 40
SMALL = 4 << 20  # bytes that are read however densely they were packed
MOST_VALUES = 32_000_000  # of a JSON text: Python takes about 100 bytes for each
_HEAD = 1 << 16
_RANK = re.compile(r"(?:^|[^a-z])(?:rank|worker|r)[_.\-=]?(\d+)|(\d+)(?=\D*$)", re.IGNORECASE)
_SIZES = {
    "float": 4,
    "float32": 4,
    "double": 8,
    "float64": 8,
    "half": 2,
    "float16": 2,
    "bfloat16": 2,
    "long": 8,
    "long int": 8,
    "int64": 8,
    "int": 4,
    "int32": 4,
    "short": 2,
    "short int": 2,
    "int16": 2,
    "char": 1,
    "signed char": 1,
    "byte": 1,
    "unsigned char": 1,
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "complexfloat": 8,
    "complexdouble": 16,
}


@dataclass(frozen=True)
class File:
    """One file of a recording. Raises OSError if it cannot be read."""

    path: Path

    @cached_property
    def head(self) -> bytes:
        """Its first bytes, unpacked."""
        with opened(self.path) as file:
            data = file.read(_HEAD)
            if not data.startswith(b"\x1f\x8b"):
                return data
            file.seek(0)
            try:
                with gzip.GzipFile(fileobj=file) as unpacked:
                    return unpacked.read(_HEAD)
            except (OSError, EOFError, zlib.error):
                return b""

    def data(self) -> bytes:
        """Return the whole content, unpacked. Raises WorkbenchError if it is damaged, or larger
        than is read.
        """
        with opened(self.path) as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            most, source = LARGEST, file
            if packed:
                most = min(LARGEST, max(SMALL, DENSEST * os.fstat(file.fileno()).st_size))
                source = gzip.GzipFile(fileobj=file)  # type: ignore[assignment]
            try:
                data: bytes = source.read(most + 1)
            except (OSError, EOFError, zlib.error) as error:
                raise self.wrong(f"it cannot be unpacked: {error}") from None
        if len(data) > most:
            how = f", {DENSEST} times what it was packed into" if most < LARGEST else ""
            raise self.wrong(
                f"it has more than {most:,} bytes{how}, and no more are read: record fewer steps"
            )
        return data

    def json(self) -> Any:
        """Return the content. Raises WorkbenchError if it is not JSON, or holds more values than
        are read.
        """
        return self.parsed(self.data())

    def parsed(self, data: bytes) -> Any:
        """Return what ``data``, the content as it is or mended, says as JSON. Raises as ``json``
        does.
        """
        if (values := sum(map(data.count, (b",", b"[", b"{")))) > MOST_VALUES:
            raise self.wrong(
                f"it holds about {values:,} values, and {MOST_VALUES:,} are the most that are "
                "read: record fewer steps"
            )
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise self.wrong(f"it is not JSON: {str(error)[:120]}") from None

    def rank_in_name(self) -> int:
        """Return the rank that the file's name says, the last number in it; -1: it says none."""
        stem = self.path.name.partition(".pt.trace")[0]
        matches = [
            match for match in _RANK.finditer(stem.removesuffix(".gz").removesuffix(".json"))
        ]
        return int(next(filter(None, matches[0].groups()))) if matches else -1

    def wrong(self, what: str) -> WorkbenchError:
        return WorkbenchError(f"{self.path}: {what}")


def by_rank(files: Sequence[tuple[int, File]]) -> dict[int, File]:
    """Return each file under its rank; files that say none (-1) in the order given.

    Raises WorkbenchError where two say the same.
    """
    result: dict[int, File] = {}
    if all(rank < 0 for rank, _ in files):
        return {place: file for place, (_, file) in enumerate(files)}
    for rank, file in files:
        if rank < 0:
            raise file.wrong("neither its name nor its content gives its rank: rename it")
        if rank in result:
            raise file.wrong(
                f"it is of rank {rank}, and so is {result[rank].path}: load one of both"
            )
        result[rank] = file
    return dict(sorted(result.items()))


def bytes_of(shapes: Any, dtypes: Any) -> int:
    """Return the bytes of tensors of these shapes; -1 where it is not known."""
    total = 0
    names = dtypes if isinstance(dtypes, list) else [dtypes]
    for place, shape in enumerate(shapes if isinstance(shapes, list) else []):
        name = str(names[min(place, len(names) - 1)]) if names else ""
        size = _SIZES.get(name.rpartition("::")[2].lower())
        if size is None or not isinstance(shape, list):
            return -1
        if not all(isinstance(n, int) and 0 <= n < 1 << 40 for n in shape):
            return -1
        total += size * math.prod(shape)
    return total if total < 1 << 62 else -1


@dataclass
class Recording:
    """Rows as they are found, and how much they say (``precision``), in words."""

    format: str
    precision: str
    ranks: int = 0
    findings: list[str] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, rank: int, lane: str, kind: str, start_ns: int, end_ns: int, **more: Any) -> None:
        """Add one row; what is not given is unknown. Raises ValueError for what no row holds."""
        assert kind in KINDS
        base = {"rank": rank, "lane": lane, "kind": kind, "start_ns": start_ns, "end_ns": end_ns}
        row: dict[str, Any] = base | more
        for name, value in row.items():
            if isinstance(value, str):
                value.encode()  # half of a pair of surrogates is not text: UnicodeEncodeError
            elif name != "value" and not -1 << _BITS[name] <= value < 1 << _BITS[name]:
                raise ValueError(f"{name} = {short(value)} has more than {_BITS[name] + 1} bits")
        self.claim(rank + 1)
        self.rows.append(row)

    def claim(self, ranks: int) -> None:
        """Note that there are so many ranks at least. Raises ValueError for more than are shown."""
        if not 0 < ranks <= MOST_RANKS:
            raise ValueError(
                f"it claims {short(ranks)} ranks, and 1 to {MOST_RANKS:,} can be shown"
            )
        self.ranks = max(self.ranks, ranks)

    def align(self) -> None:
        """Move the times of ranks whose clocks disagree with their messages, and say so."""
        later = shifts(self.rows)
        for row in self.rows:
            for name in ("start_ns", "end_ns"):
                row[name] += later.get(row["rank"], 0)
        self.findings += [
            f"Rank {rank}'s clock was behind by {shift / 1e3:,.0f} µs at least: its messages would "
            "have ended before they began. Its times are moved by that."
            for rank, shift in sorted(later.items())
        ]

    def frame(self) -> pl.DataFrame:
        """Return the rows in the event table's columns; no spans of one lane cross."""
        rows = sorted(self.rows, key=lambda row: (row["rank"], row["start_ns"], -row["end_ns"]))
        lanes = _Lanes()
        for row in rows:
            row["lane"] = lanes.place(row["rank"], row["lane"], row["start_ns"], row["end_ns"])
            row["seq"] = lanes.next(row["rank"], row["lane"])
        blank: dict[str, Any] = {**dict.fromkeys(_NUMBERS, -1), **dict.fromkeys(_TEXTS, "")}
        blank |= {"value": math.nan, "generation": 0}
        return pl.from_dicts([blank | row for row in rows], schema=_COLUMNS)


_NUMBERS = (
    "rank seq start_ns end_ns op peer step chunk slot nbytes iteration microbatch stage version"
).split()
_BITS = {  # of a number without its sign; times leave room for clocks to be set right
    name: 62 if name.endswith("_ns") else 63 if SCHEMA[name] == pl.Int64() else 31
    for name in _NUMBERS
} | {"peer": 15, "generation": 31}
_TEXTS = "lane kind collective algorithm phase group name".split()
_COLUMNS = pl.Schema(
    {
        **dict.fromkeys(_BITS, pl.Int64()),
        **dict.fromkeys(_TEXTS, pl.String()),
        "value": pl.Float64(),
    }
)


class _Lanes:
    """Lanes in which spans nest or follow each other: one that would cross goes to another lane."""

    def __init__(self) -> None:
        self._lanes: dict[tuple[int, str], _Beside] = {}
        self._counts: dict[tuple[int, str], int] = {}

    def place(self, rank: int, lane: str, start: int, end: int) -> str:
        """Return the lane that a span goes to; spans come in the order of their starts."""
        number = self._lanes.setdefault((rank, lane), _Beside()).place(start, end)
        return f"{lane} ({number + 1})" if number else lane

    def next(self, rank: int, lane: str) -> int:
        """Return the number of the lane's next row."""
        number = self._counts.get((rank, lane), 0)
        self._counts[rank, lane] = number + 1
        return number


class _Beside:
    """One lane and those beside it, of which a span takes the first that it fits into.

    ``_most[place]``: when the innermost open span ends, of the lane among those below this place of
    a tree where it ends last; a lane without one has _FREE. A span is placed in O(log lanes).
    """

    def __init__(self) -> None:
        self._open: list[list[int]] = []  # when the open spans of each lane end
        self._ends: list[tuple[int, int]] = []  # the heap of all of these: when, lane
        self._most: list[float] = [_FREE, _FREE]
        self._size = 1

    def place(self, start: int, end: int) -> int:
        """Return the number of the lane that the next span goes to."""
        while self._ends and self._ends[0][0] <= start:
            lane = heapq.heappop(self._ends)[1]
            self._open[lane].pop()  # the innermost one ends first
            self._settle(lane)
        if self._most[1] < end:
            self._double()
        at = 1
        while at < self._size:
            at = 2 * at if self._most[2 * at] >= end else 2 * at + 1
        lane = at - self._size
        if lane == len(self._open):
            self._open.append([])
        self._open[lane].append(end)
        heapq.heappush(self._ends, (end, lane))
        self._settle(lane)
        return lane

    def _settle(self, lane: int) -> None:
        """Bring the tree up to date above a lane."""
        at, ends = self._size + lane, self._open[lane]
        self._most[at] = ends[-1] if ends else _FREE
        while at := at // 2:
            self._most[at] = max(self._most[2 * at : 2 * at + 2])

    def _double(self) -> None:
        leaves = self._most[self._size :] + [_FREE] * self._size
        self._size *= 2
        self._most = [_FREE] * self._size + leaves
        for at in reversed(range(1, self._size)):
            self._most[at] = max(self._most[2 * at : 2 * at + 2])


_FREE = math.inf
