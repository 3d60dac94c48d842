"""Moments and the arcs between them: when each can be at the earliest, and at the latest.

A moment is a start, an end, a departure or an arrival. An arc says that one moment comes at least
so long after another. Waiting has no arc of its own: a rank that waits does so until the latest of
the moments that it needs.

    earliest[v] = max over arcs (u, v) of earliest[u] + ns    as recorded where there are no arcs
    latest[u]   = min over arcs (u, v) of latest[v] - ns      its earliest time at the end
    slack       = latest[v] - earliest[u] - ns                how much longer an arc can be

The critical path follows, from the last moment back, the arc that was the maximum. Each segment
begins where the one before it ends, so the path is as long as the time between its two ends.

Smallest case: rank 0 computes 5, rank 1 computes 3, then both exchange for 1. The path is
5 + 1 = 6, the slack of rank 1 is 2, and rank 0 faster by 3 gains 2, not 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workbench.store.iterations import COMPUTE

COMPUTES = (*COMPUTE, "apply")  # kinds of rows
NEVER = 1 << 62  # ns: the latest time of a moment that no end needs

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Activity:
    """The work of a rank or a link along an arc. ``kind``: as in the event table; "link" for bytes
    on their way from ``rank`` to ``peer``, "gap" for time that is in no row. ``queued``: the share
    of it in which the rank waited for a core.
    """

    rank: int
    kind: str
    name: str = ""
    peer: int = -1
    seq: int = -1
    queued: float = 0.0

    @property
    def computes(self) -> bool:
        return self.kind in COMPUTES


@dataclass(frozen=True, slots=True)
class Arc:
    source: int
    target: int
    activity: Activity | None  # None: an order, nothing is done


class Moments:
    """Moments, by number, with the time at which each was recorded, ns; and arcs, by number."""

    def __init__(self) -> None:
        self.recorded: list[int] = []
        self.ranks: list[int] = []  # of each moment
        self.arcs: list[Arc] = []
        self.ns: list[int] = []  # the length of each arc
        self._into: list[list[int]] = []  # arcs that end at a moment
        self._order: list[int] = []

    def add(self, ns: int, rank: int = -1) -> int:
        """Add a moment of a rank that was recorded at ``ns``; return its number."""
        self.recorded.append(ns)
        self.ranks.append(rank)
        self._into.append([])
        return len(self.recorded) - 1

    def join(self, source: int, target: int, ns: int, activity: Activity | None = None) -> int:
        """Add an arc; return its number."""
        self.arcs.append(Arc(source, target, activity))
        self.ns.append(ns)
        self._into[target].append(len(self.arcs) - 1)
        self._order = []
        return len(self.arcs) - 1

    def into(self, moment: int) -> Sequence[int]:
        """Return the arcs that end at a moment."""
        return self._into[moment]

    @property
    def order(self) -> Sequence[int]:
        """The moments, each after those that it needs. Moments of a circle are left out."""
        if not self._order:
            needs = [len(arcs) for arcs in self._into]
            out: list[list[int]] = [[] for _ in needs]
            for arc in self.arcs:
                out[arc.source].append(arc.target)
            ready = [moment for moment, count in enumerate(needs) if not count]
            for moment in ready:  # grows as it is read
                for target in out[moment]:
                    needs[target] -= 1
                    if not needs[target]:
                        ready.append(target)
            self._order = ready
        return self._order

    def earliest(self, ns: Sequence[int] | None = None) -> tuple[list[int], list[int]]:
        """Return when each moment is at the earliest with arcs of these lengths, and the arc that
        decides it, -1 where none does.
        """
        lengths = self.ns if ns is None else ns
        times, decides = list(self.recorded), [-1] * len(self.recorded)
        for moment in self.order:
            best = -NEVER
            for arc in self._into[moment]:
                time = times[self.arcs[arc].source] + lengths[arc]
                if time > best:
                    best, decides[moment] = time, arc
            if decides[moment] >= 0:
                times[moment] = best
        return times, decides

    def earliest_of_many(self, ns: Numbers) -> Numbers:
        """Return the same times for several lengths of each arc: ``ns`` has a row per arc, what is
        returned a row per moment, and both a column per case.
        """
        times = np.repeat(np.array(self.recorded, np.float64)[:, None], ns.shape[1], axis=1)
        for moment in self.order:
            arcs = self._into[moment]
            if arcs:
                row = times[self.arcs[arcs[0]].source] + ns[arcs[0]]
                for arc in arcs[1:]:
                    np.maximum(row, times[self.arcs[arc].source] + ns[arc], out=row)
                times[moment] = row
        return times

    def latest(self, times: Sequence[int], ends: Iterable[int]) -> list[int]:
        """Return how late each moment can be without delaying the last of ``ends``."""
        ends = list(ends)
        last = max(times[end] for end in ends)
        latest = [NEVER] * len(times)
        for end in ends:
            latest[end] = last
        for moment in reversed(self.order):
            for arc in self._into[moment]:
                source = self.arcs[arc].source
                latest[source] = min(latest[source], latest[moment] - self.ns[arc])
        return latest

    def path(self, decides: Sequence[int], end: int) -> list[int]:
        """Return the arcs of the critical path to ``end``, from its first one on."""
        arcs: list[int] = []
        while decides[end] >= 0:
            arcs.append(decides[end])
            end = self.arcs[decides[end]].source
        return arcs[::-1]
