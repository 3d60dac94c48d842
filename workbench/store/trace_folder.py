"""The folders that WORKBENCH_TRACE names, read once the ranks have ended.

    folder/rank-<r>-<pid>/trace          header, names, a page a lane (recording/events.py)
                          <i>.rows       the records of lane i, in blocks, each reserved before use
                          <i>.contexts   their contexts

A record is there where its number is its index + 1; what was reserved and never written is zeroes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import polars as pl

from workbench.common.errors import WorkbenchError
from workbench.common.user_warnings import warn_user
from workbench.recording import events
from workbench.recording.events import CONTEXT, CONTEXTS, LANES, PAGE, RECORD_BYTES, ROW, ROWS
from workbench.recording.group_members import members_of
from workbench.recording.meter import Samples
from workbench.recording.recorder import read_meters
from workbench.store.cut_off import LaneEnd, cut_off
from workbench.store.recoveries import KEY
from workbench.store.regular_file import opened
from workbench.store.restarts import Ended, as_metadata, ended_in, ended_with, ends_as_text
from workbench.store.result import Overhead
from workbench.store.table import NAMES_OF_CONTEXT, NameTable, Records, resolve
from workbench.store.trace_sources import Attempts, Origin, Source, is_living, traces

_AT_ONCE = 16 * ROWS  # records
PRECISION = "precision"  # in a store's metadata: how much its rows say, if that is not everything
OPERATIONS_ONLY = "operations only"


@dataclass(frozen=True)
class _Look:
    """The facts of one rank's header beside its rows. ``ended``: None while its process lives."""

    source: Source
    generation: int
    meter: tuple[Samples, float] = field(default_factory=lambda: (Samples(), 0.0))
    ended: Ended | None = None
    size: int = 0
    groups: Mapping[str, list[int]] = field(default_factory=dict)


class Fillable(Protocol):
    """The target for a folder's records: a store."""

    metadata: dict[str, str]
    dropped: int

    def __len__(self) -> int: ...
    def number(self, text: str) -> int: ...
    def append(self, rank: int, lane: int, rows: Records, contexts: Records) -> None: ...
    def scan(self) -> pl.LazyFrame: ...


def read_folder(
    folder: str | Path, store: Fillable, *, partial: bool = False, job: int = -1
) -> None:
    """Put all ranks' records into ``store``: of one job, and of all its attempts (column
    generation).

    ``job``: which, if several have written there; 0 is the oldest, -1 the newest.
    Raises WorkbenchError that says what is wrong and what could be read; with ``partial`` only if
    nothing could, and ``store.metadata["problems"]`` (JSON) says what is wrong.
    """
    folder = Path(folder)
    result = traces(folder, job)
    store.metadata |= {"trace": str(folder), "title": folder.absolute().name}
    problems: list[str] = []
    looks: list[_Look] = []
    readable: list[str] = []
    attempts = Attempts()
    for source, generation in result.sources:
        rows = len(store)
        try:
            looks.append(_read_rank(store, source, generation, attempts, problems))
        except (OSError, ValueError, MemoryError) as error:
            problems.append(f"{source.folder.name}: {error}")
        readable.append(f"rank {source.rank}: {len(store) - rows:,}")
    _note_ranks(store, looks)
    if moved := {rank: shift for rank, shift in attempts.shifts.items() if shift}:
        store.metadata["clocks aligned"] = json.dumps(moved)
    meters = [(look.source.rank, look.meter) for look in looks]
    costs = {rank: round(1000 * (timed.mean_ns() or cost)) for rank, (timed, cost) in meters}
    store.metadata["record_cost_ps"] = json.dumps(costs)
    store.metadata["overhead"] = _overhead(store, [meter for _, meter in meters]).to_json()
    store.metadata["processes"] = json.dumps(
        [
            {"rank": source.rank, "generation": generation, "pid": source.pid, "host": one.host}
            for (source, generation), one in zip(result.sources, result.origins, strict=True)
        ]
    )
    if any(generation for _, generation in result.sources):
        store.metadata |= _restarts(store, result.sources, result.origins)
    if result.jobs > 1:
        which = job % result.jobs
        store.metadata["jobs"] = f"{which} of {result.jobs}"
        warn_user(
            f"{folder} holds the records of {result.jobs} jobs, and these are of number {which}"
            f"{', the newest' if which == result.jobs - 1 else ''}: wb.load(folder, job=0) reads "
            "the oldest's"
        )
    if result.apart:
        store.metadata["joined no group"] = json.dumps(result.apart)
    if problems:
        store.metadata["problems"] = json.dumps(problems)
        if not partial or not len(store):
            some = f": {', '.join(readable)}; load(folder, partial=True) gives them."
            raise WorkbenchError(
                f"{folder}: expected whole traces, found: {'; '.join(problems)}. Records that "
                f"could be read{some if len(store) else ': none.'}"
            )


def _note_ranks(store: Fillable, looks: Sequence[_Look]) -> None:
    """Put into the metadata how many ranks the newest attempt has had, how each ended, and the
    ranks of its groups.
    """
    newest = max((look.generation for look in looks), default=0)
    last = [look for look in looks if look.generation == newest]
    ends = {look.source.rank: look.ended for look in last if look.ended is not None}
    pids = {look.source.rank: look.source.pid for look in last}
    size = max((max(look.size, look.source.rank + 1) for look in last), default=0)
    groups = {label: ranks for look in last for label, ranks in look.groups.items()}
    store.metadata |= {"ranks": str(size), "groups": json.dumps(groups)}
    store.metadata |= {"ends": ends_as_text(ends), "pids": json.dumps(pids)}


def _restarts(
    store: Fillable, sources: Sequence[tuple[Source, int]], origins: Sequence[Origin]
) -> dict[str, str]:
    """Return the metadata of a job's attempts, told as recoveries are."""
    last = store.scan().group_by("generation", "rank").agg(pl.col("end_ns").max()).collect()
    when = {(generation, rank): end for generation, rank, end in last.iter_rows()}
    members: dict[int, list[int]] = {}
    ends: dict[int, dict[int, Ended]] = {}
    left: dict[int, dict[str, int]] = {}
    for (source, generation), one in zip(sources, origins, strict=True):
        left.setdefault(generation, {})[one.agent] = one.left
        at = float(when.get((generation, source.rank), 0))
        members.setdefault(generation, []).append(source.rank)
        ends.setdefault(generation, {})[source.rank] = ended_in(source, at)
    text = as_metadata(members, ends, left)
    return {KEY: text} if text is not None else {}


def _overhead(store: Fillable, meters: Sequence[tuple[Samples, float]]) -> Overhead:
    """Compute what recording has cost these ranks, between their first row and their last."""
    p = pl.col
    seconds = store.scan().select((p("end_ns").max() - p("start_ns").min()) / 1e9).collect().item()
    cores = min(len(meters), os.cpu_count() or 1)
    return Overhead.of(len(store), store.dropped, meters, 0.0, (seconds or 0.0) * cores)


def _read_rank(
    store: Fillable, source: Source, generation: int, attempts: Attempts, problems: list[str]
) -> _Look:
    """Add one rank's records to ``store``, and what is wrong with them to ``problems``."""
    with opened(source.folder / "trace") as file:
        data = file.read(events.DATA_AT + 1)
    if not any(data):
        return _Look(source, generation)  # the rank ended before it wrote its header
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
    if words[events.H_OPERATIONS]:
        store.metadata[PRECISION] = OPERATIONS_ONLY
    store.dropped += events.lost_rows(words)
    attempts.align(source.rank, words)
    names = NameTable(store.number, memory)
    names.read()
    ends: dict[int, LaneEnd] = {}
    for index in range(min(words[events.H_LANES], LANES)):
        lane = names.text(memory[events.LANES_AT + index * PAGE :][:8].cast("q")[0])
        try:
            end = _read_lane(store, source, index, lane, names, generation, attempts, problems)
            ends[index] = end
        except OSError as error:
            problems.append(
                f"{source.folder.name}: lane {lane!r}: {error.filename}: {error.strerror}"
            )
    ended = ended_with(words, names)
    ended = replace(ended, at=max(words[events.H_SEEN], *(end.last_ns for end in ends.values()), 0))
    if ended.words is None and not is_living(source):
        _add_cut_off(store, source, generation, attempts, memory, ends, int(ended.at))
    is_over = ended.words is not None or not is_living(source)
    groups = dict(filter(None, map(members_of, names.texts)))
    size, meter = words[events.H_SIZE], read_meters(memory)
    return _Look(source, generation, meter, ended if is_over else None, size, groups)


def _add_cut_off(
    store: Fillable,
    source: Source,
    generation: int,
    attempts: Attempts,
    trace: memoryview,
    ends: Mapping[int, LaneEnd],
    until: int,
) -> None:
    """Add the rows that the rank was writing when it was killed."""
    for index, end in ends.items():
        rows, context = cut_off(trace, index, end, until, store.number), end.context.copy()
        if len(rows):
            lane = int(context["lane"][0])
            attempts.number(source.rank, generation, lane, rows, context)
            store.append(source.rank, lane, rows, context)


def _read_lane(
    store: Fillable,
    source: Source,
    index: int,
    lane: str,
    names: NameTable,
    generation: int,
    attempts: Attempts,
    problems: list[str],
) -> LaneEnd:
    where = f"{source.folder.name}: lane {lane!r}"
    contexts = _records(source.folder / f"{index}.contexts", CONTEXT, CONTEXTS, where, problems)
    known: Records = np.zeros(len(contexts) + 1, CONTEXT)
    known[1:] = contexts
    known["seq"][1:][contexts["seq"] != np.arange(1, len(contexts) + 1)] = 0
    names.translate(known, *NAMES_OF_CONTEXT)
    written = np.flatnonzero(known["seq"])[-1:]
    end = LaneEnd(known[written])

    last = kept_of_all = 0
    for first, rows in _pieces(source.folder / f"{index}.rows", ROW, ROWS, where, problems):
        there = np.flatnonzero(rows["seq"] == np.arange(first + 1, first + len(rows) + 1))
        if not len(there):
            continue
        last = first + int(there[-1]) + 1
        for number, block, used in resolve(rows[there], known, names):
            kept_of_all += len(block)
            end.take(block, used)
            attempts.number(source.rank, generation, number, block, used)
            store.append(source.rank, number, block, used)
    store.dropped += last - kept_of_all
    return end


def _records(
    path: Path, dtype: np.dtype[np.void], block: int, where: str, problems: list[str]
) -> Records:
    """Return the records of a file that were written one after the other, up to its first hole."""
    result: list[Records] = [np.zeros(0, dtype)]
    count = 0
    for first, piece in _pieces(path, dtype, block, where, problems):
        if first != count:
            break
        result.append(piece)
        count += len(piece)
    return np.concatenate(result)


def _pieces(
    path: Path, dtype: np.dtype[np.void], block: int, where: str, problems: list[str]
) -> Iterator[tuple[int, Records]]:
    """Yield a file's records, _AT_ONCE at a time, and the index of the first; holes are passed
    over.
    """
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
