"""Follow a WORKBENCH_TRACE folder while ranks write it: what the collector is to a Run.

No row is read twice (store/growing_file.py), and a look at a lane that has nothing new is one short
read. Ranks that appear later are found, as is the end of a rank: its process is gone, and what it
wrote is read. Only files are read: nothing reaches the ranks.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from workbench.common import threads
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
from workbench.recording.meter import Samples
from workbench.recording.recorder import read_meters
from workbench.shared_memory.segments import need_ordered_stores
from workbench.store.collector import under_way
from workbench.store.event_store import Store
from workbench.store.growing_file import Growing, Pages
from workbench.store.recoveries import KEY
from workbench.store.restarts import Ended, told
from workbench.store.table import NAMES_OF_CONTEXT, NameTable, Records, resolve
from workbench.store.trace_folder import OPERATIONS_ONLY, PRECISION
from workbench.store.trace_sources import (
    Attempts,
    Origin,
    Source,
    find_sources,
    is_living,
    origin,
    origin_of,
)

PERIOD_S = 0.04
LOOK_S = 0.2  # between two looks for ranks that are new
STRAGGLER_S = 2.0  # so long a rank is awaited when all others have gone
QUIET_S = 5.0  # so long nothing comes of a rank whose process cannot be seen: it has ended


class Follower:
    """Appends what the ranks of the job that writes to ``folder`` record to ``store``, about 25
    times a second, until all of them have gone (``over``).

    ``ranks`` are those found so far; ``problems`` says by folder what is not read, and why.
    """

    def __init__(self, store: Store, folder: Path) -> None:
        need_ordered_stores("following a job")
        self.store, self.folder = store, folder
        self.ranks: dict[int, Rank] = {}
        self.problems: dict[str, str] = {}
        self._former: set[str] = set()  # folders of attempts that are over
        self._ends: dict[int, dict[int, Ended]] = {}  # of their processes, by generation and rank
        self._seen: set[int] = set()  # attempts
        self._next = False  # is there an attempt after those that are read?
        self._attempts = Attempts()
        self.cpu_ns = 0
        self.over = False
        self._looked = -LOOK_S
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threads.start(self._run, "workbench follower", stop=self._ended.set)

    def stop(self) -> None:
        """Read no more. The job goes on."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        for rank in self.ranks.values():
            rank.close()

    @property
    def size(self) -> int:
        """The number of ranks of the job, as far as it is known."""
        return max([0, *(max(rank.of, number + 1) for number, rank in self.ranks.items())])

    def poll(self) -> int:
        """Read what is new, one thread at a time. Returns how many rows that were."""
        cpu, before = time.thread_time_ns(), len(self.store)
        if time.monotonic() - self._looked >= LOOK_S:
            self._looked = time.monotonic()
            self._find()
        for rank in self.ranks.values():
            try:
                rank.read()
            except Exception as error:  # whatever is wrong with it: the others are read on
                self.problems[rank.source.folder.name] = str(error)
                rank.unread = True
                rank.leave()
        self.store.set_now([status for rank in self.ranks.values() for status in rank.now()])
        self.over = self._all_gone()  # last: whoever sees it finds all rows in the store
        self.cpu_ns += time.thread_time_ns() - cpu
        return len(self.store) - before

    def _run(self) -> None:
        while not self.over and not self._ended.wait(PERIOD_S):
            self.poll()

    def _all_gone(self) -> bool:
        """Return whether every rank has come and gone; or those that came have gone, no other
        comes, and no agent restarts them.
        """
        last = max((rank.gone_at for rank in self.ranks.values()), default=math.inf)
        missing = self.size > len(self.ranks)
        if self._next:
            return False
        if time.monotonic() - last < (STRAGGLER_S if missing else 0):
            return False
        return not any(rank.may_come_again for rank in self.ranks.values())

    def _find(self) -> None:
        sources: list[Source] = []
        self._next = False
        with contextlib.suppress(OSError):  # the folder is not there yet, or not any more
            sources = find_sources(self.folder)
            sources.sort(key=lambda source: (-is_living(source), -source.folder.stat().st_mtime))
        for source in sources:
            known, name = self.ranks.get(source.rank), source.folder.name
            if name in self.problems or name in self._former:
                continue
            if known is None:
                self._meet_first(source, sources)
            elif known.source != source:
                self._meet_again(source, known, sources)
        self._tell_restarts()

    def _meet_first(self, source: Source, sources: Sequence[Source]) -> None:
        """Take the first process of a rank: that of the oldest attempt of its job."""
        new = origin_of(source)
        others = [one for one in sources if one.rank == source.rank and one != source]
        origins = [(one, origin_of(one)) for one in others]
        if not new.job and is_living(source) and any(one.job for _, one in origins):
            return  # it may be of the same job; it has not joined its group yet
        of_job = [(source, new)] + [pair for pair in origins if new.job and pair[1].job == new.job]
        first, of = min(of_job, key=lambda pair: pair[1].attempt)
        self._next = self._next or first != source
        self._meet(first, self._generation(of))

    def _generation(self, of: Origin) -> int:
        """Return the number of an attempt among those that are known."""
        self._seen |= {rank.origin.attempt for rank in self.ranks.values() if rank.origin.job}
        return sum(attempt < of.attempt for attempt in self._seen)

    def _tell_restarts(self) -> None:
        """Note the attempts in the store's metadata, as recoveries are."""
        members: dict[int, set[int]] = {}
        ends = {generation: dict(each) for generation, each in self._ends.items()}
        for number, rank in self.ranks.items():
            members.setdefault(rank.generation, set()).add(number)
            if rank.gone:
                ends.setdefault(rank.generation, {})[number] = rank.ended
        text = told({key: sorted(each) for key, each in members.items()}, ends)
        if text is not None:
            all_told = json.loads(self.store.metadata.get(KEY, "[]")) + json.loads(text)
            newest = {one["generation"]: one for one in all_told}
            self.store.metadata[KEY] = json.dumps([newest[key] for key in sorted(newest)])

    def _meet_again(self, source: Source, known: Rank, sources: Sequence[Source]) -> None:
        """Take another process of a rank: its next attempt, a former one, or another job's."""
        new, old = origin_of(source), known.origin
        if not new.job and is_living(source):
            return  # it has not joined its group yet
        if new.job and new.job == old.job:
            if new.attempt < old.attempt:
                self._former.add(source.folder.name)
                return
            others = [origin_of(one) for one in sources if one.rank == source.rank]
            if any(o.job == old.job and old.attempt < o.attempt < new.attempt for o in others):
                return
            self._next = True
            if known.gone:  # all of it is read
                self._former.add(known.source.folder.name)
                self._ends.setdefault(known.generation, {})[source.rank] = known.ended
                self._meet(source, self._generation(new))
            return
        self.problems[source.folder.name] = (
            f"another process of rank {source.rank} writes here too, and is not shown: "
            "give every job a folder of its own"
        )

    def _meet(self, source: Source, generation: int) -> None:
        """Take a new rank, once it has begun to write."""
        try:
            trace = _trace(source)
        except (OSError, ValueError) as error:
            self.problems[source.folder.name] = str(error)
            return
        if trace is None:
            return
        if trace[:8].cast("q")[0] == events.MAGIC:
            self.ranks[source.rank] = Rank(self.store, source, trace, generation, self._attempts)
        else:
            words = "another version of the workbench wrote it, or no rank"
            self.problems[source.folder.name] = words


class Rank:
    """The reader of one rank's files.

    ``of``: how many ranks it says there are. ``gone_at``: when (time.monotonic) all was read that
    it wrote, its process having ended, or what of it can be read; infinity until then. ``unread``:
    the rest cannot be read, so that nobody knows how it ended. Its rows are between ``first_ns``
    and ``last_ns``.
    """

    def __init__(
        self, store: Store, source: Source, trace: Pages, generation: int, attempts: Attempts
    ) -> None:
        self.generation, self._attempts = generation, attempts
        self.source, self.gone_at, self.unread = source, math.inf, False
        self.first_ns, self.last_ns = math.inf, -math.inf
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
        """How it ended."""
        return Ended(self.last_words, str(self.raised.get("kind", "")), self.last_ns)

    @property
    def origin(self) -> Origin:
        with contextlib.suppress(ValueError):
            self._origin = origin(self._trace[: NAMES_AT + NAMES_BYTES])
        return self._origin

    @property
    def may_come_again(self) -> bool:
        """Return whether it has failed and torchrun is there to restart it."""
        left, agent = self._words[events.H_LEFT], self._words[events.H_AGENT]
        here = left > 0 and self.origin.host == os.uname().nodename
        return here and self.last_words != "" and Path(f"/proc/{agent}").exists()

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
            self.leave()

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
            yield from under_way(self._trace, self.source.rank, len(self._lanes), self._names)

    def metered(self) -> tuple[Samples, float]:
        with contextlib.suppress(ValueError):
            self._meter = read_meters(self._trace[:])
        return self._meter

    def _find_lanes(self) -> None:
        self._names.read()
        for index in range(len(self._lanes), min(self._words[events.H_LANES], LANES)):
            self._lanes.append(_Lane(self.source.folder, index))

    def _append(self, lane: _Lane, rows: Records) -> None:
        self._news = time.monotonic()
        kept = 0
        for number, own, used in resolve(rows, lane.known, self._names):
            kept += len(own)
            self.first_ns = min(self.first_ns, int(own["start_ns"].min()))
            self.last_ns = max(self.last_ns, int(own["end_ns"].max()))
            self._attempts.number(self.source.rank, self.generation, number, own, used)
            self._store.append(self.source.rank, number, own, used)
        self._store.dropped += len(rows) - kept

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


def _trace(source: Source) -> Pages | None:
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
