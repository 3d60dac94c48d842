"""Files: a run as one Parquet file, and the folders that WORKBENCH_TRACE names.

    folder/rank-<r>-<pid>/trace          header, names, a page a lane (events.py)
                          <i>.rows       the records of lane i, in blocks, each reserved before use
                          <i>.contexts   their contexts

A record is there where its number is its index + 1; what was reserved and never written is zeroes.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from workbench import events
from workbench.errors import WorkbenchError
from workbench.events import COLUMNS, CONTEXT, CONTEXTS, LANES, PAGE, RECORD_BYTES, ROW, ROWS
from workbench.meter import Samples
from workbench.result import Overhead
from workbench.table import NameTable, Records, conform, resolve

if TYPE_CHECKING:
    from workbench.store import Store

FORMAT = 1  # of the Parquet file; grows when an older reader would misread a newer file
DOCUMENT = "workbench"  # the key of our metadata in the Parquet file: JSON
_AT_ONCE = 16 * ROWS  # records

# ---- Parquet

# What polars raises over damaged bytes. A panic is no PolarsError.
_UNREADABLE = (pl.exceptions.PolarsError, pl.exceptions.PanicException)


@contextlib.contextmanager
def atomically(path: Path, what: str) -> Iterator[Path]:
    """A name beside ``path``; what is written there becomes ``path`` if all goes well."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield beside
        os.replace(beside, path)
    except OSError as error:
        raise WorkbenchError(
            f"cannot write {what} to {path}: {error.strerror or error}. The folder must exist, be "
            "writable and have room; what was there before is untouched."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)


def write_parquet(
    frame: pl.LazyFrame, path: Path, dropped: int, metadata: Mapping[str, str]
) -> None:
    """One file, sorted by rank, lane and seq: neighbours are alike, so a row takes some 8 bytes."""
    document = json.dumps({"format": FORMAT, "dropped": dropped, "metadata": dict(metadata)})
    with atomically(path, "the event table") as beside:
        frame.sort("rank", "lane", "seq").sink_parquet(
            beside,
            compression="zstd",
            compression_level=6,
            metadata={DOCUMENT: document},
            engine="streaming",
        )


def open_parquet(path: Path) -> tuple[pl.LazyFrame, int, int, dict[str, str]]:
    """The table in ``path``, not yet read; its number of rows; records dropped; metadata."""
    try:
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
    if document["format"] > FORMAT:
        raise WorkbenchError(
            f"{path}: expected format {FORMAT} or older, found format {document['format']}, of a "
            f"newer version. Update the workbench; polars.read_parquet can read its {rows:,} rows."
        )
    return conform(frame, str(path)), rows, document["dropped"], document["metadata"]


def _document(metadata: Mapping[str, str]) -> dict[str, Any] | None:
    with contextlib.suppress(KeyError, ValueError, TypeError):
        document: dict[str, Any] = json.loads(metadata[DOCUMENT])
        if {"format", "dropped", "metadata"} <= document.keys():
            return document
    return None


def read_parquet(frame: pl.LazyFrame, path: Path) -> pl.DataFrame:
    """Read what ``open_parquet`` opened. A WorkbenchError says which columns are whole."""
    try:
        return frame.collect()
    except _UNREADABLE as error:
        whole = [column for column in COLUMNS if _is_whole(path, column)]
        raise WorkbenchError(
            f"{path}: expected {len(COLUMNS)} whole columns, found damaged data "
            f"({str(error).splitlines()[0]}). polars.read_parquet(path, columns=...) can read: "
            f"{', '.join(whole) or 'none'}."
        ) from error


def _is_whole(path: Path, column: str) -> bool:
    try:
        pl.read_parquet(path, columns=[column])
    except _UNREADABLE:
        return False
    return True


def _what_is(path: Path) -> str:
    """In words, what a file is that is no whole Parquet file, and what can be read of it."""
    if not path.exists():
        return "nothing: there is no such file or folder"
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(4)
    if start == b"PAR1":
        return (
            f"{size:,} bytes that begin as Parquet and do not end so: truncated. Nothing of it can "
            "be read, as Parquet keeps its index at the end. Copy it again, or save the run again."
        )
    return f"{size:,} bytes that begin with {start!r}: no Parquet. Nothing of it can be read."


# ---- WORKBENCH_TRACE folders


def read_folder(folder: str | Path, *, partial: bool = False) -> Store:
    """All ranks' records in one store.

    Raises WorkbenchError that says what is wrong and what could be read; with ``partial`` only if
    nothing could, and ``store.metadata["problems"]`` (JSON) says what is wrong.
    """
    from workbench.store import Store

    folder = Path(folder)
    sources = _sources(folder)
    store = Store({"trace": str(folder), "title": folder.absolute().name})
    problems: list[str] = []
    meters: dict[int, tuple[Samples, float]] = {}
    readable: list[str] = []
    for source in sources:
        before = len(store)
        try:
            meters[source.rank] = _read_rank(store, source, problems)
        except (OSError, ValueError) as error:
            problems.append(f"{source.folder.name}: {error}")
        readable.append(f"rank {source.rank}: {len(store) - before:,}")
    costs = {
        rank: round(1000 * (timed.mean_ns() or cost)) for rank, (timed, cost) in meters.items()
    }
    store.metadata["record_cost_ps"] = json.dumps(costs)
    store.metadata["overhead"] = _overhead(store, list(meters.values())).to_json()
    if problems:
        store.metadata["problems"] = json.dumps(problems)
        if not partial or not len(store):
            raise WorkbenchError(
                f"{folder}: expected whole traces, found: {'; '.join(problems)}. Records that "
                f"could be read: {', '.join(readable)}; load(folder, partial=True) gives them."
            )
    return store


@dataclass(frozen=True, slots=True)
class Source:
    """The folder of one rank, that is of one process."""

    rank: int
    pid: int
    folder: Path


def find_sources(folder: Path) -> list[Source]:
    """What ranks have written in ``folder``, by rank."""
    return sorted(
        (
            Source(int(match[1]), int(match[2]), path)
            for path in folder.iterdir()
            if (match := re.fullmatch(r"rank-(\d+)-(\d+)", path.name)) and path.is_dir()
        ),
        key=lambda source: (source.rank, source.pid),
    )


def _sources(folder: Path) -> list[Source]:
    sources = find_sources(folder) if folder.is_dir() else []
    if not sources:
        found = len(list(folder.iterdir())) if folder.is_dir() else 0
        what = f"{found} other files" if found else "nothing"
        raise WorkbenchError(
            f"{folder}: expected a folder that WORKBENCH_TRACE named (rank-<r>-<pid>/trace ...), "
            f"found {what}. Nothing to read."
        )
    for one, other in itertools.pairwise(sources):
        if one.rank == other.rank:
            raise WorkbenchError(
                f"{folder}: expected one run, found rank {one.rank} of several: {one.folder.name}, "
                f"{other.folder.name}. Move the folders of one run into a folder of their own."
            )
    return sources


def _overhead(store: Store, meters: Sequence[tuple[Samples, float]]) -> Overhead:
    """What recording has cost these ranks, between their first row and their last."""
    p = pl.col
    seconds = store.scan().select((p("end_ns").max() - p("start_ns").min()) / 1e9).collect().item()
    cores = min(len(meters), os.cpu_count() or 1)
    return Overhead.of(len(store), store.dropped, meters, 0.0, (seconds or 0.0) * cores)


def _read_rank(store: Store, source: Source, problems: list[str]) -> tuple[Samples, float]:
    """Add one rank's records to ``store``, what is wrong to ``problems``.

    Returns what the rank's meter says (events.metered).
    """
    data = (source.folder / "trace").read_bytes()
    if not any(data):
        return Samples(), 0.0  # ended before it wrote its header
    memory = memoryview(data)
    words = memory[:PAGE].cast("q")
    if len(data) != events.DATA_AT or words[events.H_MAGIC] != events.MAGIC:
        raise ValueError(
            f"trace should have {events.DATA_AT:,} bytes that begin with {events.MAGIC:#x}, it has "
            f"{len(data):,} that begin with {int.from_bytes(data[:8], 'little'):#x}"
        )
    names = NameTable(store.number, memory)
    names.read()
    for index in range(min(words[events.H_LANES], LANES)):
        lane = names.text(memory[events.LANES_AT + index * PAGE :][:8].cast("q")[0])
        try:
            _read_lane(store, source, index, lane, names, problems)
        except OSError as error:
            problems.append(
                f"{source.folder.name}: lane {lane!r}: {error.filename}: {error.strerror}"
            )
    return events.metered(memory)


def _read_lane(
    store: Store, source: Source, index: int, lane: str, names: NameTable, problems: list[str]
) -> None:
    where = f"{source.folder.name}: lane {lane!r}"
    contexts = _records(source.folder / f"{index}.contexts", CONTEXT, CONTEXTS, where, problems)
    known: Records = np.zeros(len(contexts) + 1, CONTEXT)
    known[1:] = contexts
    known["id"][1:][contexts["seq"] != np.arange(1, len(contexts) + 1)] = 0
    names.translate(known, "collective", "algorithm", "group")

    rows = _records(source.folder / f"{index}.rows", ROW, ROWS, where, problems)
    there = np.flatnonzero(rows["seq"] == np.arange(1, len(rows) + 1))
    lost = int(there[-1]) + 1 if len(there) else 0
    for begin in range(0, len(there), _AT_ONCE):
        kept, used = resolve(rows[there[begin : begin + _AT_ONCE]], known, names)
        if len(kept):
            store.append(source.rank, store.number(lane), kept, used)
        lost -= len(kept)
    store.dropped += lost


def _records(
    path: Path, dtype: np.dtype[np.void], block: int, where: str, problems: list[str]
) -> Records:
    size = path.stat().st_size
    if size % (block * RECORD_BYTES):
        problems.append(
            f"{where}: {path.name} should have a multiple of {block * RECORD_BYTES:,} bytes, "
            f"it has {size:,}: truncated"
        )
    records: Records = np.fromfile(path, dtype, size // RECORD_BYTES)
    return records
