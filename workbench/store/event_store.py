"""The store: every event of a run, appended while it runs, queried at any moment.

    collector -> append(records)  ->  raw batches  ->  frames (polars)  ->  Parquet parts in a
                 25 times per second  64 bytes a row   on demand            folder of our own

Rows keep the order in which they arrived; within a lane that is the order of ``seq``. A row is
turned into polars once: the next snapshot reuses it. A reader does not make the collector wait.
"""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl

from workbench.common import heap, threads
from workbench.common.arguments import Facts, Job, Number, Place, checked
from workbench.common.units import counted
from workbench.common.user_warnings import warn_user
from workbench.store import parquet, table, trace_folder
from workbench.store.private_folder import private_folder
from workbench.store.table import Batch, Names, Records

__all__ = ["NOW_SCHEMA", "Store", "Tap"]

NOW_SCHEMA = pl.Schema(
    {
        "rank": pl.Int32(),
        "lane": pl.Categorical(),
        "kind": pl.Categorical(),
        "peer": pl.Int32(),
        "group": pl.Categorical(),
        "collective": pl.Categorical(),
        "algorithm": pl.Categorical(),
        "op": pl.Int64(),
        "step": pl.Int32(),
        "chunk": pl.Int32(),
        "since_ns": pl.Int64(),
        "dtype": pl.Categorical(),
        "shape": pl.String(),
        "values": pl.List(pl.Float64()),
    }
)
_SMALL = 65_536  # rows; frames below it are merged now and then
_MANY = 128  # frames
_CONVERTED_AT_ONCE = 262_144  # rows: bounds what a conversion needs on top


class Store:
    """The event table of one run. ``metadata`` (strings: spec, result, clock) is saved with it.

    ``memory_rows`` is how many rows stay in memory (64 bytes each, 140 once they were looked
    at); older ones go to Parquet parts in a private temporary folder, which goes with the store.
    """

    def __init__(
        self, metadata: Mapping[str, str] | None = None, *, memory_rows: int = 2_000_000
    ) -> None:
        self.metadata: dict[str, str] = dict(metadata or {})
        self.dropped = 0  # records lost to overflow
        self._folded: dict[int, tuple[int, int]] = {}
        self._memory_rows = memory_rows
        self._names = Names()
        self._now: Sequence[tuple[object, ...]] = ()
        self._look: Callable[[], Sequence[tuple[object, ...]]] | None = None
        self._wake: Callable[[], None] | None = None

        self._lock = threading.Lock()  # guards what ``append`` touches; held for moments only
        self._raw: list[Batch] = []
        self._taps: weakref.WeakSet[Tap] = weakref.WeakSet()
        self._rows = 0
        self._in_memory = 0
        self._spiller: threading.Thread | None = None

        self._reading = threading.RLock()  # guards the rest; ``append`` never takes it
        self._parts: list[tuple[pl.LazyFrame, int]] = []  # files of rows, and how many
        self._leaving: list[pl.DataFrame] = []  # being written to a part
        self._frames: list[pl.DataFrame] = []
        self._folder: Path | None = None

    # ---- writing

    def number(self, text: str) -> int:
        """Return the store's number for the name ``text``: the collector hands in numbers for
        strings.
        """
        with self._lock:
            return self._names.number(text)

    def names(self, first: int = 0) -> list[str]:
        """Return the texts that are numbered from ``first`` on; number 0 is ""."""
        with self._lock:
            return self._names.since(first)

    def append(self, rank: int, lane: int, rows: Records, contexts: Records) -> None:
        """Add rows (events.ROW) of one rank's lane, with their contexts (events.CONTEXT);
        ``table.Batch`` explains their numbers.
        """
        with self._lock:
            batch = Batch(rank, lane, rows, contexts)
            self._raw.append(batch)
            for tap in self._taps:
                tap._waiting.append(batch)
                tap.arrived.set()
            self._rows += len(rows)
            self._in_memory += len(rows)
            spiller = self._spiller
            if spiller is None and self._in_memory > self._memory_rows:
                spiller = self._spiller = threads.start(self._spill, "workbench spill")
            overfull = self._in_memory > 2 * self._memory_rows
        if overfull and spiller is not None:  # faster than the disk: wait, as memory is finite
            spiller.join()

    def count_folded(self, rank: int, chunks: int, rows: int) -> None:
        """Note that a rank's agent has folded ``chunks`` into ``rows`` (metadata "coarser")."""
        with self._lock:
            self._folded[rank] = chunks, rows
            sums = [sum(one) for one in zip(*self._folded.values(), strict=True)]
            self.metadata["coarser"] = json.dumps(sums)

    @property
    def followed(self) -> bool:
        """Whether a reader wants rows as they come."""
        return bool(self._taps)

    def collected_by(
        self,
        look: Callable[[], Sequence[tuple[object, ...]]] | None,
        wake: Callable[[], None] | None,
    ) -> None:
        """Set what the collector answers with: ``look`` says what the lanes are in right now,
        ``wake`` is told that a reader waits for rows; None: rows are not collected any more.
        """
        self._look, self._wake = look, wake

    def set_now(self, rows: Sequence[tuple[object, ...]]) -> None:
        """Set what the lanes are in right now: tuples in the order of ``NOW_SCHEMA``."""
        self._now = rows

    # ---- reading

    def tap(self) -> Tap:
        """Return a tap for the raw batches that arrive from now on; all before it is
        ``pieces(tap.position)``.
        """
        with self._lock:
            tap = Tap(self._lock, self._rows)
            self._taps.add(tap)
        if (wake := self._wake) is not None:
            wake()
        return tap

    def __len__(self) -> int:
        return self._rows

    def __repr__(self) -> str:
        return f"<Store of {counted(self._rows, 'event')}, {self.dropped:,} dropped>"

    @property
    def events(self) -> pl.DataFrame:
        """A snapshot of everything so far, in the order of arrival."""
        with self._reading:
            frames = self._settled()
            if self._parts:
                return self.scan().collect()
            return pl.concat(frames, rechunk=False) if frames else table.EMPTY

    def scan(self) -> pl.LazyFrame:
        """Return everything so far, spilled files included, read when collected: keep the store
        until then.
        """
        with self._reading:
            frames = [frame.lazy() for frame in self._settled()]
            parts = [part for part, _ in self._parts]
            return pl.concat([*parts, *frames]) if parts or frames else table.EMPTY.lazy()

    @checked
    def since(self, position: Number = 0) -> tuple[pl.DataFrame, int]:
        """Return the rows that arrived after ``position``, and the position for the next call."""
        stop = len(self)
        pieces = [*self.pieces(stop, position)]
        return (pl.concat(pieces, rechunk=False) if pieces else table.EMPTY), stop

    @checked
    def pieces(self, stop: Number | None = None, start: Number = 0) -> Iterator[pl.DataFrame]:
        """Yield everything so far, or from the position ``start`` up to ``stop``, in the order of
        arrival.
        """
        with self._reading:
            frames = [*self._settled()]
            parts = [*self._parts]
        stop, at = len(self) if stop is None else stop, 0
        for part, rows in parts:
            last = min(rows, stop - at)
            for first in range(max(start - at, 0), last, _CONVERTED_AT_ONCE):
                yield part.slice(first, min(_CONVERTED_AT_ONCE, last - first)).collect()
            at += rows
        for piece in frames:
            first, last = max(start - at, 0), min(piece.height, stop - at)
            if first < last:
                yield piece.slice(first, last - first)
            at += piece.height

    @property
    def doing(self) -> Sequence[tuple[object, ...]]:
        """The status ``now`` as tuples in the order of ``NOW_SCHEMA``, for 25 calls per second."""
        look = self._look
        return self._now if look is None else look()

    @property
    def now(self) -> pl.DataFrame:
        """The present activity of each lane (``since_ns``: its start), without idle lanes."""
        return pl.DataFrame(self.doing, schema=NOW_SCHEMA, orient="row")

    def _settled(self) -> list[pl.DataFrame]:
        """Convert everything in memory to frames. Call with ``_reading`` held."""
        with self._lock:
            raw, self._raw = self._raw, []
        group: list[Batch] = []
        rows = 0
        for index, batch in enumerate(raw):
            group.append(batch)
            rows += len(batch.rows)
            if rows >= _CONVERTED_AT_ONCE or index == len(raw) - 1:
                self._frames.append(table.to_frame(group, self._names))
                group, rows = [], 0
        if len(self._frames) > _MANY:
            self._merge_small()
        return self._leaving + self._frames

    def _merge_small(self) -> None:
        first = len(self._frames)
        while first and self._frames[first - 1].height < _SMALL:
            first -= 1
        if small := self._frames[first:]:
            self._frames[first:] = [pl.concat(small, rechunk=True)]

    # ---- spilling

    def put_away(self) -> None:
        """Move all rows to a file, so that they need no memory. They are read as before."""
        if (spiller := self._spiller) is not None:
            spiller.join()
        if self._in_memory:
            self._spill(leave=0)

    def _spill(self, leave: int | None = None) -> None:
        """Move the older half of the rows in memory to a file, or all but the newest ``leave``. One
        thread at a time does this.
        """
        most = self._memory_rows // 2 if leave is None else leave
        try:
            with self._reading:
                self._settled()
                rows = sum(frame.height for frame in self._frames)
                while self._frames and rows > most:
                    rows -= self._frames[0].height
                    self._leaving.append(self._frames.pop(0))
                leaving = pl.concat(self._leaving, rechunk=False)
                path = self._private_folder() / f"part-{len(self._parts):05}.parquet"
            leaving.write_parquet(path, compression="zstd", compression_level=1)
            part = parquet.scan(path)
        except Exception as error:
            with self._reading, self._lock:
                self._frames, self._leaving = self._leaving + self._frames, []
                self._memory_rows = (
                    2**62
                )  # one failure is enough: keep everything in memory from here
                self._spiller = None
            warn_user(
                f"older events stay in memory: writing them to {self._folder} failed: {error}"
            )
        else:
            with self._reading, self._lock:
                self._parts.append((part, leaving.height))
                self._leaving = []
                self._in_memory -= leaving.height
                self._spiller = None
            del leaving
            heap.trim()  # of what the batches had

    def _private_folder(self) -> Path:
        if self._folder is None:
            self._folder = private_folder(self)
        return self._folder

    # ---- files

    @checked
    def save(self, path: Place) -> None:
        """Write events and metadata to ``path`` as one Parquet file: all of them, or nothing."""
        parquet.write(self.pieces(), Path(path), self.dropped, self.metadata)

    @classmethod
    @checked
    def load(
        cls,
        path: Place,
        *,
        partial: bool = False,
        job: Job = -1,
        memory_rows: Number = 2_000_000,
    ) -> Store:
        """Return the store that ``save`` wrote to ``path``, or that a WORKBENCH_TRACE folder holds.

        ``partial`` takes what is whole of a damaged folder, ``job`` is one of those that wrote to
        it (0 the oldest, -1 the newest). ``memory_rows``: the most rows that are
        held in memory; those of a longer file stay in it.

        Raises WorkbenchError that says what was expected, what was found and what can be read.
        """
        path = Path(path)
        if path.is_dir():
            store = cls(memory_rows=memory_rows)
            trace_folder.read_folder(path, store, partial=partial, job=job)
            return store
        frame, rows, dropped, metadata = parquet.open_parquet(path)
        store = cls(metadata, memory_rows=memory_rows)
        store._rows, store.dropped = rows, dropped
        if rows > memory_rows:  # stays on disk: the file is a part that is not ours to remove
            store._parts.append((frame, rows))
        elif rows:
            store._frames, store._in_memory = [parquet.read_parquet(frame, path)], rows
        return store

    @classmethod
    @checked
    def from_frame(
        cls, events: pl.DataFrame | pl.LazyFrame, metadata: Facts | None = None
    ) -> Store:
        """Return a store of events from elsewhere (a plan, a test). Nulls become -1, "" and NaN."""
        store = cls(metadata)
        frame = table.conform(events, "events of a frame").collect()
        if frame.height:
            store._frames, store._rows, store._in_memory = [frame], frame.height, frame.height
        return store

    @checked
    def to_perfetto(self, path: Place) -> None:
        """Write to ``path`` a trace for ui.perfetto.dev (store/perfetto.py)."""
        from workbench.store.perfetto import write

        write(self, Path(path))

    @checked
    def to_chakra(self, folder: Place) -> None:
        """Write into ``folder`` a Chakra execution trace for each rank (store/chakra.py)."""
        from workbench.store.chakra import write

        write(self, Path(folder))


class Tap:
    """A store's rows from ``position`` on, as raw batches (references, no copies).

    ``position`` counts the store's rows before the next ``take``: the rows of the store up to it,
    and those that the tap gives then, are all rows, once each. A dropped tap keeps nothing.
    ``arrived`` is set when there are some to take; another event may be put in its place.
    """

    def __init__(self, lock: threading.Lock, position: int) -> None:
        self.position = position
        self._lock, self._waiting = lock, list[Batch]()
        self.arrived = threading.Event()

    def take(self) -> list[Batch]:
        """Return what has arrived since the last call."""
        with self._lock:
            batches, self._waiting = self._waiting, []
            self.arrived.clear()
        self.position += sum(len(batch.rows) for batch in batches)
        return batches
