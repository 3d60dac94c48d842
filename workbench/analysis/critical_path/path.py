"""The critical path of one iteration: what set its time, and how much longer all else can take.

Its segments follow each other from the end of the iteration before to the end of this one. What
is in no row is on it too, as segments of kind "gap"; in time in which a rank was frozen or held by
a reader they are of kind "fault" or "hold".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

import polars as pl

from workbench.analysis.critical_path.dependencies import Builder, Dependencies, Pace, unpaced
from workbench.analysis.critical_path.iterations import iterations_of, newest_rows, window
from workbench.analysis.critical_path.moments import COMPUTES, NEVER, Activity, Moments
from workbench.analysis.critical_path.spans import spans_of
from workbench.analysis.time_spent import MOST_ROWS, QUEUED
from workbench.common.errors import SpecError
from workbench.common.names import enumerated
from workbench.common.units import counted
from workbench.experiment.network import Network
from workbench.experiment.stored import settings
from workbench.store.holds import STILL, holds_of
from workbench.store.iterations import COMPUTE
from workbench.training.pipelines.bubble import frozen_spans

MUCH_CORE = 0.1  # of the path waiting for a core: more than this is said
MANY_LOST = 0.01  # of the messages
NAMED = 3  # causes in the sentence
LITTLE = 0.02  # of the path: causes that are not worth a name
Segment = tuple[int, str, str, int, int, float, int]
SEGMENTS = pl.Schema(
    {
        "rank": pl.Int64(),
        "kind": pl.String(),
        "name": pl.String(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "share": pl.Float64(),
        "peer": pl.Int64(),
    }
)
SLACK = pl.Schema(
    {
        "rank": pl.Int64(),
        "kind": pl.String(),
        "name": pl.String(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "slack_ns": pl.Int64(),
        "peer": pl.Int64(),
    }
)
Stops = list[tuple[int, int, int, str]]  # rank, from, to, kind: when ranks stood; rank -1: all


@dataclass(frozen=True)
class CriticalPath:
    """The critical path of ``iteration`` (from 0; -1: of a record without iterations).

    ``segments``: one row per segment, in order, with its rank, kind, name, start_ns, end_ns, share
    of the iteration, and peer of a message or link. ``slack``: one row per activity that is not on
    the path, with slack_ns: how much longer it can take without delaying the iteration's end.
    ``core``: the share of the path in which ranks waited for a core, at most; 0 where computing is
    padded.
    ``unseen``: sentences on what the record does not show. ``computes``: whether computing was
    recorded; else a gap is what a rank did between its calls.
    """

    iteration: int
    segments: pl.DataFrame
    slack: pl.DataFrame
    core: float = 0.0
    unseen: tuple[str, ...] = ()
    computes: bool = True

    @property
    def ms(self) -> float:
        """The length of the path, which is the time of the iteration, in milliseconds."""
        return float((self.segments["end_ns"] - self.segments["start_ns"]).sum()) * 1e-6

    @property
    def causes(self) -> pl.DataFrame:
        """The causes on the path, the largest first: a row per cause, with cause, in words; kind
        ("compute", "link", "gap", or as in the event table), rank, peer, ms and share.
        """
        kind = pl.when(pl.col("kind").is_in(COMPUTES)).then(pl.lit("compute")).otherwise("kind")
        table = (
            self.segments.with_columns(kind=kind, ms=(pl.col("end_ns") - pl.col("start_ns")) * 1e-6)
            .group_by("kind", "rank", "peer")
            .agg(pl.col("ms", "share").sum())
            .sort("ms", "kind", "rank", "peer", descending=[True, False, False, False])
        )
        words = [
            f"rank {rank} between its calls"
            if kind == "gap" and rank >= 0 and not self.computes
            else cause_of(kind, rank, peer)
            for kind, rank, peer in table.select("kind", "rank", "peer").iter_rows()
        ]
        return table.select(pl.Series("cause", words, pl.String), pl.all())

    @property
    def gap(self) -> float:
        """The share of the path that is in no row."""
        return float(self.segments.filter(kind="gap")["share"].sum())

    @property
    def words(self) -> str:
        """The path in a sentence or two."""
        table = self.causes
        table = table.filter(pl.col("kind") != "gap") if self.computes else table
        named = [
            f"{share:.0%} is {cause}"
            for cause, share in table.head(NAMED).select("cause", "share").iter_rows()
            if share >= LITTLE
        ]
        what = f"Iteration {self.iteration + 1}" if self.iteration >= 0 else "The record"
        parts = [*named, f"{self.gap:.0%} is in no row"] if self.computes or not named else named
        says = f"{what} took {self.ms:.4g} ms. Of its critical path, {enumerated(parts)}."
        queued = f" For up to {self.core:.0%} of it ranks waited for a core."
        return says + queued if self.core >= MUCH_CORE else says

    def __repr__(self) -> str:
        return f"<{' '.join((self.words, *self.unseen))}>"

    def _repr_html_(self) -> str:
        from workbench.analysis.critical_path.picture import picture
        from workbench.front_end.html_picture import image

        notes = "".join(f"<p>{escape(one)}</p>" for one in self.unseen)
        drawn = image(picture(self.segments, self.slack, self.words), self.words)
        return f"{drawn}<p>{escape(self.words)}</p>{notes}"


def critical_path(
    events: pl.DataFrame | pl.LazyFrame,
    metadata: Mapping[str, str],
    iteration: int | None = None,
    dropped: int = 0,
) -> CriticalPath | None:
    """Return the critical path of an iteration, None: of the newest that is finished; None where
    no iteration is. Raises SpecError for one that is not finished, or not there.
    """
    rows = events.lazy()
    known = iterations_of(rows, metadata)
    which = known.newest if iteration is None else iteration
    if which is None:
        return None
    ends = known.find(which)
    if ends is None:
        raise SpecError(
            f"iteration = {iteration}: there is no such iteration that is finished. Those from "
            f"{known.oldest} to {known.newest} are"
        )
    begin, end = ends
    before = known.find(which - 1)
    first = min(begin, before[0] if before else begin)
    if which < 0:
        begin = first = newest_rows(rows, begin)
    part = window(rows, first, end)
    result = Builder(spans_of(part), pace_of(metadata), since=begin).build()
    stops = _stops(rows, metadata)
    unseen = [*_lacks(result, dropped), *([] if known.computes else [_UNCOMPUTED])]
    last = _last(result, which, end)
    times, decides = result.moments.earliest()
    path = result.moments.path(decides, last) if last is not None else []
    segments = _segments(result.moments, path, times, begin, end, stops)
    slack = _slack(result, times, [last] if last is not None else [], path, begin)
    padded = settings(metadata).get("pad_compute")  # a wait for a core ends within the pad
    core = 0.0 if padded else _core(part, result.moments, path, segments, which)
    if which < 0 and begin > ends[0]:
        unseen.append(f"Of a long record the newest {MOST_ROWS:,} rows were followed.")
    return CriticalPath(which, segments, slack, core, tuple(unseen), known.computes)


_UNCOMPUTED = "Computing was not recorded: what ranks do between calls is in no row."


def pace_of(metadata: Mapping[str, str]) -> Pace:
    """Return the pace of a run's links, as its experiment emulates them."""
    try:
        network = Network.model_validate(settings(metadata).get("network") or {})
    except (SpecError, ValueError):  # another version's
        return unpaced
    known: dict[tuple[int, int], tuple[int, float]] = {}

    def pace(source: int, target: int) -> tuple[int, float]:
        if (source, target) not in known:
            link = network.link(source, target)
            known[source, target] = link.latency_ns, 1e9 / link.bytes_per_second
        return known[source, target]

    return pace


def _stops(events: pl.LazyFrame, metadata: Mapping[str, str]) -> Stops:
    faults = events.filter(pl.col("kind").cast(pl.String) == "fault").collect()
    frozen = frozen_spans(faults)
    stops = [(rank, *span, "fault") for rank, spans in frozen.items() for span in spans]
    return [*stops, *((-1, *span, "hold") for span in holds_of(metadata, STILL))]


def _lacks(result: Dependencies, dropped: int) -> list[str]:
    """Return sentences on what the record lacks."""
    says = []
    if dropped:
        says.append(f"{counted(dropped, 'row')} of the run were lost, and the path can miss them.")
    if result.lost > MANY_LOST * result.messages:
        lost = f"{result.lost:,} of {counted(result.messages, 'message')}"
        says.append(f"The send of {lost} was not recorded.")
    if result.early:
        says.append(
            f"{counted(result.early, 'message')} came before they were sent: clocks differ."
        )
    return says


def _last(result: Dependencies, iteration: int, end: int) -> int | None:
    """Return the moment at which the iteration ended."""
    recorded = result.moments.recorded
    ends = [moment for _, moment in result.ends.get(iteration, [])]
    known = [one for one in ends if recorded[one] == end] or ends
    if known:
        return max(known, key=lambda one: recorded[one])
    at = [one for one, ns in enumerate(recorded) if ns <= end]
    return max(at, key=lambda one: recorded[one], default=None)


def _segments(
    moments: Moments, path: list[int], times: list[int], begin: int, end: int, stops: Stops
) -> pl.DataFrame:
    """Return the table of a path's segments between two moments."""
    whole = max(1, end - begin)
    parts: list[tuple[Activity, int, int]] = []
    at = begin
    for number in path:
        arc = moments.arcs[number]
        if times[arc.target] <= at or arc.activity is None:
            continue
        start = max(times[arc.source], begin)
        if start > at:  # the path's first moment needs none that was recorded
            parts.append(
                (Activity(moments.ranks[arc.source], "gap", "before the first row"), at, start)
            )
        parts.append((arc.activity, start, times[arc.target]))
        at = times[arc.target]
    if at < end:
        parts.append((Activity(-1, "gap", "after the last row"), at, end))
    rows = [
        (work.rank, kind, work.name, start, stop, (stop - start) / whole, work.peer)
        for work, first, last in parts
        for kind, start, stop in _stopped(work, first, last, stops)
    ]
    return pl.DataFrame(rows, SEGMENTS, orient="row")


def _stopped(work: Activity, first: int, last: int, stops: Stops) -> Iterator[tuple[str, int, int]]:
    """Yield an activity's pieces: those in which its rank stood are of another kind."""
    at = first
    for rank, begin, end, kind in sorted(stops, key=lambda one: one[1]):
        begin, end = max(begin, at), min(end, last)
        if rank in (-1, work.rank) and begin < end:
            if at < begin:
                yield work.kind, at, begin
            yield kind, begin, end
            at = end
    if at < last:
        yield work.kind, at, last


def _core(
    events: pl.LazyFrame, moments: Moments, path: list[int], segments: pl.DataFrame, iteration: int
) -> float:
    """Return the share of a path in which its ranks waited for a core, at most: as its rows of
    computing say; and of its gaps as much as a rank waited beside computing in the iteration.
    """
    kind, own = pl.col("kind").cast(pl.String), pl.col("iteration") == iteration
    rows = events.filter(own, kind.is_in(COMPUTE)).select(
        "rank", "value", "start_ns", "end_ns", name=pl.col("name").cast(pl.String), kind=kind
    )
    table = rows.collect()
    queued = table.filter(name=QUEUED).group_by("rank").agg(pl.col("value").sum())
    inside = table.filter(pl.col("end_ns") > pl.col("start_ns"), pl.col("kind") != "metric")
    computing = dict(inside.group_by("rank").agg(pl.col("value").fill_nan(0).sum()).iter_rows())
    lasts = pl.col("end_ns") - pl.col("start_ns")
    gaps = segments.filter(kind="gap").group_by("rank").agg(lasts.sum())
    beside = {rank: ns - computing.get(rank, 0.0) for rank, ns in queued.iter_rows()}
    waited = sum(max(0.0, min(ns, beside.get(rank, 0.0))) for rank, ns in gaps.iter_rows())
    for arc in path:
        work = moments.arcs[arc].activity
        waited += work.queued * moments.ns[arc] if work else 0.0
    whole = int(segments.select(lasts.sum()).item() or 0)
    return min(1.0, waited / whole) if whole else 0.0


def _slack(
    result: Dependencies, times: list[int], ends: list[int], path: list[int], begin: int
) -> pl.DataFrame:
    """Return the table of what is not on the path, with how much longer it can be."""
    if not ends:
        return SLACK.to_frame()
    moments, on = result.moments, {*path}
    latest = moments.latest(times, ends)
    rows: list[tuple[Any, ...]] = []
    for number, arc in enumerate(moments.arcs):
        work = arc.activity
        if number in on or work is None or work.kind == "gap" or not moments.ns[number]:
            continue
        start = times[arc.target] - moments.ns[number]
        if times[arc.target] > begin and latest[arc.target] < NEVER // 2:
            slack = latest[arc.target] - times[arc.source] - moments.ns[number]
            rows.append(
                (work.rank, work.kind, work.name, start, times[arc.target], slack, work.peer)
            )
    return pl.DataFrame(rows, SLACK, orient="row").unique(maintain_order=True)


def cause_of(kind: str, rank: int, peer: int) -> str:
    """Return a cause in words."""
    if kind == "compute":
        return f"computing on rank {rank}"
    if kind == "link":
        return f"link {rank} → {peer}"
    if kind == "gap":
        return f"in no row, on rank {rank}" if rank >= 0 else "in no row"
    if kind == "collective":
        return f"calls on rank {rank}"
    if kind == "fault":
        return f"rank {rank}, which was frozen"
    if kind == "hold":
        return "time in which the ranks were held"
    ends = f"{rank} → {peer}" if kind == "send" else f"{peer} → {rank}"
    return f"{kind} {ends}" if kind in ("send", "recv") else f"{kind} on rank {rank}"
