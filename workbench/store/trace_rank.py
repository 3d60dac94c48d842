"""The reader of one rank's files in a WORKBENCH_TRACE folder, while the rank writes them."""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from workbench.recording import events
from workbench.recording.events import (
    CONTEXT,
    CONTEXTS,
    LANES,
    NAMES_AT,
    NAMES_BYTES,
    PAGE,
    ROW,
    ROWS,
)
from workbench.recording.group_members import members_of
from workbench.recording.meter import Samples
from workbench.recording.recorder import read_meters
from workbench.store.cut_off import NO_CONTEXT, LaneEnd, cut_off
from workbench.store.event_store import NOW_SCHEMA, Store
from workbench.store.growing_file import Growing, Pages
from workbench.store.rank_reader import under_way
from workbench.store.restarts import Ended
from workbench.store.table import NAMES_OF_CONTEXT, NameTable, Records, resolve
from workbench.store.trace_folder import OPERATIONS_ONLY, PRECISION
from workbench.store.trace_sources import Attempts, Origin, Source, is_living, origin

_SINCE = [*NOW_SCHEMA].index("since_ns")
QUIET_S = 5.0  # so long nothing comes of a rank whose process cannot be seen: it has ended


class Rank:
    """The reader of one rank's files.

    ``of``: how many ranks it says there are. ``gone_at``: when (time.monotonic) all was read that
    it wrote, its process having ended, or what of it can be read; infinity until then. ``unread``:
    the rest cannot be read, so that how it ended is unknown. Its rows are between ``first_ns``
    and ``last_ns``.
    """

    def __init__(
        self, store: Store, source: Source, trace: Pages, generation: int, attempts: Attempts
    ) -> None:
        self.generation, self._attempts = generation, attempts
        self.source, self.gone_at, self.unread = source, math.inf, False
        self.first_ns, self.last_ns, self.last_own_ns = math.inf, -math.inf, 0
        attempts.align(source.rank, trace[:PAGE].cast("q"))
        self._store, self._trace = store, trace
        self._words = trace[:PAGE].cast("q")  # as they were at the last look
        self._meter = Samples(), 0.0
        self._origin = Origin()
        self._names = NameTable(store.number, trace)
        self._lanes: list[_Lane] = []
        self._lost = 0
        self._process = _hold(source)
        self._news = time.monotonic()  # when there was something new

    @property
    def of(self) -> int:
        return self._words[events.H_SIZE]

    @property
    def gone(self) -> bool:
        return self.gone_at < math.inf

    @property
    def last_words(self) -> str | None:
        """The error that it raised, "" if it ended without one; None: it has not said."""
        number = self._words[events.H_END]
        return self._names.text(number - 1) if number else None

    @property
    def raised(self) -> Mapping[str, Any]:
        """The fields of the error that it raised (``WorkbenchError.as_fields``, without the text);
        none if it ended well, or without a word.
        """
        number, words = self._words[events.H_ERROR], self.last_words
        with contextlib.suppress(ValueError):
            facts = json.loads(self._names.text(number - 1)) if number else None
            if isinstance(facts, dict):
                return facts
        # A trace of before had the error's class in front of its message.
        return {"kind": words.partition(":")[0]} if words else {}

    @property
    def ended(self) -> Ended:
        """Return how it ended."""
        at = max(self.last_ns, self._words[events.H_SEEN])
        return Ended(self.last_words, str(self.raised.get("kind", "")), at)

    @property
    def origin(self) -> Origin:
        with contextlib.suppress(ValueError):
            header = bytes(self._trace[:PAGE])  # first: the names are at least as new
            names = self._trace[PAGE : NAMES_AT + NAMES_BYTES]
            self._origin = origin(memoryview(header + names))
        return self._origin

    @property
    def may_come_again(self) -> bool:
        """Return whether it has failed and torchrun is there to restart it."""
        left, agent = self._words[events.H_LEFT], self._words[events.H_AGENT]
        is_here = left > 0 and self.origin.host == os.uname().nodename
        return is_here and self.last_words != "" and Path(f"/proc/{agent}").exists()

    def read(self) -> None:
        """Append what is new."""
        if self.gone:
            return
        self._words = self._trace[:PAGE].cast("q")
        ended = self._has_ended()  # first: what is read afterwards is all there is
        self._find_lanes()
        for lane in self._lanes:
            for rows in lane.rows.read():
                for contexts in lane.contexts.read():  # after the rows: those they need are there
                    self._names.read()
                    self._names.translate(contexts, *NAMES_OF_CONTEXT)
                    lane.learn(contexts)
                self._names.read()
                self._append(lane, rows)
        if self._words[events.H_OPERATIONS]:
            self._store.metadata[PRECISION] = OPERATIONS_ONLY
        lost = events.lost_rows(self._words)
        self._store.dropped += lost - self._lost
        self._lost = lost
        if ended:
            self._words = self._trace[:PAGE].cast("q")
            if self.last_words is None:
                self._cut_off()
            self.leave()

    def _cut_off(self) -> None:
        """Append the rows that the rank was writing when it was killed."""
        until = max(self._words[events.H_SEEN], self.last_own_ns)
        for index, lane in enumerate(self._lanes):
            end = lane.end
            rows = cut_off(self._trace, index, end, until, self._store.number)
            if len(rows):
                self._keep(int(end.context["lane"][0]), rows, end.context.copy())

    def leave(self) -> None:
        """Read it no more."""
        self.gone_at = time.monotonic()
        self.close()

    def close(self) -> None:
        """Give back what it takes to see its end."""
        process, self._process = self._process, None
        if process is not None:
            os.close(process)

    def now(self) -> Iterator[tuple[object, ...]]:
        """Return what its lanes are in; of a process that has gone, what they were in."""
        with contextlib.suppress(ValueError):  # cut off; the next look says so
            shift = self._attempts.shifts.get(self.source.rank, 0)
            for row in under_way(self._trace, self.source.rank, len(self._lanes), self._names):
                since = row[_SINCE]
                assert isinstance(since, int)
                yield (*row[:_SINCE], since + shift, *row[_SINCE + 1 :])

    def metered(self) -> tuple[Samples, float]:
        with contextlib.suppress(ValueError):
            self._meter = read_meters(self._trace[:])
        return self._meter

    @property
    def groups(self) -> dict[str, list[int]]:
        """The ranks of the groups that it has made."""
        return dict(filter(None, map(members_of, self._names.texts)))

    def _find_lanes(self) -> None:
        self._names.read()
        for index in range(len(self._lanes), min(self._words[events.H_LANES], LANES)):
            self._lanes.append(_Lane(self.source.folder, index))

    def _append(self, lane: _Lane, rows: Records) -> None:
        self._news = time.monotonic()
        kept = 0
        for number, block, used in resolve(rows, lane.known, self._names):
            kept += len(block)
            lane.end.take(block, used)
            self._keep(number, block, used)
        self._store.dropped += len(rows) - kept

    def _keep(self, number: int, rows: Records, contexts: Records) -> None:
        self.last_own_ns = max(self.last_own_ns, int(rows["end_ns"].max()))
        self._attempts.number(self.source.rank, self.generation, number, rows, contexts)
        self.first_ns = min(self.first_ns, int(rows["start_ns"].min()))
        self.last_ns = max(self.last_ns, int(rows["end_ns"].max()))
        self._store.append(self.source.rank, number, rows, contexts)

    def _has_ended(self) -> bool:
        """Return whether its process has ended. A process that was never seen may be in a
        container: it has ended if it said so, or if no more rows come.
        """
        if self._process is not None:
            return bool(select.select([self._process], [], [], 0)[0])
        quiet = time.monotonic() - self._news > QUIET_S
        return quiet or bool(self._words[events.H_END])


class _Lane:
    """A reader at a lane's place, and the lane's contexts."""

    def __init__(self, folder: Path, index: int) -> None:
        self.rows = Growing(folder / f"{index}.rows", ROW, ROWS)
        self.contexts = Growing(folder / f"{index}.contexts", CONTEXT, CONTEXTS)
        self.known: Records = np.zeros(CONTEXTS, CONTEXT)
        self.end = LaneEnd(NO_CONTEXT)

    def learn(self, contexts: Records) -> None:
        """Store new contexts: context i is known[i], in the order of their numbers."""
        if not len(contexts):
            return
        last = int(contexts["seq"].max())
        if last >= len(self.known):
            more: Records = np.zeros(max(2 * len(self.known), last + 1), CONTEXT)
            more[: len(self.known)] = self.known
            self.known = more
        self.known[contexts["seq"]] = contexts
        self.end.enter(contexts[-1:].copy())


def trace_of(source: Source) -> Pages | None:
    """Read a rank's header, names and lanes' pages; None until its recorder has begun."""
    with contextlib.suppress(FileNotFoundError):
        trace = Pages(source.folder / "trace", events.DATA_AT)
        return trace if trace.whole and any(trace[:8]) else None
    return None


def _hold(source: Source) -> int | None:
    """Return a descriptor of its process, readable once that ends; None: it has ended, or cannot be
    seen from here.
    """
    with contextlib.suppress(OSError):
        if is_living(source):
            return os.pidfd_open(source.pid)
    return None
