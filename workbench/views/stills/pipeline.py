"""A pipeline's run in one still picture: the newest iteration that is complete, in true time.

``select`` finds its actions, svg_pipeline.py draws them. All bars are rows; replicas are below each
other, with the all-reduces of their gradients. Why ranks idle is told by idle.py; without flush,
where iterations lie over each other, it is not told apart, and the picture is from the first
forward of an iteration to that of the next one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from workbench.analysis.stages import actions
from workbench.training.pipelines.bubble import frozen_spans
from workbench.training.pipelines.idle import Order, Span, split
from workbench.training.pipelines.schedule import Action, Schedule

OVER_REPLICAS = "replicas "  # how their groups' names begin
MARGIN = 0.15  # of an iteration: room for an all-reduce that comes after, to be seen in part
LONGEST = 2.0  # iterations that the picture is long at most, where that begins late
RECENT_ITERATIONS = 4  # of these the newest that is complete is shown


@dataclass(frozen=True)
class Bar:
    """An action: from ``start`` to ``end`` of the time that is shown, 0 to 1."""

    place: int  # rank
    stage: int
    what: str  # F, B, I or W
    microbatch: int
    start: float
    end: float


@dataclass(frozen=True)
class Wait:
    """A stretch in which a rank was idle, as bars are; ``why`` as in idle.py."""

    place: int
    why: str
    start: float
    end: float


@dataclass(frozen=True)
class Piped:
    """A pipeline at one moment. ``words``: a caption, "" if nothing is complete yet."""

    ranks: int  # of all replicas
    stages: tuple[int, ...]  # rank in its replica, of each stage
    bars: tuple[Bar, ...] = ()
    idle: tuple[float, ...] = ()  # share of the iteration, by rank
    words: str = ""
    waits: tuple[Wait, ...] = ()  # none: why they idle is unknown
    joins: tuple[tuple[int, float, float], ...] = ()  # all-reduces over replicas: rank, start, end
    whole: float = 1.0  # where the iteration ends: an all-reduce comes after it
    replicas: int = 1

    def stages_of(self, rank: int) -> list[int]:
        """Return the stages of a rank."""
        place = rank % (self.ranks // self.replicas)
        return [stage for stage, home in enumerate(self.stages) if home == place]


def select(rows: pl.LazyFrame, run_facts: Mapping[str, Any]) -> Piped | None:
    """Return the picture's data; None if there is no pipeline. ``run_facts``: the store's."""
    if not (plan := run_facts["pipeline"]):
        return None
    p, rank_of, replicas = pl.col, tuple(plan["rank_of"]), int(plan["replicas"])
    ranks = int(plan["ranks"]) * replicas
    before = Piped(ranks, rank_of, replicas=replicas)
    computed = p("kind").cast(pl.String).is_in(["forward", "backward", "weight_grad"])
    own = rows.filter(computed & (p("microbatch") >= 0) & (p("rank") < ranks))
    newest = own.select(p("iteration").max()).collect().item()
    if newest is None:
        return before
    done = actions(own.filter(p("iteration") >= newest - RECENT_ITERATIONS).collect())
    all_of_it = int(plan["stages"]) * int(plan["microbatches"]) * replicas
    each = (
        done.group_by("iteration")
        .agg(
            p("start_ns").min(),
            p("end_ns").max(),
            whole=((p("what") == "F").sum() >= all_of_it)
            & (p("what").is_in(["B", "W"]).sum() >= all_of_it),
        )
        .sort("iteration")
    )
    if not plan["flush"]:
        each = each.with_columns(end_ns=p("start_ns").shift(-1)).drop_nulls()
    shown = each.filter("whole").tail(1)
    if not shown.height:
        return before
    iteration, start, end, _ = shown.row(0)
    whole = max(1, end - start)
    visible = done.filter((p("end_ns") > start) & (p("start_ns") < end)).sort("start_ns")
    if plan["flush"]:
        visible = visible.filter(p("iteration") == iteration)
    joins = _joins(rows, iteration, ranks) if replicas > 1 else []
    span = _span(whole, [(a - start, b - start) for _, a, b in joins])
    bars = tuple(
        Bar(rank, stage, what, microbatch, max(0, a - start) / span, min(whole, b - start) / span)
        for rank, stage, what, microbatch, a, b in visible.select(
            "rank", "stage", "what", "microbatch", "start_ns", "end_ns"
        ).iter_rows()
    )
    busy = [
        sum(bar.end - bar.start for bar in bars if bar.place == place) for place in range(ranks)
    ]
    idle = tuple(max(0.0, 1 - share * span / whole) for share in busy)
    waits = tuple(
        Wait(place, why, (a - start) / span, (b - start) / span)
        for place, why, a, b in _waits(plan, visible, rows)
    )
    words = f"Iteration {iteration + 1}: {_ms(whole)}; {_idle_words(plan, idle)}"
    after = tuple(
        (rank, (a - start) / span, min(1.0, (b - start) / span))
        for rank, a, b in joins
        if a - start < span
    )
    return Piped(ranks, rank_of, bars, idle, words, waits, after, whole / span, replicas)


def _idle_words(plan: Mapping[str, Any], idle: Sequence[float]) -> str:
    """Say how idle the ranks are, by the record and by the plan, and which replicas there are."""
    bubble, replicas = plan["bubble"], int(plan["replicas"])
    alone = "" if bubble is None else f", the schedule alone costs {bubble:.0%}"
    subject = f"{replicas} replicas of {plan['ranks']} ranks" if replicas > 1 else "the ranks"
    return f"{subject} are idle {sum(idle) / len(idle):.0%}{alone}".replace("%", " %")


def _span(whole: int, joins: Sequence[tuple[int, int]]) -> int:
    """Return how long the picture is, in ns: the iteration, and at least the beginning of the
    all-reduces after it; ``joins`` has their begins and ends, from the iteration's begin.
    """
    room = MARGIN * whole
    ends = [min(b, max(a, whole) + room, LONGEST * whole) for a, b in joins]
    return int(max([whole, *ends]))


def _joins(rows: pl.LazyFrame, iteration: int, ranks: int) -> list[tuple[int, int, int]]:
    """Return rank, start and end of each part in an all-reduce over replicas."""
    p, collectives = pl.col, pl.col("kind").cast(pl.String) == "collective"
    result = rows.filter(
        collectives,
        p("iteration") == iteration,
        p("rank") < ranks,
        p("group").cast(pl.String).str.starts_with(OVER_REPLICAS),
    )
    return result.select("rank", "start_ns", "end_ns").collect().rows()


def _ms(nanoseconds: float) -> str:
    ms = nanoseconds / 1e6
    return f"{ms:,.0f} ms" if ms >= 100 else f"{ms:.3g} ms"


def _waits(
    plan: Mapping[str, Any], visible: pl.DataFrame, rows: pl.LazyFrame
) -> list[tuple[int, str, int, int]]:
    """Return when and why each rank was idle; empty without a plan of an iteration."""
    schedule = Schedule.from_facts(plan)
    if schedule is None:
        return []
    faults = rows.filter(pl.col("kind").cast(pl.String) == "fault").collect()
    frozen, pads = frozen_spans(faults), plan["pads_ms"]
    result = []
    for replica in range(int(plan["replicas"])):
        first = replica * schedule.ranks
        own = visible.filter(pl.col("rank").is_between(first, first + schedule.ranks - 1))
        spans: dict[Action, Span] = {
            Action(stage, what, microbatch): (start, end)
            for stage, what, microbatch, start, end in own.select(
                "stage", "what", "microbatch", "start_ns", "end_ns"
            ).iter_rows()
        }
        if any(one not in spans for row in schedule.rows for one in row):
            return []
        still = {r - first: some for r, some in frozen.items() if 0 <= r - first < schedule.ranks}
        each = split(Order(schedule), spans, still, [one * 1e6 for one in pads] if pads else None)
        result += [(first + place, why, start, end) for place, why, start, end in each]
    return result
