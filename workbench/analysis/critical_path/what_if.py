"""Predictions: how long an iteration would take with other links or other computing.

The rows of some iterations are timed again with changed lengths (retiming.py), several changes at
once. The answer is an interval: half as wide as 5 % (as much as this kind of machine differs from
run to run), or as half of the spread of the iterations and half of what lies in no row on the
predicted path, whichever is larger. Where the record does not carry an answer, a sentence says why
(refusing.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from workbench.analysis.critical_path.dependencies import Builder, Way
from workbench.analysis.critical_path.iterations import iterations_of, middle, window
from workbench.analysis.critical_path.moments import Numbers
from workbench.analysis.critical_path.path import cause_of, pace_of
from workbench.analysis.critical_path.refusing import Grounds, refusal, refusal_of_path
from workbench.analysis.critical_path.retiming import Paced, iteration_ends, iteration_ms, lengths
from workbench.analysis.critical_path.spans import spans_of
from workbench.common.errors import SpecError, short
from workbench.common.names import enumerated, named_ranks
from workbench.common.units import micro
from workbench.experiment.network import Link, Network
from workbench.experiment.stored import settings

FLOOR = 0.05  # of the answer: two runs of the same experiment differ by so much
TWICE = 0.5  # the factor on time of what is twice as good
HELPS = pl.Schema(
    {
        "change": pl.String(),
        "kind": pl.String(),
        "rank": pl.Int64(),
        "peer": pl.Int64(),
        "ms": pl.Float64(),
        "gain_ms": pl.Float64(),
    }
)


@dataclass(frozen=True)
class Changes:
    """``links``: by the ranks that they lead from and to; ``compute``: factors on time, by rank."""

    links: Mapping[Way, Link] = field(default_factory=dict)
    compute: Mapping[int, float] = field(default_factory=dict)

    @property
    def words(self) -> str:
        parts = [
            f"link {source} → {target} {_link_words(link)}"
            for (source, target), link in self.links.items()
        ]
        for factor in sorted({*self.compute.values()}):
            ranks = [rank for rank, one in sorted(self.compute.items()) if one == factor]
            plural = "" if len(ranks) > 1 else "s"
            parts.append(f"{named_ranks(ranks)} compute{plural} {factor:g} times as long")
        words = enumerated(parts) if parts else "nothing changed"
        return words[0].upper() + words[1:]


@dataclass(frozen=True)
class Prediction:
    """A prediction of how long an iteration takes: ``ms``, between ``low`` and ``high``; None where
    the record does not carry an answer, and ``why_not`` says why. ``base_ms``: as recorded, the
    median. ``then``: the largest cause on the predicted path, in words.
    """

    ms: float | None
    low: float | None
    high: float | None
    why_not: str
    base_ms: float
    changes: Changes
    then: str = ""

    @property
    def words(self) -> str:
        """The prediction in a sentence or two."""
        if self.ms is None:
            return f"{self.changes.words}: no prediction. {self.why_not}"
        return (
            f"{self.changes.words}: an iteration takes {self.ms:.4g} ms ({self.low:.4g} to "
            f"{self.high:.4g}) instead of {self.base_ms:.4g} ms. The largest part of its critical "
            f"path is then {self.then}."
        )

    def __repr__(self) -> str:
        return f"<{self.words}>"


class Retimer:
    """Times the iterations in the middle of a run again."""

    def __init__(
        self, events: pl.DataFrame | pl.LazyFrame, metadata: Mapping[str, str], dropped: int = 0
    ) -> None:
        rows = events.lazy()
        self.metadata, self.spec, self.pace = metadata, settings(metadata), pace_of(metadata)
        known = iterations_of(rows, metadata)
        self.numbers = middle(rows, known) if known.table.height > 1 else None
        begin = end = early = 0
        if self.numbers:
            first, last = self.numbers
            before = known.find(first - 2)
            early = before[0] if before else 0  # what is received was sent earlier
            table = known.table.filter(pl.col("iteration").is_between(first - 1, last))
            begin, end = int(table["begin_ns"][0]), int(table["end_ns"][-1])
        self.rows = window(rows, begin, end)
        sent = spans_of(window(rows, early, end))
        self.graph = Builder(sent, self.pace, since=begin).build()
        kept = range(first - 1, last + 1) if self.numbers else range(0)
        self.graph.ends = {one: ends for one, ends in self.graph.ends.items() if one in kept}
        self.times, _ = self.graph.moments.earliest()
        enough = len(self.graph.ends) > 1
        spread = self.spread if enough else 0.0
        grounds = Grounds(metadata, self.spec, self.rows, self.graph, begin, end, spread, dropped)
        self.why_not = refusal(grounds)

    @cached_property
    def base_ms(self) -> float:
        return float(self._ms(self.times)[0]) if len(self.graph.ends) > 1 else float("nan")

    @property
    def iterations(self) -> Numbers:
        """The time of each recorded iteration, ms."""
        return np.asarray(np.diff(iteration_ends(self.graph, self.times)[:, 0]) * 1e-6)

    @property
    def computing(self) -> list[list[int]]:
        """The time of each row of computing, ns, by rank."""
        rows = self.graph.computes.values()
        return [[self.graph.moments.ns[arc] for row in one for arc in row] for one in rows]

    def _ms(self, times: Any) -> Numbers:
        return iteration_ms(iteration_ends(self.graph, times))

    def paced(self, links: Mapping[Way, Link]) -> dict[Way, Paced]:
        """Return the pace of changed links; what a Link leaves out is as it was."""
        result = {}
        for way, link in links.items():
            latency, per_byte = self.pace(*way)
            result[way] = (
                latency if link.latency is None else link.latency_ns,
                per_byte if link.bandwidth is None else 1e9 / link.bytes_per_second,
            )
        return result

    def predict(self, changes: Changes, *, at_end: bool = False) -> Prediction:
        """Return how long an iteration would take. ``at_end``: as wb.Slow slows a rank."""
        self.check(changes)
        if self.why_not:
            return self._none(changes, self.why_not)
        links = self.paced(changes.links)
        ns = lengths(self.graph, self.pace, links, changes.compute, at_end=at_end)
        times, decides = self.graph.moments.earliest(ns)
        ms, path = float(self._ms(times)[0]), self._path(times, decides)
        whole = sum(path.values())
        gap = sum(length for (kind, _, _), length in path.items() if kind == "gap") / whole
        if why_not := refusal_of_path(gap):
            return self._none(changes, why_not)
        half = max(FLOOR * ms, (self.spread / 2 + gap / 2) * ms)
        then = max((length, cause) for cause, length in path.items() if cause[0] != "gap")[1]
        low, high = ms - half, ms + half
        return Prediction(ms, low, high, "", self.base_ms, changes, cause_of(*then))

    def _none(self, changes: Changes, why_not: str) -> Prediction:
        return Prediction(None, None, None, why_not, self.base_ms, changes)

    @property
    def spread(self) -> float:
        """The distance between the quartiles of the iterations, as a share of their median."""
        low, middle_ms, high = np.quantile(self.iterations, [0.25, 0.5, 0.75])
        return float((high - low) / middle_ms)

    def _path(self, times: list[int], decides: list[int]) -> dict[tuple[str, int, int], int]:
        """Return what lies on the path to the last end: ns by kind, rank and peer."""
        moments, ends = self.graph.moments, self.graph.ends
        last = max((one for _, one in ends[max(ends)]), key=lambda one: times[one])
        begin = max(times[one] for _, one in ends[min(ends)])
        result: dict[tuple[str, int, int], int] = {}
        for number in moments.path(decides, last):
            arc = moments.arcs[number]
            start = max(times[arc.source], begin)
            if arc.activity is not None and times[arc.target] > start:
                cause = arc.activity.kind, arc.activity.rank, arc.activity.peer
                cause = ("compute", cause[1], -1) if arc.activity.computes else cause
                result[cause] = result.get(cause, 0) + times[arc.target] - start
        return result

    def check(self, changes: Changes) -> None:
        """Raise SpecError for a change of what the run does not have."""
        ranks = int(self.spec.get("ranks") or 0) or 1 + max(self.graph.computes, default=0)
        for way in changes.links:
            if max(way) >= ranks or way[0] == way[1]:
                raise SpecError(
                    f"links = {way}: there is no such link. Write the ranks that it leads from and "
                    f"to, each from 0 to {ranks - 1}"
                )
        for rank in changes.compute:
            if rank >= ranks:
                raise SpecError(f"compute: there is no rank {rank}. Ranks are 0 to {ranks - 1}")

    def helps(self) -> pl.DataFrame:
        """Return how much each rank and each link would gain, were it twice as good: by gain."""
        if self.why_not:
            return HELPS.to_frame()
        cases: list[tuple[str, str, int, int, list[int]]] = []
        for rank in sorted(self.graph.computes):
            ns = lengths(self.graph, self.pace, {}, {rank: TWICE})
            cases.append((f"rank {rank} computes twice as fast", "compute", rank, -1, ns))
        for source, target in sorted(self.graph.latency):
            latency, per_byte = self.pace(source, target)
            halves = {"latency": (latency // 2, per_byte), "bandwidth": (latency, per_byte / 2)}
            for name, halved in halves.items():
                if halved != (latency, per_byte):
                    ns = lengths(self.graph, self.pace, {(source, target): halved}, {})
                    how = "half the latency" if name == "latency" else "twice the bandwidth"
                    what = f"link {source} → {target} with {how}"
                    cases.append((what, name, source, target, ns))
        if not cases:
            return HELPS.to_frame()
        columns = np.array([ns for *_, ns in cases], np.float64).T
        each = self._ms(self.graph.moments.earliest_of_many(columns))
        rows = [(*case[:4], ms, self.base_ms - ms) for case, ms in zip(cases, each, strict=True)]
        table = pl.DataFrame(rows, HELPS, orient="row")
        return table.sort("gain_ms", "change", descending=[True, False])


def _link_words(link: Link) -> str:
    parts = [micro(link.latency)] if link.latency else []
    return f"at {', '.join([*parts, *([link.bandwidth] if link.bandwidth else [])])}"


def changes_of(links: Any, compute: Any) -> Changes:
    """Return changes as they are given, checked. Raises SpecError."""
    for name, value in (("links", links), ("compute", compute)):
        if value is not None and not (isinstance(value, Mapping) and len(value)):
            raise SpecError(
                f"{name} = {short(value)}: write at least one change, such as "
                "links={(0, 1): wb.Link(latency='5 ms')} or compute={1: 0.7}"
            )
    for rank, factor in (compute or {}).items():
        if not isinstance(rank, int) or isinstance(factor, bool) or rank < 0:
            raise SpecError(f"compute = {compute!r}: write {{rank: factor}}, such as {{1: 0.7}}")
        if not isinstance(factor, int | float) or not 0 < factor < 1e6:
            raise SpecError(f"compute: {factor!r} for rank {rank}: a factor on time, more than 0")
    given = Network(links=dict(links or {})).links
    for way, link in given.items():
        if link.down or link == Link():
            raise SpecError(f"links: {way}: give a latency, a bandwidth, or both")
    return Changes(dict(given), {rank: float(one) for rank, one in (compute or {}).items()})
