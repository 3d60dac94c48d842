"""Where the time of a pipeline's ranks went: the bubble measured, and split by its reasons.

Of every complete iteration of every replica, from its first action to its last one; ``idle.py``
says why its ranks idle, this adds it up. All in whole nanoseconds, so that the parts and the busy
time are the whole to the last one. The page's bubble is that of one iteration, by the same rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import polars as pl

from workbench.pipelines.idle import Order, Span, split
from workbench.pipelines.rows import actions
from workbench.pipelines.schedule import Action, Schedule
from workbench.pipelines.theory import Times, makespan_s
from workbench.pipelines.theory import bubble as planned_bubble

PARTS = ("busy_ns", "warm_up_ns", "imbalance_ns", "communication_ns", "fault_ns")
_SCHEMA = pl.Schema(
    {
        "iteration": pl.Int64(), "replica": pl.Int32(), "rank": pl.Int32(), "whole_ns": pl.Int64(),
        **dict.fromkeys(PARTS, pl.Int64()),
    }
)  # fmt: skip
_NEVER = 2**62  # ns: a rank that did not go on


@dataclass(frozen=True)
class Bubble:
    """What was measured of a schedule, beside what was to be expected."""

    parts: pl.DataFrame  # iteration, replica, rank, whole_ns = the sum of PARTS
    measured: float  # idle share of the ranks' time; NaN if no iteration is complete
    predicted: float  # by the schedule, were all stages alike
    explained: float  # by the schedule, with each stage as long as it was measured
    makespan_s: float  # of an iteration, the median
    planned_s: float  # by the schedule, were all stages alike

    def by_rank(self) -> pl.DataFrame:
        """rank, busy, warm_up, imbalance, communication, fault: shares of its time, 1 together."""
        total = self.parts.group_by("rank").agg(pl.col("whole_ns", *PARTS).sum()).sort("rank")
        shares = {name.removesuffix("_ns"): pl.col(name) / pl.col("whole_ns") for name in PARTS}
        return total.select("rank", **shares)


def measure(
    events: pl.DataFrame,
    schedule: Schedule,
    *,
    pads_ns: Sequence[float] | None = None,
    last: int | None = None,
) -> Bubble:
    """The bubble of every complete iteration, or of the ``last`` ones.

    ``pads_ns``: what F, I and W are padded to, which then are the times of the plan; without, they
    are the means over stages of the measured medians: of the iteration itself where its idle time
    is split, of all of them for what is predicted.
    """
    done = actions(events, schedule)
    complete = (
        done.group_by("replica", "iteration")
        .agg(pl.len())
        .filter(pl.col("len") == sum(map(len, schedule.rows)))
        .sort("iteration", "replica")
    )
    if last is not None:
        newest = complete["iteration"].unique().sort().tail(last)
        complete = complete.filter(pl.col("iteration").is_in(newest.implode()))
    done = done.join(complete, on=["replica", "iteration"], how="semi")
    own = stage_times(done, schedule)
    equal = alike(own, pads_ns)
    order, frozen = Order(schedule), frozen_spans(events)
    rows: list[dict[str, int]] = []
    for (replica, iteration), part in done.group_by(["replica", "iteration"], maintain_order=True):
        spans = {
            Action.parse(name): (start, end)
            for name, start, end in part.select("action", "start_ns", "end_ns").iter_rows()
        }
        first = replica * schedule.ranks
        still = {place: frozen.get(first + place, []) for place in range(schedule.ranks)}
        for place, found in enumerate(_shares(order, spans, still, pads_ns)):
            rows.append(
                {"iteration": iteration, "replica": replica, "rank": first + place, **found}
            )
    parts = pl.DataFrame(rows, schema=_SCHEMA).sort("iteration", "rank")
    whole, busy = int(parts["whole_ns"].sum()), int(parts["busy_ns"].sum())
    each = parts.group_by("iteration", "replica").agg(pl.col("whole_ns").first())["whole_ns"]
    median = each.median()
    return Bubble(
        parts,
        measured=1 - busy / whole if whole else float("nan"),
        predicted=planned_bubble(schedule, equal) if rows else float("nan"),
        explained=planned_bubble(schedule, own) if rows else float("nan"),
        makespan_s=median * 1e-9 if isinstance(median, float) else float("nan"),
        planned_s=makespan_s(schedule, equal) if rows else float("nan"),
    )


def shares(events: pl.DataFrame, facts: Mapping[str, Any] | None) -> pl.DataFrame:
    """rank, busy, warm_up, imbalance, communication, fault, planned; empty where no rows are told.

    ``facts``: ``run.pipeline`` of a run's header. ``planned``: the share that the schedule leaves
    idle.
    """
    schedule = Schedule.from_facts(facts or {})
    names = ("busy", "warm_up", "imbalance", "communication", "fault", "planned")
    nothing = pl.DataFrame(schema={"rank": pl.Int32(), **dict.fromkeys(names, pl.Float64())})
    if schedule is None or facts is None:
        return nothing
    pads = facts.get("pads_ms")
    found = measure(events, schedule, pads_ns=[one * 1e6 for one in pads] if pads else None)
    if not found.parts.height:
        return nothing
    return found.by_rank().with_columns(planned=pl.lit(found.predicted))


# -- times --


def stage_times(done: pl.DataFrame, schedule: Schedule) -> Times:
    """The median seconds of F, I and W on each stage; a whole backward counts as I with no W,
    where a stage has no other.
    """
    medians = {
        (row["stage"], row["what"]): row["took"] * 1e-9
        for row in done.group_by("stage", "what")
        .agg(took=(pl.col("end_ns") - pl.col("start_ns")).median())
        .iter_rows(named=True)
    }

    def of(*kinds: str) -> list[float]:
        """The first of these that a stage has."""
        return [
            next((medians[stage, kind] for kind in kinds if (stage, kind) in medians), 0.0)
            for stage in range(schedule.stages)
        ]

    return Times(of("F"), of("I", "B"), of("W"))


def alike(times: Times, pads_ns: Sequence[float] | None = None) -> Times:
    """The same for all stages: the pads, or else the mean."""
    if pads_ns is not None:
        return Times(*(one * 1e-9 for one in pads_ns))
    parts = times.forward, times.input_gradient, times.weight_gradient
    return Times(*(one if isinstance(one, int | float) else fmean(one) for one in parts))


def frozen_spans(events: pl.DataFrame) -> dict[int, list[Span]]:
    """When each rank stood still: as long as a fault of the experiment says, or until a thaw."""
    kind, name = pl.col("kind").cast(pl.String), pl.col("name").cast(pl.String)
    found: dict[int, list[Span]] = {}
    marks = events.filter(kind == "fault", name.is_in(["freeze", "thaw"])).sort("start_ns")
    for row in marks.iter_rows(named=True):
        own = row["rank"] >= 0  # the rank itself says so, not the driver
        rank, at = row["rank"] if own else row["peer"], row["start_ns"]
        if row["name"] == "thaw":
            found[rank] = [(start, min(end, at)) for start, end in found.get(rank, ())]
        else:
            lasts = own and row["value"] == row["value"]
            end = at + int(row["value"] * 1e9 + 0.5) if lasts else _NEVER
            found.setdefault(rank, []).append((at, end))
    return found


# -- one iteration --


def _shares(
    order: Order,
    spans: Mapping[Action, Span],
    frozen: Mapping[int, Sequence[Span]],
    pads_ns: Sequence[float] | None,
) -> list[dict[str, int]]:
    """The parts of each rank in one iteration."""
    begin, end = min(a for a, _ in spans.values()), max(b for _, b in spans.values())
    whole = {"whole_ns": end - begin, **dict.fromkeys(PARTS, 0), "busy_ns": end - begin}
    found = [dict(whole) for _ in order.schedule.rows]
    for place, why, start, stop in split(order, spans, frozen, pads_ns):
        found[place][f"{why}_ns"] += stop - start
        found[place]["busy_ns"] -= stop - start
    return found
