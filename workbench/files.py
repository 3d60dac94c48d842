"""The folders that WORKBENCH_TRACE names, read once the ranks have ended.

    folder/rank-<r>-<pid>/trace          header, names, a page a lane (events.py)
                          <i>.rows       the records of lane i, in blocks, each reserved before use
                          <i>.contexts   their contexts

A record is there where its number is its index + 1; what was reserved and never written is zeroes.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from workbench import events
from workbench.errors import WorkbenchError
from workbench.events import CONTEXT, CONTEXTS, LANES, PAGE, RECORD_BYTES, ROW, ROWS
from workbench.meter import Samples
from workbench.result import Overhead
from workbench.saved import opened
from workbench.table import NameTable, Records, resolve

if TYPE_CHECKING:
    from workbench.store import Store

_AT_ONCE = 16 * ROWS  # records
_RANK_AND_PID = re.compile(r"rank-(\d{1,5})-(\d{1,10})", re.ASCII)


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
        except (OSError, ValueError, MemoryError) as error:
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
            if (match := _RANK_AND_PID.fullmatch(path.name)) and path.is_dir()
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
    with opened(source.folder / "trace") as file:
        data = file.read(events.DATA_AT + 1)
    if not any(data):
        return Samples(), 0.0  # ended before it wrote its header
    memory = memoryview(data)
    magic = int.from_bytes(data[:8], "little")
    if len(data) != events.DATA_AT or magic != events.MAGIC:
        more = "more" if len(data) > events.DATA_AT else f"{len(data):,}"
        raise ValueError(
            f"trace should have {events.DATA_AT:,} bytes that begin with {events.MAGIC:#x}, it has "
            f"{more} that begin with {magic:#x}"
        )
    words = memory[:PAGE].cast("q")
    if words[events.H_FULL]:
        problems.append(f"{source.folder.name}: the disk was full: later records are missing")
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

    last = kept_of_all = 0
    for first, rows in _pieces(source.folder / f"{index}.rows", ROW, ROWS, where, problems):
        there = np.flatnonzero(rows["seq"] == np.arange(first + 1, first + len(rows) + 1))
        if not len(there):
            continue
        last = first + int(there[-1]) + 1
        kept, used = resolve(rows[there], known, names)
        kept_of_all += len(kept)
        if len(kept):
            store.append(source.rank, store.number(lane), kept, used)
    store.dropped += last - kept_of_all


def _records(
    path: Path, dtype: np.dtype[np.void], block: int, where: str, problems: list[str]
) -> Records:
    """The records of a file that were written one after the other, up to its first hole."""
    found: list[Records] = [np.zeros(0, dtype)]
    count = 0
    for first, piece in _pieces(path, dtype, block, where, problems):
        if first != count:
            break
        found.append(piece)
        count += len(piece)
    return np.concatenate(found)


def _pieces(
    path: Path, dtype: np.dtype[np.void], block: int, where: str, problems: list[str]
) -> Iterator[tuple[int, Records]]:
    """A file's records, _AT_ONCE at a time, and the index of the first; holes are passed over."""
    with opened(path) as file:
        number = file.fileno()
        size = os.fstat(number).st_size
        if size % (block * RECORD_BYTES):
            problems.append(
                f"{where}: {path.name} should have a multiple of {block * RECORD_BYTES:,} bytes, "
                f"it has {size:,}: truncated"
            )
        count, first = size // RECORD_BYTES, 0
        while first < count:
            try:
                first = os.lseek(number, first * RECORD_BYTES, os.SEEK_DATA) // RECORD_BYTES
            except OSError:  # nothing but a hole from here on
                return
            file.seek(first * RECORD_BYTES)
            piece: Records = np.frombuffer(
                bytearray(file.read(min(_AT_ONCE, count - first) * RECORD_BYTES)), dtype
            )
            if not len(piece):
                return
            yield first, piece
            first += len(piece)
