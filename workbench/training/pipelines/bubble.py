"""The bubble of a pipeline, measured and split by its causes.

It covers every complete iteration of every replica, from its first action to its last one.
``idle.py`` finds why its ranks idle; this module adds that up. All times are whole nanoseconds, so
busy time and the components sum exactly to the whole. The page computes the bubble of one iteration
by the same rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import polars as pl

from workbench.recording.events import OVERRUN
from workbench.training.pipelines.idle import Order, Span, covered, split
from workbench.training.pipelines.rows import actions
from workbench.training.pipelines.schedule import Action, Schedule
from workbench.training.pipelines.theory import Times, makespan_s
from workbench.training.pipelines.theory import bubble as planned_bubble

PARTS = ("busy_ns", "warm_up_ns", "imbalance_ns", "communication_ns", "fault_ns")
_SCHEMA = pl.Schema(
    {
        "iteration": pl.Int64(),
        "replica": pl.Int32(),
        "rank": pl.Int32(),
        "whole_ns": pl.Int64(),
        **dict.fromkeys(PARTS, pl.Int64()),
        "overrun": pl.Boolean(),
    }
)
_NEVER = 2**62  # ns: a rank that did not go on


@dataclass(frozen=True)
class Bubble:
    """The measured bubble of a schedule, beside the expected one."""

    # iteration, replica, rank, whole_ns = the sum of PARTS; overrun: a pad of that iteration was
    parts: pl.DataFrame
    measured: float  # idle share of the ranks' time; NaN if no iteration is complete
    predicted: float  # by the schedule, were all stages alike
    explained: float  # by the schedule, with each stage as long as it was measured
    makespan_s: float  # of an iteration, the median
    planned_s: float  # by the schedule, were all stages alike

    def by_rank(self) -> pl.DataFrame:
        """Return each rank's shares of its time, which sum to 1.

        Columns rank, busy, warm_up, imbalance, communication, fault.
        """
        total = _fit(self.parts).group_by("rank").agg(pl.col("whole_ns", *PARTS).sum()).sort("rank")
        shares = {name.removesuffix("_ns"): pl.col(name) / pl.col("whole_ns") for name in PARTS}
        return total.select("rank", **shares)


def measure(
    events: pl.DataFrame,
    schedule: Schedule,
    *,
    pads_ns: Sequence[float] | None = None,
    last: int | None = None,
) -> Bubble:
    """Measure the bubble of every complete iteration, or of the ``last`` ones.

    ``pads_ns``: the padded times of F, I and W, which are then the plan's times. Without pads the
    plan uses means over stages of the measured medians: medians of the iteration itself to split
    its idle time, of all iterations for the prediction. An iteration in which a pad was overrun
    does not measure a padded plan: ``parts`` lists it, and all other fields leave it out where
    others exist.
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
    parts = _parts(done, events, schedule, pads_ns)
    fit = _fit(parts)
    times = stage_times(done.join(fit, on=["replica", "iteration"], how="semi"), schedule)
    equal = alike(times, pads_ns)
    whole, busy = int(fit["whole_ns"].sum()), int(fit["busy_ns"].sum())
    each = fit.group_by("iteration", "replica").agg(pl.col("whole_ns").first())["whole_ns"]
    median = each.median()
    return Bubble(
        parts,
        measured=1 - busy / whole if whole else float("nan"),
        predicted=planned_bubble(schedule, equal) if parts.height else float("nan"),
        explained=planned_bubble(schedule, times) if parts.height else float("nan"),
        makespan_s=median * 1e-9 if isinstance(median, float) else float("nan"),
        planned_s=makespan_s(schedule, equal) if parts.height else float("nan"),
    )


def _parts(
    done: pl.DataFrame,
    events: pl.DataFrame,
    schedule: Schedule,
    pads_ns: Sequence[float] | None,
) -> pl.DataFrame:
    """Return the components of each rank's time in each iteration of ``done``: a row each."""
    over = set(overrun(events, schedule).rows())
    order, frozen = Order(schedule), frozen_spans(events)
    rows: list[dict[str, int]] = []
    for (replica, iteration), part in done.group_by(["replica", "iteration"], maintain_order=True):
        spans = {
            Action.parse(name): (start, end)
            for name, start, end in part.select("action", "start_ns", "end_ns").iter_rows()
        }
        first = replica * schedule.ranks
        still = {place: frozen.get(first + place, []) for place in range(schedule.ranks)}
        for place, share in enumerate(_shares(order, spans, still, pads_ns)):
            rows.append(
                {
                    "iteration": iteration,
                    "replica": replica,
                    "rank": first + place,
                    **share,
                    "overrun": (replica, iteration) in over,
                }
            )
    return pl.DataFrame(rows, schema=_SCHEMA).sort("iteration", "rank")


def _fit(parts: pl.DataFrame) -> pl.DataFrame:
    """Return the rows without an overrun pad; all rows where none is left."""
    kept = parts.filter(~pl.col("overrun"))
    return kept if kept.height else parts


def shares(events: pl.DataFrame, facts: Mapping[str, Any] | None) -> pl.DataFrame:
    """Return each rank's shares of time; empty where the header has no rows of a schedule.

    Columns rank, busy, warm_up, imbalance, communication, fault, planned. ``facts``:
    ``run.pipeline`` of a run's header. ``planned``: the share that the schedule leaves idle.
    """
    schedule = Schedule.from_facts(facts or {})
    names = ("busy", "warm_up", "imbalance", "communication", "fault", "planned")
    nothing = pl.DataFrame(schema={"rank": pl.Int32(), **dict.fromkeys(names, pl.Float64())})
    if schedule is None or facts is None:
        return nothing
    pads = facts.get("pads_ms")
    measured = measure(events, schedule, pads_ns=[one * 1e6 for one in pads] if pads else None)
    if not measured.parts.height:
        return nothing
    return measured.by_rank().with_columns(planned=pl.lit(measured.predicted))


# -- times --


def stage_times(done: pl.DataFrame, schedule: Schedule) -> Times:
    """Return the median seconds of F, I and W on each stage.

    A whole backward counts as I without W, where a stage has no other.
    """
    medians = {
        (row["stage"], row["what"]): row["took"] * 1e-9
        for row in done.group_by("stage", "what")
        .agg(took=(pl.col("end_ns") - pl.col("start_ns")).median())
        .iter_rows(named=True)
    }

    def of(*kinds: str) -> list[float]:
        """Return each stage's time of the first of these kinds that it has."""
        return [
            next((medians[stage, kind] for kind in kinds if (stage, kind) in medians), 0.0)
            for stage in range(schedule.stages)
        ]

    return Times(of("F"), of("I", "B"), of("W"))


def alike(times: Times, pads_ns: Sequence[float] | None = None) -> Times:
    """Return the same times for all stages: the pads, or else the mean."""
    if pads_ns is not None:
        return Times(*(one * 1e-9 for one in pads_ns))
    parts = times.forward, times.input_gradient, times.weight_gradient
    return Times(*(one if isinstance(one, int | float) else fmean(one) for one in parts))


def overrun(events: pl.DataFrame, schedule: Schedule) -> pl.DataFrame:
    """Return (replica, iteration) in which a pad was overrun although its rank was not frozen.

    The iteration is -1 where nothing flushes.
    """
    kind, name = pl.col("kind").cast(pl.String), pl.col("name").cast(pl.String)
    marks = events.filter(kind == "metric", name == OVERRUN)
    frozen = frozen_spans(events) if marks.height else {}
    overruns = [
        not covered((end - int(ms * 1e6), end), frozen.get(rank, ()))
        for rank, end, ms in marks.select("rank", "end_ns", "value").iter_rows()
    ]
    iteration = pl.col("iteration") if schedule.flush else pl.lit(-1, pl.Int64)
    return (
        marks.filter(pl.Series(overruns, dtype=pl.Boolean))
        .select(replica=pl.col("rank") // schedule.ranks, iteration=iteration)
        .unique()
    )


def frozen_spans(events: pl.DataFrame) -> dict[int, list[Span]]:
    """Return the spans in which each rank was frozen: for a fault's duration, or until a thaw."""
    kind, name = pl.col("kind").cast(pl.String), pl.col("name").cast(pl.String)
    spans: dict[int, list[Span]] = {}
    marks = events.filter(kind == "fault", name.is_in(["freeze", "thaw"])).sort("start_ns")
    for row in marks.iter_rows(named=True):
        by_rank = row["rank"] >= 0  # in older records; else the driver says so
        rank, at = row["rank"] if by_rank else row["peer"], row["start_ns"]
        if row["name"] == "thaw":
            spans[rank] = [(start, min(end, at)) for start, end in spans.get(rank, ())]
        else:
            lasts = row["value"] == row["value"]  # else until the user thaws it
            end = at + int(row["value"] * 1e9 + 0.5) if lasts else _NEVER
            spans.setdefault(rank, []).append((at, end))
    return spans


# -- one iteration --


def _shares(
    order: Order,
    spans: Mapping[Action, Span],
    frozen: Mapping[int, Sequence[Span]],
    pads_ns: Sequence[float] | None,
) -> list[dict[str, int]]:
    """Return the components of each rank's time in one iteration."""
    begin, end = min(a for a, _ in spans.values()), max(b for _, b in spans.values())
    whole = {"whole_ns": end - begin, **dict.fromkeys(PARTS, 0), "busy_ns": end - begin}
    dealt = [dict(whole) for _ in order.schedule.rows]
    for place, why, start, stop in split(order, spans, frozen, pads_ns):
        dealt[place][f"{why}_ns"] += stop - start
        dealt[place]["busy_ns"] -= stop - start
    return dealt
