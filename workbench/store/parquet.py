"""A run as one Parquet file: small, checked when it is opened, read only where it is asked.

    on disk     in the table
    start_ns    start_ns      as it is: a row group's statistics say which times it has
    took, rest  end_ns        start_ns + 256 * took + rest, as the low byte is noise, which takes
                              the more room the wider the numbers are among which it stands
    ahead       seq           the row's number in the file + ahead: the same for a whole stretch
    others      others        as they are

Rows come in pieces of a million in the order of arrival, each piece sorted by rank, lane and seq.
Neighbors are alike, so a row takes 6 to 10 bytes; what writing needs in memory is one piece's,
however long the run was; a row group is of few lanes and a short time, so that a filter reads few.

The file carries a checksum of itself. Parquet's own readers believe damaged bytes: they give other
numbers, or end the process.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl
from polars.io.plugins import register_io_source

from workbench.common.errors import WorkbenchError
from workbench.common.output_files import atomically
from workbench.recording.events import COLUMNS
from workbench.store.checksum import BLANK, TAIL, check, damage_words, seal
from workbench.store.regular_file import opened
from workbench.store.table import SCHEMA, conform

FORMAT = 2  # grows when an older reader would misread a newer file
DOCUMENT = "workbench"  # the key of our metadata in the Parquet file: JSON
PIECE_ROWS = 1 << 20
GROUP_ROWS = 1 << 17
LEVEL = 6  # of zstd
# A panic is not a PolarsError.
_UNREADABLE = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
_ROW = "__row"
_DISK = {name: dtype for name, dtype in SCHEMA.items() if name not in ("end_ns", "seq")} | {
    "took": pl.Int64(),
    "rest": pl.UInt8(),
    "ahead": pl.Int64(),
}


# ---- writing


def write(
    frames: Iterable[pl.DataFrame], path: Path, dropped: int, metadata: Mapping[str, str]
) -> None:
    """Write one file of ``frames``, rows of the event table in the order of arrival."""
    document = {"format": FORMAT, "checksum": BLANK, "dropped": dropped}
    text = json.dumps(document | {"metadata": dict(metadata)})
    with atomically(path, "the event table") as beside:
        try:
            _sink(_on_disk(frames), beside, text)
        except _UNREADABLE as error:  # polars' own words for what the system said
            raise OSError(str(error)) from error
        seal(beside)


def _sink(pieces: Iterator[pl.DataFrame], path: Path, document: str) -> None:
    def source(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, _: int | None
    ) -> Iterator[pl.DataFrame]:
        yield from pieces  # a sink asks for all of it

    register_io_source(source, schema=_DISK).sink_parquet(
        path,
        compression="zstd",
        compression_level=LEVEL,
        row_group_size=GROUP_ROWS,
        metadata={DOCUMENT: document},
        engine="streaming",
    )


def _on_disk(frames: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Yield pieces of PIECE_ROWS, sorted, with the columns of the file."""
    p, first = pl.col, 0
    for piece in _regroup(frames):
        ordered = piece.sort("rank", "lane", "seq", maintain_order=True)
        number = pl.int_range(first, first + ordered.height, dtype=pl.Int64)
        took = p("end_ns") - p("start_ns")
        table = ordered.with_columns(
            took=took // 256,
            rest=(took & 255).cast(pl.UInt8),
            ahead=p("seq") - number,
        )
        first += ordered.height
        yield table.select(*_DISK)


def _regroup(frames: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    waiting: list[pl.DataFrame] = []
    rows = 0
    for frame in frames:
        while rows + frame.height >= PIECE_ROWS:
            head, frame = frame.head(PIECE_ROWS - rows), frame.slice(PIECE_ROWS - rows)
            yield pl.concat([*waiting, head])
            waiting, rows = [], 0
        if frame.height:
            waiting.append(frame)
            rows += frame.height
    if waiting:
        yield pl.concat(waiting)


# ---- reading


def open_parquet(path: Path) -> tuple[pl.LazyFrame, int, int, dict[str, str]]:
    """Return the table in ``path``, not yet read; its number of rows; records dropped; metadata."""
    try:
        sealed = check(path)
        document = _document(pl.read_parquet_metadata(path))
        frame = pl.scan_parquet(path)
        columns = frame.collect_schema().names()
        rows = int(frame.select(pl.len()).collect().item())
    except (*_UNREADABLE, OSError) as error:
        raise WorkbenchError(
            f"{path}: expected a Parquet file of the event table, found {_what_is(path)}"
        ) from error
    if document is None:
        raise WorkbenchError(
            f"{path}: expected a Parquet file of store.save, found one without our metadata. "
            f"polars.read_parquet can read its {rows:,} rows of the columns {', '.join(columns)}. "
            "Store.from_frame takes them if they are events."
        )
    if document["format"] != FORMAT:
        newer = document["format"] > FORMAT
        version = (
            "of a newer version: update the workbench" if newer else "from before the first release"
        )
        raise WorkbenchError(
            f"{path}: expected format {FORMAT}, found format {document['format']}, {version}; "
            f"polars.read_parquet can read its {rows:,} rows."
        )
    if not sealed:
        raise WorkbenchError(damage_words(path, "there is none"))
    return scan(path), rows, document["dropped"], document["metadata"]


def scan(path: Path) -> pl.LazyFrame:
    """Scan the event table in a file of ``write``, or of a store's own spilled rows."""
    path = path.absolute()  # it is read later, from wherever that is
    frame = pl.scan_parquet(path)
    columns = frame.collect_schema()
    if columns == pl.Schema(_DISK):
        # Plain columns stay plain, so that a filter of theirs is the file reader's.
        numbered = pl.scan_parquet(path, row_index_name=_ROW)
        kept = {
            "end_ns": pl.col("start_ns") + pl.col("took") * 256 + pl.col("rest").cast(pl.Int64),
            "seq": pl.col(_ROW).cast(pl.Int64) + pl.col("ahead"),
        }
        return numbered.select(kept.get(name, pl.col(name)).alias(name) for name in COLUMNS)
    return frame if columns == SCHEMA else conform(frame, str(path))


def _document(metadata: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the file's own description, if it is what we write."""
    with contextlib.suppress(KeyError, ValueError, TypeError, RecursionError):
        document: dict[str, Any] = json.loads(metadata[DOCUMENT])
        facts = document["metadata"]
        if (
            isinstance(document["format"], int)
            and isinstance(document["dropped"], int)
            and isinstance(facts, dict)
            and all(isinstance(text, str) for text in facts.values())
        ):
            return document
    return None


def read_parquet(frame: pl.LazyFrame, path: Path) -> pl.DataFrame:
    """Read what ``open_parquet`` opened. Raises WorkbenchError where its data cannot be read."""
    try:
        return frame.collect()
    except _UNREADABLE as error:
        raise WorkbenchError(
            f"{path}: expected {len(COLUMNS)} whole columns, found damaged data "
            f"({str(error).splitlines()[0]}). Save the run again."
        ) from error


def _what_is(path: Path) -> str:
    """Describe a file that is not a whole Parquet file, and what can be read of it."""
    if not path.exists():
        return "nothing: there is no such file or folder"
    if not path.is_file():
        return "no file: it is something else"
    size = path.stat().st_size
    with opened(path) as file:
        start = file.read(4)
        file.seek(max(size - 4, 0))
        end = file.read()
    if start == end == TAIL:
        return (
            f"{size:,} bytes that begin and end as Parquet and are none in between: damaged. "
            "Nothing of it can be read. Copy it again, or save the run again."
        )
    if start == TAIL:
        return (
            f"{size:,} bytes that begin as Parquet and do not end so: truncated. Nothing of it can "
            "be read, as Parquet keeps its index at the end. Copy it again, or save the run again."
        )
    return f"{size:,} bytes that begin with {start!r}, not with b'PAR1': not a Parquet file"
