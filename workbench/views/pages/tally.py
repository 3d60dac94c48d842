"""Totals of a run's rows: counters, deliberate faults, ranks that are there."""

from __future__ import annotations

import json
import math
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from workbench.common.units import counted
from workbench.recording.events import CODE, OVERRUN
from workbench.shared_memory.link_state import LinkState
from workbench.store import link_faults
from workbench.store.event_store import Store
from workbench.store.table import from_frame
from workbench.views.packing import Passages, passages

_METRIC, _FAULT = CODE["metric"], CODE["fault"]
_DONE_TO = {  # a rank, by the name of the row
    "kill": "killed",
    "remove": "removed",
    "add": "added",
    "join": "added",
    "fail to start": "failed to start",
    "preempt": "preempted",
    "preempted": "preempted",
}
_RATE_OVER = 1.0  # seconds
_AT_THE_END = 2**62  # an iteration after all others


class Tally:
    """``absorb`` what a tap gives; ``catch_up`` with what the store had before.

    ``events`` rows of the store are counted in; ``origin`` is the first row's start (absolute ns),
    0 until there is one; ``ranks`` how many take part as far as rows tell.
    """

    def __init__(self, store: Store, slowed: Mapping[int, float]) -> None:
        """Count from zero. ``slowed``: ranks that the spec slows, with their factors."""
        self._store = store
        self.events = self.origin = self.ranks = 0
        self.iteration = -1
        self.links: dict[tuple[int, int], LinkState] = {}  # changed by hand: to what
        self.notes: dict[str, str] = {}
        self._overrun: set[int] = set()  # iterations in which a pad was
        for rank, factor in slowed.items():
            self._note("slow", rank, factor)
        self._newest: dict[str, dict[int, tuple[int, float]]] = {"loss": {}, "accuracy": {}}
        self._rate = deque([(time.monotonic(), len(store))])
        self._span = (0, 0)

    def catch_up(self, position: int) -> None:
        """Count the store's rows up to ``position`` that are not counted yet."""
        if position <= self.events:
            return
        p, rows = pl.col, self._store.scan().slice(self.events, position - self.events)
        start, end, rank, peer, iteration = (
            rows.select(
                p("start_ns").min(),
                p("end_ns").max(),
                p("rank").max(),
                p("peer").max(),
                p("iteration").max(),
            )
            .collect()
            .row(0)
        )
        marked = rows.filter(p("kind").is_in(["metric", "fault"])).collect()
        self._look_at(passages(from_frame(marked, self._store.number)))
        self._count(position, start, end, max(rank, peer) + 1, iteration)

    def absorb(self, new_rows: Passages, position: int) -> None:
        """Count these rows, after which the tap is at ``position``."""
        rows = new_rows.rows
        if len(rows):
            self._look_at(new_rows)
            self._count(
                position,
                int(rows["start_ns"].min()),
                int(rows["end_ns"].max()),
                max(int(new_rows.rank.max()), int(rows["peer"].max())) + 1,
                int(new_rows.context["iteration"].max()),
            )
        now = time.monotonic()
        self._rate.append((now, position))
        while now - self._rate[0][0] > _RATE_OVER and len(self._rate) > 2:
            self._rate.popleft()

    def per_second(self, over: bool) -> float:
        """Return rows per second, over the last second; of a run that is over, between its first
        and last row.
        """
        if over:
            seconds = (self._span[1] - self._span[0]) * 1e-9
            return self.events / seconds if seconds > 0 else 0.0
        (begin, before), (end, after) = self._rate[0], self._rate[-1]
        if len(self._rate) < 2:  # no page has listened yet
            end, after = time.monotonic(), len(self._store)
        return (after - before) / max(end - begin, 1e-3)

    def newest(self, metric: str) -> float | None:
        """Return the mean of a metric's last values over the ranks that are furthest."""
        values_by_rank = self._newest[metric].values()
        last = max((iteration for iteration, _ in values_by_rank), default=-1)
        values = [value for iteration, value in values_by_rank if iteration == last]
        mean = sum(values) / len(values) if values else math.nan
        return mean if math.isfinite(mean) else None

    def _count(self, position: int, start: int, end: int, ranks: int, iteration: int) -> None:
        if not self.events:
            self.origin, self._span = start, (start, end)
        self._span = (min(start, self._span[0]), max(end, self._span[1]))
        self.events = position
        self.ranks, self.iteration = max(self.ranks, ranks), max(self.iteration, iteration)

    def _look_at(self, new_rows: Passages) -> None:
        """Count the metrics and faults among these rows."""
        rows = new_rows.rows
        marked = np.flatnonzero((rows["kind"] == _METRIC) | (rows["kind"] == _FAULT))
        if not len(marked):
            return
        lanes = np.searchsorted(new_rows.first, marked, "right") - 1
        ranks, names, kinds = new_rows.rank[lanes], rows["name"][marked], rows["kind"][marked]
        for metric, newest in self._newest.items():
            these = (kinds == _METRIC) & (names == self._store.number(metric))
            at = np.flatnonzero(these)[::-1]
            of, newest_at = np.unique(ranks[at], return_index=True)  # each rank's last one
            for rank, last in zip(of, at[newest_at], strict=True):
                row = rows[marked[last]]
                final = row["phase"] == self._store.number("validation")  # it is what counts
                iteration = (
                    _AT_THE_END if final else int(new_rows.context["iteration"][lanes[last]])
                )
                newest[int(rank)] = (iteration, float(row["value"]))
        over = (kinds == _METRIC) & (names == self._store.number(OVERRUN))
        self._overrun.update(new_rows.context["iteration"][lanes[over]].tolist())
        for fault in np.flatnonzero(kinds == _FAULT):
            row = rows[marked[fault]]
            by_rank, peer = int(ranks[fault]), int(row["peer"])
            name, value = self._store.names(int(row["name"]))[0], float(row["value"])
            group = self._store.names(int(new_rows.context["group"][lanes[fault]]))[0]
            if (link := link_faults.link_of_row(name, group, value, int(row["nbytes"]))) is None:
                self._note(name, peer if by_rank < 0 else by_rank, value)
            else:
                self.links |= link

    @property
    def badges(self) -> list[str]:
        """Return badges: what was done to the run, and what the machine did to its pads."""
        many, of = len(self._overrun), max(1, self.iteration + 1)
        pads = f"pad overrun in {many:,} of {counted(of, 'iteration')}"
        return [*self.notes.values(), *([pads] if many else [])]

    def _note(self, name: str, rank: int, value: float) -> None:
        """Note what was done on purpose, as a badge tells it; take back what was undone."""
        if rank >= 0 and (ended := _DONE_TO.get(name)):
            self.notes[f"{ended} {rank}"] = f"rank {rank} {ended}"
        elif name == "freeze":
            self.notes[f"freeze {rank}"] = f"rank {rank} frozen" + (
                f" for {value:g} s" if math.isfinite(value) else ""
            )
        elif name == "thaw":
            self.notes.pop(f"freeze {rank}", None)
        elif name == "slow" and value > 1:
            self.notes[f"slow {rank}"] = f"rank {rank} slowed ×{value:g}"
        elif name == "slow":
            self.notes.pop(f"slow {rank}", None)
        else:
            self.notes[name] = f"fault: {name}"

    def counters(self, over: bool) -> dict[str, Any]:
        """Return the header's ``counters``, except those that only the run and the page know."""
        return {
            "events": self.events,
            "dropped": self._store.dropped,
            "coarser": json.loads(self._store.metadata.get("coarser", "null")),
            "per_second": self.per_second(over),
            "iteration": self.iteration,
            "loss": self.newest("loss"),
            "accuracy": self.newest("accuracy"),
        }
