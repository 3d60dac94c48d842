"""The rows of somebody else's recording, on their way into the event table."""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from workbench.common.errors import WorkbenchError
from workbench.formats._alignment import shifts
from workbench.recording.events import KINDS
from workbench.store.regular_file import opened

LARGEST = 2 << 30  # bytes of a text, unpacked
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
        than LARGEST.
        """
        with opened(self.path) as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            try:
                source: Any = gzip.GzipFile(fileobj=file) if packed else file
                data: bytes = source.read(LARGEST + 1)
            except (OSError, EOFError, zlib.error) as error:
                raise self.wrong(f"it cannot be unpacked: {error}") from None
        if len(data) > LARGEST:
            raise self.wrong(f"it has more than {LARGEST:,} bytes")
        return data

    def json(self) -> Any:
        """Return the content. Raises WorkbenchError if it is no JSON."""
        try:
            return json.loads(self.data())
        except (ValueError, RecursionError) as error:
            raise self.wrong(f"it is no JSON: {str(error)[:120]}") from None

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
        """Add one row; what is not given is unknown."""
        assert kind in KINDS
        base = {"rank": rank, "lane": lane, "kind": kind, "start_ns": start_ns, "end_ns": end_ns}
        self.rows.append(base | more)
        self.ranks = max(self.ranks, rank + 1)

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
        return pl.from_dicts([blank | row for row in rows]) if rows else pl.DataFrame()


_NUMBERS = (
    "rank seq start_ns end_ns op peer step chunk slot nbytes iteration microbatch stage version"
).split()
_TEXTS = "lane kind collective algorithm phase group name".split()


class _Lanes:
    """Lanes in which spans nest or follow each other: one that would cross goes to another lane."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, str], list[int]] = {}  # when the open spans of a lane end
        self._counts: dict[tuple[int, str], int] = {}

    def place(self, rank: int, lane: str, start: int, end: int) -> str:
        """Return the lane that a span goes to; spans come in the order of their starts."""
        number = 1
        while True:
            name = lane if number == 1 else f"{lane} ({number})"
            open_spans = self._open.setdefault((rank, name), [])
            while open_spans and open_spans[-1] <= start:
                open_spans.pop()
            if not open_spans or end <= open_spans[-1]:
                open_spans.append(end)
                return name
            number += 1

    def next(self, rank: int, lane: str) -> int:
        """Return the number of the lane's next row."""
        number = self._counts.get((rank, lane), 0)
        self._counts[rank, lane] = number + 1
        return number
