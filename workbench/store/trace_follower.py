"""Follow a WORKBENCH_TRACE folder while ranks write it: what the collector is to a Run.

No row is read twice (store/growing_file.py), and a look at a lane that has nothing new is one short
read (store/trace_rank.py). Ranks that appear later are found, as is the end of a rank: its process
is gone, and what it wrote is read. Only files are read: nothing reaches the ranks.
"""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from workbench.common import threads
from workbench.recording import events
from workbench.shared_memory.ordering import need_order
from workbench.store.event_store import Store
from workbench.store.recoveries import KEY
from workbench.store.restarts import Ended, as_metadata
from workbench.store.trace_rank import Rank, trace_of
from workbench.store.trace_sources import (
    Attempts,
    Origin,
    Source,
    find_sources,
    is_living,
    linked,
    origin_of,
)

PERIOD_S = 0.04
LOOK_S = 0.2  # between two looks for ranks that are new
STRAGGLER_S = 2.0  # so long a rank is awaited when all others have gone


class Follower:
    """Appends what the ranks of the job that writes to ``folder`` record to ``store``, about 25
    times per second, until all of them have gone (``over``).

    ``ranks`` are those found so far, each by the newest of its processes; ``problems`` says by
    folder what is not read, and why.
    """

    def __init__(
        self, store: Store, folder: Path, at_end: Callable[[], None] = lambda: None
    ) -> None:
        """Read nothing yet. ``at_end`` is called once, before it says that the job is over."""
        self._at_end = at_end
        need_order("following a job")
        self.store, self.folder = store, folder
        self.ranks: dict[int, Rank] = {}
        self.problems: dict[str, str] = {}
        self._former: set[str] = set()  # folders of attempts that are over
        self._ends: dict[int, dict[int, Ended]] = {}  # of their processes, by generation and rank
        self._members: dict[int, set[int]] = {}  # ranks, by generation
        self._left: dict[int, dict[str, int]] = {}  # restarts that agents have left, likewise
        self._attempt_numbers: set[int] = set()  # attempts
        self._known: dict[str, Origin] = {}  # of ranks that have joined their group, by folder
        self._origins: dict[str, Origin] = {}  # the same, in one count for each job; of all folders
        self._strangers: dict[str, float] = {}  # folders of another job, and when they were seen
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
        """The most ranks that the job has had, as far as it is known."""
        return max([0, *(max(rank.of, number + 1) for number, rank in self.ranks.items())])

    @property
    def newest(self) -> dict[int, Rank]:
        """The ranks of the newest attempt; torchrun may have gone on with fewer than before."""
        last = max((rank.generation for rank in self.ranks.values()), default=0)
        size = max((one.of for one in self.ranks.values() if one.generation == last), default=0)
        return {
            number: rank
            for number, rank in self.ranks.items()
            if rank.generation == last or number < size or not rank.gone
        }

    @property
    def expected(self) -> int:
        """The number of ranks of the newest attempt, as far as it is known."""
        return max([0, *(max(rank.of, number + 1) for number, rank in self.newest.items())])

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
        self._note_ranks()
        if self._all_gone() and not self.over:
            self._at_end()
            self.over = True  # last: a reader who sees it finds all rows in the store
        self.cpu_ns += time.thread_time_ns() - cpu
        return len(self.store) - before

    def _run(self) -> None:
        while not self.over and not self._ended.wait(PERIOD_S):
            self.poll()

    def _note_ranks(self) -> None:
        """Note in the store's metadata how many ranks there are, and those of groups."""
        groups = {
            label: ranks for one in self.newest.values() for label, ranks in one.groups.items()
        }
        self.store.metadata["groups"] = json.dumps(groups)
        if self.size:
            self.store.metadata["ranks"] = str(self.size)

    def _all_gone(self) -> bool:
        """Return whether every rank has come and gone; or those that came have gone, no other
        comes, and no agent restarts them.
        """
        newest = self.newest
        last = max((rank.gone_at for rank in newest.values()), default=math.inf)
        missing = self.expected > len(newest)
        if self._next:
            return False
        if time.monotonic() - last < (STRAGGLER_S if missing else 0):
            return False
        return not any(rank.may_come_again for rank in newest.values())

    def _find(self) -> None:
        sources: list[Source] = []
        self._next = False
        with contextlib.suppress(OSError):  # the folder is not there yet, or not any more
            sources = find_sources(self.folder)
            sources.sort(key=lambda source: (-is_living(source), -source.folder.stat().st_mtime))
        self._read_origins(sources)
        for source in sources:
            known, name = self.ranks.get(source.rank), source.folder.name
            if name in self.problems or name in self._former:
                continue
            if known is None:
                self._meet_first(source, sources)
            elif known.source != source:
                self._meet_again(source, known, sources)
        self._tell_restarts()

    def _read_origins(self, sources: Sequence[Source]) -> None:
        """Learn which attempt of which job wrote each folder."""
        for source in sources:
            if source.folder.name not in self._known and (one := origin_of(source)).job:
                self._known[source.folder.name] = one
        each = [self._known.get(source.folder.name, Origin()) for source in sources]
        names = (source.folder.name for source in sources)
        self._origins = dict(zip(names, linked(each), strict=True))

    def _origin(self, source: Source) -> Origin:
        return self._origins.get(source.folder.name, Origin())

    def _meet_first(self, source: Source, sources: Sequence[Source]) -> None:
        """Take the first process of a rank: that of the oldest attempt of its job."""
        new = self._origin(source)
        others = [
            one
            for one in sources
            if one.rank == source.rank and one != source and one.folder.name not in self._former
        ]
        origins = [(one, self._origin(one)) for one in others]
        if not new.job and is_living(source) and any(one.job for _, one in origins):
            return  # it may be of the same job; it has not joined its group yet
        if self._may_be_of_another_job(source):
            return
        of_job = [(source, new)] + [pair for pair in origins if new.job and pair[1].job == new.job]
        first, of = min(of_job, key=lambda pair: pair[1].attempt)
        self._next = self._next or first != source
        self._meet(first, self._generation(of))

    def _may_be_of_another_job(self, source: Source) -> bool:
        """Return whether a folder is of another job than the ranks that are read. Whether it is of
        theirs may be seen only once another rank of its attempt has joined it: for a while it is
        left for the next look, and then named among the problems.
        """
        name, new = source.folder.name, self._origin(source)
        ours = {one.job for rank in self.ranks.values() if (one := self._origin(rank.source)).job}
        if not new.job or not ours or new.job in ours:
            self._strangers.pop(name, None)
            return False
        self._next = True
        if time.monotonic() - self._strangers.setdefault(name, time.monotonic()) > STRAGGLER_S:
            self._next = False
            self._refuse(source)
        return True

    def _generation(self, of: Origin) -> int:
        """Return the number of an attempt among those that are known."""
        known = (self._origin(rank.source) for rank in self.ranks.values())
        self._attempt_numbers |= {one.attempt for one in known if one.job}
        return sum(attempt < of.attempt for attempt in self._attempt_numbers)

    def _tell_restarts(self) -> None:
        """Note the attempts in the store's metadata, as recoveries are."""
        ends = {generation: dict(each) for generation, each in self._ends.items()}
        for number, rank in self.ranks.items():
            self._members.setdefault(rank.generation, set()).add(number)
            if (of := self._origin(rank.source)).job:
                self._left.setdefault(rank.generation, {})[of.agent] = of.left
            if rank.gone:
                ends.setdefault(rank.generation, {})[number] = rank.ended
        members = {key: sorted(each) for key, each in self._members.items()}
        text = as_metadata(members, ends, self._left)
        if text is not None:
            all_told = json.loads(self.store.metadata.get(KEY, "[]")) + json.loads(text)
            newest = {one["generation"]: one for one in all_told}
            self.store.metadata[KEY] = json.dumps([newest[key] for key in sorted(newest)])

    def _meet_again(self, source: Source, known: Rank, sources: Sequence[Source]) -> None:
        """Take another process of a rank: its next attempt, a former one, or another job's."""
        new, old = self._origin(source), self._origin(known.source)
        if not new.job and is_living(source):
            return  # it has not joined its group yet
        if new.job and new.job == old.job:
            if new.attempt < old.attempt:
                self._former.add(source.folder.name)
                return
            others = [self._origin(one) for one in sources if one.rank == source.rank]
            if any(o.job == old.job and old.attempt < o.attempt < new.attempt for o in others):
                return
            self._next = True
            if known.gone:  # all of it is read
                self._former.add(known.source.folder.name)
                self._ends.setdefault(known.generation, {})[source.rank] = known.ended
                self._meet(source, self._generation(new))
            return
        if not self._may_be_of_another_job(source):
            self._refuse(source)

    def _refuse(self, source: Source) -> None:
        self.problems[source.folder.name] = (
            f"another process of rank {source.rank} writes here too, and is not shown: "
            "give every job a folder of its own"
        )

    def _meet(self, source: Source, generation: int) -> None:
        """Take a new rank, once it has begun to write."""
        try:
            trace = trace_of(source)
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
