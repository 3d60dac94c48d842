"""Tables of a pipeline's actions and stages, and of how long each iteration's ranks idled.

Moments are milliseconds since the run's first recorded event, as in tables.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import polars as pl

from workbench.analysis import stages
from workbench.analysis.tables import event_origin, lasts, moment

p = pl.col
_SPLIT = {
    "stage": pl.Int64(),
    "layers": pl.Int64(),
    "begins_with": pl.String(),
    "parameters": pl.Int64(),
    "cut_bytes": pl.Int64(),
}
_HELD = ("in_flight", "activations", "memory")


def actions(events: pl.DataFrame) -> pl.DataFrame:
    """Return a row per action of a pipeline: see ``Run.actions``."""
    began = event_origin(events)
    rows = stages.actions(events).filter(p("iteration") >= 0)
    flight = (p("what") == "F").cast(pl.Int64) - p("what").is_in(["B", "W"]).cast(pl.Int64)
    return (
        rows.sort("rank", "start_ns")
        .with_columns(
            action=pl.format("{}{}{}", "stage", "what", "microbatch"),
            start_ms=moment("start_ns", began),
            took_ms=lasts(),
            in_flight=flight.cum_sum().over("rank"),
        )
        .select(
            *("rank", "iteration", "action", "stage", "what", "microbatch"),
            *("start_ms", "took_ms", "version", "in_flight"),
        )
    )


def idle_by_iteration(events: pl.DataFrame, facts: Mapping[str, Any] | None) -> pl.DataFrame:
    """Return columns iteration, idle, took_ms: see ``Run.bubble``."""
    facts = facts or {"flush": True, "ranks": 1}
    table, rank = actions(events), p("rank")
    key = ["iteration", "replica"]
    if not facts["flush"]:  # iterations overlap: the whole run is one
        table = table.with_columns(iteration=pl.lit(-1, pl.Int64))
    end = p("start_ms") + p("took_ms")
    each = (
        table.group_by("iteration", replica=rank // facts["ranks"])
        .agg(
            busy=p("took_ms").sum(),
            took_ms=end.max() - p("start_ms").min(),
            count=pl.len(),
        )
        .filter(p("count") == p("count").max())
        .sort(key)
    )
    return (
        each.group_by("iteration")
        .agg(
            idle=1 - p("busy").sum() / (p("took_ms").sum() * facts["ranks"]),
            took_ms=p("took_ms").mean(),
        )
        .sort("iteration")
    )


def stage_table(events: pl.DataFrame, metadata: Mapping[str, str]) -> pl.DataFrame:
    """Return a row per stage of a pipeline: see ``Run.stages``."""
    model = json.loads(metadata.get("model", "{}"))
    layers = model.get("layers", [])
    cut, memory = model.get("cut", []), model.get("memory", [])
    of_stage: dict[int, list[dict[str, Any]]] = {}
    for layer in layers:
        of_stage.setdefault(layer["stage"], []).append(layer)
    split = pl.DataFrame(
        [
            (
                stage,
                len(own),
                own[0]["name"] or own[0]["op"],
                sum(one["parameters"] for one in own),
                cut[stage]["bytes"] if stage < len(cut) else None,
            )
            for stage, own in sorted(of_stage.items())
        ],
        schema=_SPLIT,
        orient="row",
    )
    settled = events.filter(p("iteration") != 0)
    times = stages.stages(settled if (events["iteration"] > 0).any() else events)
    whole = p("backward_ms").fill_null(p("input_ms") + p("weight_ms"))
    metrics = events.filter(p("kind").cast(pl.String) == "metric")
    named = metrics["name"].cast(pl.String)
    flight = metrics.filter(named == "in flight").group_by("stage")
    held = metrics.filter(named == "activations").group_by("rank")
    planned = pl.DataFrame(
        [(rank, int(nbytes)) for rank, nbytes in enumerate(memory)],
        schema={"rank": pl.Int32(), "memory": pl.Int64()},
        orient="row",
    )
    return (
        times.select("stage", "rank", "forward_ms", backward_ms=whole)
        .join(split, on="stage", how="left")
        .join(flight.agg(in_flight=p("value").max().cast(pl.Int64)), on="stage", how="left")
        .join(held.agg(activations=p("value").max().cast(pl.Int64)), on="rank", how="left")
        .join(planned, on="rank", how="left")
        .select("stage", "rank", *list(_SPLIT)[1:], "forward_ms", "backward_ms", *_HELD)
        .sort("stage")
    )
