"""Follow a WORKBENCH_TRACE folder while ranks write it: what the collector is to a Run.

No row is read twice (growing.py), and a look at a lane that has nothing new is one short read.
Ranks that appear later are found, as is the end of a rank: its process is gone, and what it wrote
is read. Only files are read: nothing reaches the ranks.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from workbench import events
from workbench.collector import under_way
from workbench.events import CONTEXT, CONTEXTS, LANES, PAGE, ROW, ROWS, metered
from workbench.files import Source, find_sources
from workbench.growing import Growing, Pages
from workbench.meter import Samples
from workbench.store import Store
from workbench.table import NameTable, Records, resolve

PERIOD_S = 0.04
LOOK_S = 0.2  # between two looks for ranks that are new
STRAGGLER_S = 2.0  # so long a rank is awaited when all others have gone
QUIET_S = 5.0  # so long nothing comes of a rank whose process cannot be seen: it has ended
CLOCKS_S = 1.0  # by which the kernel's two clocks may differ


class Follower:
    """Appends what the ranks of the job that writes to ``folder`` record to ``store``, about 25
    times a second, until all of them have gone (``over``).

    ``ranks`` are those found so far; ``problems`` says by folder what is not read, and why.
    """

    def __init__(self, store: Store, folder: Path) -> None:
        self.store, self.folder = store, folder
        self.ranks: dict[int, Rank] = {}
        self.problems: dict[str, str] = {}
        self.cpu_ns = 0
        self.over = False
        self._looked = -LOOK_S
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="workbench follower", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Read no more. The job goes on."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        for rank in self.ranks.values():
            rank.close()

    @property
    def size(self) -> int:
        """How many ranks the job has, as far as it is known."""
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
        """Every rank has come and gone; or those that came have gone, and no other comes."""
        last = max((rank.gone_at for rank in self.ranks.values()), default=math.inf)
        missing = self.size > len(self.ranks)
        return time.monotonic() - last >= (STRAGGLER_S if missing else 0)

    def _find(self) -> None:
        sources: list[Source] = []
        with contextlib.suppress(OSError):  # the folder is not there yet, or not any more
            sources = find_sources(self.folder)
            sources.sort(key=lambda source: (-is_living(source), -source.folder.stat().st_mtime))
        for source in sources:
            known, name = self.ranks.get(source.rank), source.folder.name
            if name in self.problems or (known is not None and known.source == source):
                continue
            if known is not None:
                self.problems[name] = (
                    f"another process of rank {source.rank} writes here too, and is not shown: "
                    "give every job a folder of its own"
                )
            else:
                self._meet(source)

    def _meet(self, source: Source) -> None:
        """A rank that is new, once it has begun to write."""
        try:
            trace = _trace(source)
        except (OSError, ValueError) as error:
            self.problems[source.folder.name] = str(error)
            return
        if trace is None:
            return
        if trace[:8].cast("q")[0] == events.MAGIC:
            self.ranks[source.rank] = Rank(self.store, source, trace)
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

    def __init__(self, store: Store, source: Source, trace: Pages) -> None:
        self.source, self.gone_at, self.unread = source, math.inf, False
        self.first_ns, self.last_ns = math.inf, -math.inf
        self._store, self._trace = store, trace
        self._words = trace[:PAGE].cast("q")  # as they were at the last look
        self._meter = Samples(), 0.0
        self._names = NameTable(store.number, trace)
        self._lanes: list[_Lane] = []
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
        """What it raised, "" if it ended without an error; None: it has left no word."""
        said = self._words[events.H_END]
        return self._names.text(said - 1) if said else None

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
                    self._names.translate(contexts, "collective", "algorithm", "group")
                    lane.learn(contexts)
                self._names.read()
                self._append(lane, rows)
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
        """What its lanes are in; of a process that has gone, what they were in."""
        lanes = [(lane.index, lane.name) for lane in self._lanes]
        with contextlib.suppress(ValueError):  # cut off; the next look says so
            yield from under_way(self._trace, self.source.rank, lanes, self._names)

    def metered(self) -> tuple[Samples, float]:
        with contextlib.suppress(ValueError):
            self._meter = metered(self._trace[:])
        return self._meter

    def _find_lanes(self) -> None:
        self._names.read()
        for index in range(len(self._lanes), min(self._words[events.H_LANES], LANES)):
            at = events.LANES_AT + index * PAGE
            name = self._names.text(self._trace[at : at + 8].cast("q")[0])
            self._lanes.append(_Lane(self.source.folder, index, name, self._store.number(name)))

    def _append(self, lane: _Lane, rows: Records) -> None:
        self._news = time.monotonic()
        kept, used = resolve(rows, lane.known, self._names)
        self._store.dropped += len(rows) - len(kept)
        if len(kept):
            self.first_ns = min(self.first_ns, int(kept["start_ns"].min()))
            self.last_ns = max(self.last_ns, int(kept["end_ns"].max()))
            self._store.append(self.source.rank, lane.number, kept, used)

    def _has_ended(self) -> bool:
        """Has its process? One that was never seen may be in a container of its own: it has if it
        said so, or if nothing comes any more.
        """
        if self._process is not None:
            return bool(select.select([self._process], [], [], 0)[0])
        quiet = time.monotonic() - self._news > QUIET_S
        return quiet or bool(self._words[events.H_END])


class _Lane:
    """What is read of one lane, and its contexts."""

    def __init__(self, folder: Path, index: int, name: str, number: int) -> None:
        self.index, self.name, self.number = index, name, number
        self.rows = Growing(folder / f"{index}.rows", ROW, ROWS)
        self.contexts = Growing(folder / f"{index}.contexts", CONTEXT, CONTEXTS)
        self.known: Records = np.zeros(CONTEXTS, CONTEXT)

    def learn(self, contexts: Records) -> None:
        """The context with id i is known[i]. They are numbered as they follow each other."""
        contexts = contexts[contexts["id"] == contexts["seq"]]
        if not len(contexts):
            return
        last = int(contexts["id"].max())
        if last >= len(self.known):
            more: Records = np.zeros(max(2 * len(self.known), last + 1), CONTEXT)
            more[: len(self.known)] = self.known
            self.known = more
        self.known[contexts["id"]] = contexts


def _trace(source: Source) -> Pages | None:
    """A rank's header, names and lanes' pages; None until its recorder has begun."""
    with contextlib.suppress(FileNotFoundError):
        trace = Pages(source.folder / "trace", events.DATA_AT)
        return trace if trace.whole and any(trace[:8]) else None
    return None


def _hold(source: Source) -> int | None:
    """A descriptor of its process, which becomes readable when that ends; None: it has ended, or
    cannot be seen from here.
    """
    with contextlib.suppress(OSError):
        if is_living(source):
            return os.pidfd_open(source.pid)
    return None


def is_living(source: Source) -> bool:
    """Is the process there that made this folder? One that began later has got its number."""
    try:
        stat = Path(f"/proc/{source.pid}/stat").read_text().rpartition(")")[2].split()
        made = source.folder.stat().st_mtime
    except OSError:
        return False
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(stat[19]) / os.sysconf("SC_CLK_TCK")
    return stat[0] not in "ZX" and time.time() - age < made + CLOCKS_S
