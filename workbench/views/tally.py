"""What the rows of a run add up to: counters, what was done to it on purpose, who is there."""

from __future__ import annotations

import math
import re
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from workbench.events import CODE
from workbench.store import Store
from workbench.table import from_frame
from workbench.views import Passages, passages

_METRIC, _FAULT = CODE["metric"], CODE["fault"]
_RATE_OVER = 1.0  # seconds
_LINK = re.compile(r"link (\d+)->(\d+) ?(.*)")
_AT_THE_END = 2**62  # an iteration after all others


class Tally:
    """``absorb`` what a tap gives; ``catch_up`` with what the store had before.

    ``events`` rows of the store are counted in; ``origin`` is the first row's start (absolute ns),
    0 until there is one; ``ranks`` how many take part as far as rows tell.
    """

    def __init__(self, store: Store, slowed: Mapping[int, float]) -> None:
        """``slowed``: ranks that the spec slows, and their factors."""
        self._store = store
        self.events = self.origin = self.ranks = 0
        self.iteration = -1
        self.links: dict[tuple[int, int], str] = {}  # changed by hand: to what, in words
        self.notes: dict[str, str] = {}
        for rank, factor in slowed.items():
            self._note("slow", rank, factor)
        self._newest: dict[str, dict[int, tuple[int, float]]] = {"loss": {}, "accuracy": {}}
        self._rate: deque[tuple[float, int]] = deque()
        self._span = (0, 0)

    def catch_up(self, position: int) -> None:
        """Count the store's rows up to ``position`` that are not counted yet."""
        if position <= self.events:
            return
        p, rows = pl.col, self._store.scan().slice(self.events, position - self.events)
        start, end, rank, peer, iteration = (
            rows.select(
                p("start_ns").min(), p("end_ns").max(), p("rank").max(), p("peer").max(),
                p("iteration").max(),
            ).collect().row(0)
        )  # fmt: skip
        marked = rows.filter(p("kind").is_in(["metric", "fault"])).collect()
        self._look_at(passages(from_frame(marked, self._store.number)))
        self._count(position, start, end, max(rank, peer) + 1, iteration)

    def absorb(self, told: Passages, position: int) -> None:
        """Count these rows, after which the tap is at ``position``."""
        rows = told.rows
        if len(rows):
            self._look_at(told)
            self._count(
                position, int(rows["start_ns"].min()), int(rows["end_ns"].max()),
                max(int(told.rank.max()), int(rows["peer"].max())) + 1,
                int(told.context["iteration"].max()),
            )  # fmt: skip
        now = time.monotonic()
        self._rate.append((now, position))
        while now - self._rate[0][0] > _RATE_OVER and len(self._rate) > 2:
            self._rate.popleft()

    def per_second(self, over: bool) -> float:
        """Rows a second, over the last one; of a run that is over, between its first and last."""
        if over:
            seconds = (self._span[1] - self._span[0]) * 1e-9
            return self.events / seconds if seconds > 0 else 0.0
        if len(self._rate) < 2:
            return 0.0
        (begin, before), (end, after) = self._rate[0], self._rate[-1]
        return (after - before) / max(end - begin, 1e-3)

    def newest(self, metric: str) -> float | None:
        """The mean over ranks of what those that are furthest told of it last."""
        told = self._newest[metric].values()
        last = max((iteration for iteration, _ in told), default=-1)
        values = [value for iteration, value in told if iteration == last]
        mean = sum(values) / len(values) if values else math.nan
        return mean if math.isfinite(mean) else None

    def _count(self, position: int, start: int, end: int, ranks: int, iteration: int) -> None:
        if not self.events:
            self.origin, self._span = start, (start, end)
        self._span = (min(start, self._span[0]), max(end, self._span[1]))
        self.events = position
        self.ranks, self.iteration = max(self.ranks, ranks), max(self.iteration, iteration)

    def _look_at(self, told: Passages) -> None:
        """Metrics and faults among these rows."""
        rows = told.rows
        marked = np.flatnonzero((rows["kind"] == _METRIC) | (rows["kind"] == _FAULT))
        if not len(marked):
            return
        own = np.searchsorted(told.first, marked, "right") - 1
        ranks, names, kinds = told.rank[own], rows["name"][marked], rows["kind"][marked]
        for metric, newest in self._newest.items():
            these = (kinds == _METRIC) & (names == self._store.number(metric))
            for rank in np.unique(ranks[these]):
                last = np.flatnonzero(these & (ranks == rank))[-1]
                row = rows[marked[last]]
                final = row["phase"] == self._store.number("validation")  # it is what counts
                iteration = _AT_THE_END if final else int(told.context["iteration"][own[last]])
                newest[int(rank)] = (iteration, float(row["value"]))
        for fault in np.flatnonzero(kinds == _FAULT):
            row = rows[marked[fault]]
            by_whom, peer = int(ranks[fault]), int(row["peer"])
            name = self._store.names(int(row["name"]))[0]
            self._note(name, peer if by_whom < 0 else by_whom, float(row["value"]))

    def _note(self, name: str, rank: int, value: float) -> None:
        """What was done on purpose, as a badge says it; what was undone is taken back."""
        what = name.partition(" ")[0]
        if link := _LINK.fullmatch(name):
            self.links[int(link[1]), int(link[2])] = link[3] or "changed by hand"
        elif what == "kill":
            self.notes[f"kill {rank}"] = f"rank {rank} killed"
        elif what == "freeze":
            self.notes[f"freeze {rank}"] = f"rank {rank} frozen" + (
                f" for {value:g} s" if math.isfinite(value) else ""
            )
        elif what == "thaw":
            self.notes.pop(f"freeze {rank}", None)
        elif what == "slow" and value > 1:
            self.notes[f"slow {rank}"] = f"rank {rank} slowed ×{value:g}"
        elif what == "slow":
            self.notes.pop(f"slow {rank}", None)
        else:
            self.notes[name] = f"fault: {name}"

    def counters(self, over: bool) -> dict[str, Any]:
        """The header's ``counters``, but for what only the run and the page know."""
        return {
            "events": self.events, "dropped": self._store.dropped,
            "per_second": self.per_second(over), "iteration": self.iteration,
            "loss": self.newest("loss"), "accuracy": self.newest("accuracy"),
        }  # fmt: skip
