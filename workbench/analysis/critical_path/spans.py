"""Spans of work from rows of the event table, each in its place of its rank's program.

A chain is what one thread of a rank does one after the other:

    main               computing, and the messages of calls that the thread itself makes
    comm, lane         messages of calls that go on beside computing: buckets
    send or recv, peer, group     messages from point to point

A row of computing around a call that blocks it (a gather of FSDP) is cut into what it computed
before and after; one in which a call is enqueued (a bucket) is cut there. Waits, and rows that
hold others (a call, a push, a pull), are not work.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from workbench.analysis.critical_path.moments import COMPUTES
from workbench.store.iterations import COMPUTE

PAUSES = ("checkpoint", "restore", "rebuild")  # on the lane of computing
MESSAGES = ("send", "recv", "reduce", "copy")
BUCKET, FULL = "bucket ", "bucket full"  # a call's name; the mark of when it was enqueued
POINT_TO_POINT = "p2p"
UNTRAINED = "metrics"  # the group whose bytes are not training's
COLUMNS = (
    "rank lane seq generation kind start_ns end_ns collective phase group op peer step chunk slot "
    "nbytes iteration microbatch value name"
).split()
_TEXTS = ("lane", "kind", "collective", "phase", "group", "name")

Call = tuple[int, int, str, int]  # rank, generation, group, op
Chain = tuple[Any, ...]


@dataclass(slots=True)
class Span:
    """A row, or a piece of one. ``continues``: a piece that is not its row's first."""

    rank: int
    lane: str
    seq: int
    generation: int
    kind: str
    start: int
    end: int
    collective: str
    phase: str
    group: str
    op: int
    peer: int
    step: int
    chunk: int
    slot: int
    nbytes: int
    iteration: int
    microbatch: int
    value: float
    name: str
    chain: Chain = ()
    continues: bool = False

    @property
    def call(self) -> Call:
        return self.rank, self.generation, self.group, self.op

    @property
    def message(self) -> tuple[Any, ...]:
        """The key that a send shares with its receive, but for their ranks."""
        which = self.op, self.step, self.chunk, self.slot
        return self.generation, self.collective, self.group, *which

    @property
    def queued(self) -> float:
        """The share of computing in which the rank waited for a core."""
        lasts = self.end - self.start
        return min(1.0, self.value / lasts) if self.kind in COMPUTE and self.value > 0 else 0.0


@dataclass
class Spans:
    """Spans in the order of their starts, computing after messages of the same moment."""

    work: list[Span]
    bare: list[Span]  # calls of which no message was recorded
    enqueued: dict[Call, int] = field(default_factory=dict)  # when, of calls beside computing


def spans_of(events: pl.DataFrame | pl.LazyFrame) -> Spans:
    """Return the spans of these rows."""
    p = pl.col
    kinds = [*COMPUTES, *PAUSES, *MESSAGES, "collective"]
    table = (
        events.lazy()
        .select(p(name).cast(pl.String) if name in _TEXTS else p(name) for name in COLUMNS)
        .filter(p("kind").is_in(kinds), p("group") != UNTRAINED)
        .sort("start_ns", "seq")
        .collect()
    )
    rows = [Span(*row) for row in table.iter_rows()]
    return _Reader(rows).spans()


class _Reader:
    """Sorts rows by what they are, and finds which calls block."""

    def __init__(self, rows: Sequence[Span]) -> None:
        self.full = {
            (one.rank, one.iteration, f"{BUCKET}{int(one.value)}"): one.start
            for one in rows
            if one.name == FULL
        }
        computes = [one for one in rows if _computes(one)]
        self.computes: dict[int, list[Span]] = defaultdict(list)
        for one in computes:
            mine = self.computes[one.rank]
            if not mine or max(one.start + 1, one.end) > mine[-1].end:  # else inside of it
                mine.append(one)
        self.messages = [one for one in rows if one.kind in MESSAGES]
        self.calls = [one for one in rows if one.kind == "collective" and one.end > one.start]
        known = {one.call[1:] for one in self.messages}
        self.bare = [one for one in self.calls if one.call[1:] not in known]
        self.enqueued = {
            one.call: self.full.get((one.rank, one.iteration, one.name), one.start)
            for one in self.calls
            if self._is_beside(one)
        }

    def _is_beside(self, call: Span) -> bool:
        """Return whether a call goes on beside its rank's computing."""
        if call.name.startswith(BUCKET):
            return True
        mine = self.computes.get(call.rank, [])
        at = bisect_right(mine, call.start, key=lambda one: one.start)
        before = mine[at - 1] if at else None
        if before is not None and before.end > call.start:
            return before.end < call.end
        return at < len(mine) and mine[at].start < call.end

    def spans(self) -> Spans:
        work = [piece for rank in self.computes for piece in self._pieces(rank)]
        for one in self.messages:
            if one.collective == POINT_TO_POINT:
                one.chain = one.kind, one.rank, one.peer, one.group
            else:
                one.chain = self._chain(one)
            work.append(one)
        for one in self.bare:
            one.chain = self._chain(one)
            work.append(one)
        work.sort(key=lambda one: (one.start, one.kind in COMPUTES, one.seq))
        return Spans(work, self.bare, self.enqueued)

    def _chain(self, one: Span) -> Chain:
        beside = one.call in self.enqueued
        return ("comm", one.rank, one.lane) if beside else ("main", one.rank)

    def _pieces(self, rank: int) -> Iterator[Span]:
        """Yield the rank's computing, cut at calls inside of it."""
        cuts = [
            (at, at) if (at := self.enqueued.get(one.call)) is not None else (one.start, one.end)
            for one in self.calls
            if one.rank == rank
        ]
        cuts.sort()
        starts = [start for start, _ in cuts]
        for one in self.computes[rank]:
            inside = cuts[bisect_left(starts, one.start) : bisect_left(starts, one.end)]
            at, continues = one.start, False
            for begin, end in inside:
                if end <= one.end and begin >= at:
                    yield _piece(one, at, begin, continues)
                    at, continues = end, True
            yield _piece(one, at, one.end, continues)


def _piece(one: Span, start: int, end: int, continues: bool) -> Span:
    chain = ("main", one.rank)
    return replace(one, start=start, end=end, chain=chain, continues=continues)


def _computes(one: Span) -> bool:
    if one.kind == "metric":  # most are instants
        return one.end > one.start
    return one.kind in COMPUTES or (one.kind in PAUSES and one.lane == "compute")
