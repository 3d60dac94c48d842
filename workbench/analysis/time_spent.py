"""The time of the ranks that train, by what it was spent on: computing, waiting, links, cores.

At every moment a rank

    computes   a span of computing lasts; the part of it that it spent waiting for a core counts so
    loads      it reads its samples, or waits until they can be read ("data")
    moves      it sends or receives, or what it waits for is on its way
    waits      for a peer that has not sent yet. Then what counts is what that peer does at this
               moment, and which peer it waits for in its turn, until one computes or a
               message is on its way: ranks behind a slow link are not taken for ranks
               behind a straggler

A rank that is frozen does nothing, whatever it was in; a rank that waits for it waits for a peer.
A rank that waits for a message may have been woken and wait for a core: what it waited for cores
beside its computing is taken from its waits and its messages' ways. Computing hides what happens
beside it. What is left ("other") lies between the spans: the
interpreter's own work, and ranks that wait in a circle.

Of an operation without messages (``--observe``, a profiler's trace) its span counts: until the
rank came that it needs it is a wait, then a move, also within a backward pass: no row tells
whether that computes meanwhile or waits. In a job whose computing was not recorded (it is
"other", too) all ranks count that take part in calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from workbench.analysis.arrivals import bare, waits_by_arrival
from workbench.recording.events import FAILED
from workbench.store.holds import holds_of
from workbench.store.iterations import COMPUTE
from workbench.training.pipelines.bubble import frozen_spans

PARTS = ("compute", "data", "wait", "link", "core", "other")
MOST_ROWS = 60_000  # that are looked at: of a long run those of its middle
TRAINS = ("forward", "backward", "weight_grad")
_BUSY = (*COMPUTE, "apply")
_ENGINE = ("send", "recv", "wait")
_MESSAGE = ["generation", "group", "op", "step", "chunk", "slot"]
_NONE, _COMPUTES, _MOVES = -1, -2, -3  # states of a rank; 0 and more: it waits for that one
QUEUED = "runqueue"  # the metric of how long a rank has waited for a core in an iteration, ns
_FULL = "slots full"  # a wait for the receiver, which has not taken what was sent before

States = npt.NDArray[np.int32]


def rows_of(events: pl.LazyFrame) -> pl.DataFrame:
    """Return the spans of training, without its first iteration, in which connections are made; and
    when ranks were frozen.
    """
    p = pl.col
    kinds = [*_BUSY, *_ENGINE, "collective"]
    row_filter = (p("iteration") >= 0) & p("kind").cast(pl.String).is_in(kinds)
    texts = p("kind", "name", "group", "collective", "phase", "algorithm").cast(pl.String)
    columns = ["rank", "peer", "iteration", "start_ns", "end_ns", "nbytes", "value"]
    columns += ["phase", "algorithm"]
    rows = (
        events.filter(row_filter & ((p("end_ns") > p("start_ns")) | (p("name") == QUEUED)))
        .with_columns(texts)
        .select(*columns, "kind", "name", "collective", *_MESSAGE)
        .collect()
    )
    numbers = rows["iteration"].unique().sort()
    if len(numbers) > 1:
        numbers = numbers[1:]
        rows = rows.filter(p("iteration") >= numbers[0])
    if rows.height > MOST_ROWS:
        keep = max(1, len(numbers) * MOST_ROWS // rows.height)
        middle = numbers[(len(numbers) - keep) // 2 :][:keep]
        rows = rows.filter(p("iteration").is_between(middle[0], middle[-1]))
    faults = events.filter(p("kind").cast(pl.String) == "fault").with_columns(texts)
    return pl.concat([rows, faults.select(rows.columns).collect()])


class TimeSpent:
    """The time of ``trainers``, all together, in ns, without what a reader held them, which the
    run's ``metadata`` tells. ``parts``: by PARTS; ``waits``: what is waited
    for in the end, by rank; ``links``: by (from, to).
    """

    def __init__(self, rows: pl.DataFrame, metadata: Mapping[str, str] | None = None) -> None:
        queued = rows.filter(pl.col("name") == QUEUED).group_by("rank").agg(pl.col("value").sum())
        self.queued: dict[int, float] = {int(rank): float(ns) for rank, ns in queued.iter_rows()}
        self.frozen = frozen_spans(rows)
        self.rows = rows = rows.filter(
            pl.col("end_ns") > pl.col("start_ns"), pl.col("kind") != "fault"
        )
        trains = rows.filter(pl.col("kind").is_in(TRAINS))
        self.computes = trains.height > 0  # else it is a job of which calls alone are known
        self.unfinished = rows.filter(pl.col("phase") == FAILED).height > 0
        if not self.computes:
            trains = rows.filter(pl.col("kind") == "collective")
        self.trainers: list[int] = sorted(trains["rank"].unique().to_list())
        self.parts: dict[str, float] = dict.fromkeys(PARTS, 0.0)
        self.waits: Counter[int] = Counter()
        self.links: Counter[tuple[int, int]] = Counter()
        self.spans: dict[int, tuple[int, int]] = {}  # of each trainer: its first and last moment
        if self.trainers:
            last = int(rows["end_ns"].max())  # type: ignore[arg-type]
            self._sweep(holds_of(metadata or {}, last))

    def _sweep(self, holds: Sequence[tuple[int, int]]) -> None:
        rows = self.rows
        self.ranks = 1 + max(int(rows["rank"].max()), int(rows["peer"].max()))  # type: ignore[arg-type]
        last = int(rows["end_ns"].max())  # type: ignore[arg-type]
        frozen = [
            (rank, start, min(end, last))
            for rank, spans in self.frozen.items()
            for start, end in spans
            if rank < self.ranks and start < last
        ]
        known = [*holds, *((start, end) for _, start, end in frozen)]
        ends = pl.Series(values=[ns for one in known for ns in one], dtype=rows["start_ns"].dtype)
        both = pl.concat([rows["start_ns"], rows["end_ns"], ends])
        self.times = both.unique().sort().to_numpy()
        shape = self.ranks, len(self.times) - 1
        self.state = np.full(shape, _NONE, np.int32)
        self.core = np.zeros(shape, np.float32)  # share of a moment in which a core is waited for
        self.link = np.full(shape, -1, np.int32)
        self.loads = np.zeros(shape, np.bool_)
        self._fill_waits()
        self._fill(rows.filter(pl.col("kind").is_in(["send", "recv"])), _MOVES)
        self._fill(rows.filter(pl.col("kind").is_in(_BUSY)), _COMPUTES)
        self._fill_operations()
        for rank, start, end in frozen:
            self._fill_frozen(rank, slice(*np.searchsorted(self.times, [start, end])))
        state, last_of = self._resolved()
        lasts = np.diff(self.times).astype(np.float64)
        for hold in holds:
            lasts[slice(*np.searchsorted(self.times, hold))] = 0.0
        for rank in self.trainers:
            own = rows.filter(pl.col("rank") == rank)
            begin, end = int(own["start_ns"].min()), int(own["end_ns"].max())  # type: ignore[arg-type]
            self.spans[rank] = begin, end
            inside = slice(*np.searchsorted(self.times, [begin, end]))
            self._count(rank, inside, state, last_of, lasts)

    def _fill_waits(self) -> None:
        """Put in what ranks wait for: the peer until it has sent, then what is on its way."""
        p = pl.col
        waits = self.rows.filter(p("kind") == "wait")
        sent = (
            self.rows.filter(p("kind") == "send")
            .select(p("peer").alias("rank"), p("rank").alias("peer"), *_MESSAGE, left="start_ns")
            .unique(["rank", "peer", *_MESSAGE])
        )
        wait_rows = waits.join(sent, on=["rank", "peer", *_MESSAGE], how="left").with_columns(
            left=pl.when(p("name") == _FULL).then(None).otherwise(p("left"))
        )
        for rank, peer, start, end, left in wait_rows.select(
            "rank", "peer", "start_ns", "end_ns", p("left").fill_null(p("end_ns"))
        ).iter_rows():
            boundary = min(end, max(start, left))
            a, b, c = np.searchsorted(self.times, [start, boundary, end])
            if peer >= 0:
                self.state[rank, a:b] = peer
            self.state[rank, b:c] = _MOVES
            self.link[rank, b:c] = peer * self.ranks + rank

    def _fill_operations(self) -> None:
        """Put in operations of which no message is known, by when their ranks came."""
        p = pl.col
        spans = waits_by_arrival(bare(self.rows)).select(
            "rank", p("peer").fill_null(-1), "start_ns", "end_ns", p("waited_ms").fill_null(0)
        )
        for rank, peer, start, end, waited in spans.collect().iter_rows():
            ends = [start, start + round(waited * 1e6), end]
            a, b, c = np.searchsorted(self.times, ends)
            self.state[rank, a:b] = peer
            self.state[rank, b:c] = _MOVES

    def _fill_frozen(self, rank: int, moments: slice) -> None:
        """Put in that a rank stands, and that what it sends goes no further."""
        self.state[rank, moments], self.core[rank, moments] = _NONE, 0.0
        self.link[rank, moments] = -1
        state, link = self.state[:, moments], self.link[:, moments]
        stands = (state == _MOVES) & (link >= 0) & (link // self.ranks == rank)
        state[stands], link[stands] = rank, -1

    def _fill(self, spans: pl.DataFrame, state: int) -> None:
        starts = np.searchsorted(self.times, spans["start_ns"].to_numpy())
        ends = np.searchsorted(self.times, spans["end_ns"].to_numpy())
        lasts = (spans["end_ns"] - spans["start_ns"]).to_numpy()
        ranks, peers = spans["rank"].to_list(), spans["peer"].to_list()
        values, kinds = spans["value"].fill_nan(0).to_list(), spans["kind"].to_list()
        for i, rank in enumerate(ranks):
            a, b = starts[i], ends[i]
            self.state[rank, a:b] = state
            if state == _MOVES and peers[i] >= 0:
                way = (rank, peers[i]) if kinds[i] == "send" else (peers[i], rank)
                self.link[rank, a:b] = way[0] * self.ranks + way[1]
            self.loads[rank, a:b] = kinds[i] == "load"
            if kinds[i] in TRAINS or kinds[i] in ("optimizer", "load"):
                self.core[rank, a:b] = min(1.0, max(0.0, (values[i] or 0.0) / lasts[i]))

    def _resolved(self) -> tuple[States, States]:
        """Follow waits from peer to peer: return the state in the end, and whose it is."""
        state = self.state.copy()
        last = np.repeat(np.arange(self.ranks, dtype=np.int32)[:, None], state.shape[1], axis=1)
        for _ in range(self.ranks):
            rank, moment = np.nonzero(state >= 0)
            if not len(rank):
                break
            peer = state[rank, moment]
            last[rank, moment] = peer
            state[rank, moment] = self.state[peer, moment]
        state[state >= 0] = _NONE  # a circle: no rank computes, and no message is on its way
        return state, last

    def _count(
        self, rank: int, inside: slice, state: States, last: States, lasts: npt.NDArray[np.float64]
    ) -> None:
        """Add up the time of one trainer."""
        own, end, peers = self.state[rank, inside], state[rank, inside], last[rank, inside]
        time = lasts[inside]
        core = self.core[peers, np.arange(inside.start, inside.stop)] * time
        link = self.link[peers, np.arange(inside.start, inside.stop)]
        computes, waits, moves = own == _COMPUTES, own >= 0, (end == _MOVES) & (own != _COMPUTES)
        for_peer, idle = waits & (end == _COMPUTES), waits & (end == _NONE)
        computed = float(core[computes].sum())
        waited = np.where(for_peer, time - core, np.where(idle, time, 0.0))
        moved = np.where(moves, time, 0.0)
        both = float(waited.sum() + moved.sum())
        queued = min(both, max(0.0, self.queued.get(rank, 0.0) - computed))  # beside computing
        left = 1 - queued / both if both else 0.0
        loads = computes & self.loads[rank, inside]
        self.parts["compute"] += float((time - core)[computes & ~loads].sum())
        self.parts["data"] += float((time - core)[loads].sum())
        self.parts["core"] += computed + float(core[for_peer].sum()) + queued
        self.parts["wait"] += left * float(waited.sum())
        self.parts["link"] += left * float(moved.sum())
        self.parts["other"] += float(time[own == _NONE].sum())
        blamed = np.bincount(peers, waited, self.ranks)
        self.waits.update({at: float(ns) for at, ns in enumerate(blamed) if ns})
        known = link >= 0
        ways = np.bincount(link[known], moved[known], self.ranks**2)
        self.links.update(
            {divmod(int(at), self.ranks): float(ways[at]) for at in np.flatnonzero(ways)}
        )

    def compute_of(self, ranks: Sequence[int]) -> dict[int, float]:
        """Return how long each computes in an iteration, in ns: the median."""
        p = pl.col
        table = (
            self.rows.filter(p("kind").is_in(TRAINS) & p("rank").is_in(ranks))
            .group_by("rank", "iteration")
            .agg((p("end_ns") - p("start_ns")).sum().alias("ns"))
            .group_by("rank")
            .agg(p("ns").median())
        )
        return {int(rank): float(ns) for rank, ns in table.iter_rows()}
