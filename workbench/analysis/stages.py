"""Sums over a pipeline's rows: times of stages, activations held, memory. Pure functions.

``rows`` are those of the newest iterations that staged_rows.py picks of the event table, and
``plan`` is what is known of the schedule (``run.pipeline`` in the header; None: nothing).

    bubble       why each rank of the pipeline idles, as shares of an iteration
    stages       what a microbatch's forward, input gradient, weight gradient take on each stage
    activations  bytes that autograd holds on each rank over time, microbatches in flight by stage
    memory       the most bytes that each rank has held, against the limit
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import polars as pl

from workbench.common.units import size_bytes
from workbench.experiment.stored import settings
from workbench.training.pipelines.bubble import shares
from workbench.training.pipelines.rows import KINDS, letter

KEEP = 16  # newest iterations that are kept, and that medians are of
SHOWN = 2  # newest iterations of which activations are drawn
Plan = Mapping[str, Any]
_REASONS = (
    "rank",
    "busy",
    "warm_up",
    "imbalance",
    "communication",
    "fault",
    "idle",
    "planned",
)

_TIMES = pl.Schema(
    {
        "stage": pl.Int64(),
        "rank": pl.Int32(),
        "forward_ms": pl.Float64(),
        "input_ms": pl.Float64(),
        "weight_ms": pl.Float64(),
        "backward_ms": pl.Float64(),
        "pad_ms": pl.Float64(),
    }
)


def plan(metadata: Mapping[str, str]) -> Plan | None:
    """Return the strategy's description of its schedule; None if there is none."""
    facts = json.loads(metadata.get("pipeline", "null"))
    return facts if isinstance(facts, dict) else None


def limit_bytes(metadata: Mapping[str, str]) -> int | None:
    """Return the experiment's memory limit of a rank."""
    limit = settings(metadata).get("memory_limit")
    return None if limit is None else size_bytes(limit)


def actions(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of computing, with ``what``: F, I, W or B, as in a schedule's actions."""
    computes = pl.col("kind").cast(pl.String).is_in(KINDS)
    return rows.filter(computes & (pl.col("microbatch") >= 0)).with_columns(what=letter())


def stages(rows: pl.DataFrame, plan: Plan | None = None) -> pl.DataFrame:
    """Return columns stage, rank (the first of the stage), and medians of times.

    The medians are over microbatches, iterations and replicas: forward_ms, input_ms, weight_ms,
    backward_ms (whole), null where there are none; pad_ms: what forward and backward together are
    padded to, null if they are not.
    """
    p, names = pl.col, {"F": "forward", "I": "input", "W": "weight", "B": "backward"}
    took = (p("end_ns") - p("start_ns")) / 1e6
    pads = (plan or {}).get("pads_ms")
    return (
        actions(rows)
        .group_by("stage")
        .agg(
            p("rank").min(),
            *(
                took.filter(p("what") == what).median().alias(f"{name}_ms")
                for what, name in names.items()
            ),
        )
        .sort("stage")
        .with_columns(pad_ms=pl.lit(sum(pads) if pads else None, pl.Float64()))
        .select(p(name).cast(_TIMES[name]) for name in _TIMES)
    )


def complete(rows: pl.DataFrame) -> pl.DataFrame:
    """Return iteration, start_ns, end_ns of iterations with all actions, oldest first."""
    p = pl.col
    each = (
        actions(rows)
        .group_by("iteration")
        .agg(p("start_ns").min(), p("end_ns").max(), many=pl.len())
    )
    return each.filter(p("many") == p("many").max()).sort("iteration").drop("many")


def bubble(rows: pl.DataFrame, plan: Plan | None = None) -> pl.DataFrame:
    """Return columns rank, busy, the reasons of idle time, and planned.

    The reasons are warm_up, imbalance, communication, fault and idle (not told apart); busy and
    reasons are shares, together 1. planned: the share that the schedule alone leaves idle, null if
    not known.

    Only complete iterations count, without the run's first if there are others. Without a flush:
    the time from when every rank was at work until the first rank was done.
    """
    if plan is None or plan.get("flush", True):
        result = shares(rows.filter(pl.col("iteration") > 0), plan)
        result = result if result.height else shares(rows, plan)
        return result.select(*_REASONS[:-2], idle=pl.lit(0.0), planned="planned")
    p, done = pl.col, actions(rows)
    each = done.group_by("rank").agg(p("start_ns").min(), p("end_ns").max())
    begin, end = each["start_ns"].max(), each["end_ns"].min()
    if not isinstance(begin, int) or not isinstance(end, int) or begin >= end:
        return pl.DataFrame(schema=dict.fromkeys(_REASONS, pl.Float64()) | {"rank": pl.Int32()})
    inside = (p("end_ns").clip(begin, end) - p("start_ns").clip(begin, end)).sum()
    return (
        done.group_by("rank")
        .agg(busy=inside / (end - begin))
        .sort("rank")
        .with_columns(pl.lit(0.0).alias(name) for name in _REASONS[2:-2])
        .with_columns(idle=1 - p("busy"), planned=pl.lit(plan.get("bubble"), pl.Float64()))
    )


def activations(rows: pl.DataFrame, plan: Plan | None = None, origin: int = 0) -> pl.DataFrame:
    """Return columns what, rank, stage, iteration, seconds, value, most, of the first replica.

    what "bytes"      held on ``rank`` for backward passes; ``most``: at the most that the schedule
                      has in flight, by what a microbatch in flight holds
         "in flight"  microbatches of ``stage``; ``most``: by the schedule, null if there is none
    Of the newest iterations that are complete, SHOWN of them.
    """
    p, schema = pl.col, {"stage": pl.Int64(), "most": pl.Float64()}
    shown = complete(rows).tail(SHOWN)
    first = shown["start_ns"].min() if shown.height else 0
    last = shown["end_ns"].max() if shown.height else -1
    table = (
        rows.filter(
            (p("kind").cast(pl.String) == "metric")
            & p("name").cast(pl.String).is_in(["activations", "in flight"])
            & p("end_ns").is_between(first, last)
            & (p("rank") < (plan["ranks"] if plan else 2**31 - 1))
        )
        .sort("end_ns", "seq")
        .select(
            what=p("name").cast(pl.String).replace("activations", "bytes"),
            rank="rank",
            stage="stage",
            iteration="iteration",
            seconds=(p("end_ns") - origin) * 1e-9,
            value="value",
        )
    )
    peaks = pl.DataFrame(
        list(enumerate((plan or {}).get("peaks") or [])), schema=schema, orient="row"
    )
    in_flight = table.filter(what="in flight").join(
        peaks, on="stage", how="left", maintain_order="left"
    )
    by_rank = (
        in_flight.group_by("rank", "stage")
        .agg(p("value").max(), p("most").first())
        .group_by("rank")
        .agg(share=p("most").sum() / p("value").sum())
        .filter(p("share") > 0)
    )
    held = table.filter(what="bytes").join(by_rank, on="rank", how="left", maintain_order="left")
    held = held.with_columns(most=p("value").max().over("rank") * p("share")).drop("share")
    return pl.concat([held, in_flight.select(held.columns)])


def memory(most: Mapping[int, float], limit: int | None) -> pl.DataFrame:
    """Return columns rank, nbytes (the most that it has held so far), limit (null: none)."""
    return pl.DataFrame(
        [(rank, int(nbytes), limit) for rank, nbytes in sorted(most.items())],
        schema={"rank": pl.Int32(), "nbytes": pl.Int64(), "limit": pl.Int64()},
        orient="row",
    )
