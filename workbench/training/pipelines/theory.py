"""The theory of a pipeline: when each action is done, the bubble, peaks, planned events.

K ranks, v stages per rank, M microbatches. F, I, W: seconds of a stage's forward, input gradient
and weight gradient; a whole backward lasts I + W. ``timeline`` follows the schedule itself, so it
is right for any schedule and any times; ``formulas.py`` has the papers' formulas.

    bubble   idle share of K · makespan
    idle     the same for one rank, in seconds: makespan - v·M·(F+I+W)
    span     from a rank's first action to its last; ZB's papers count the idle time in it
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import polars as pl

from workbench.store.table import SCHEMA
from workbench.training.pipelines.actions import Action, needs, walk
from workbench.training.pipelines.formulas import (
    Case,
    bubble_formula,
    idle_formula,
    peak_formula,
    span_idle_formula,
)
from workbench.training.pipelines.grid import Grid

__all__ = [
    "UNIT",
    "Case",
    "Planned",
    "Times",
    "bubble",
    "bubble_formula",
    "follow",
    "idle_formula",
    "makespan_s",
    "peak_bytes",
    "peak_formula",
    "plan",
    "span_idle_formula",
    "span_idle_s",
    "timeline",
]

Seconds = float | Sequence[float]  # of every stage, or one per stage


@dataclass(frozen=True)
class Times:
    """The durations of a stage's actions, in seconds: one for all stages, or one per stage."""

    forward: Seconds
    input_gradient: Seconds
    weight_gradient: Seconds
    hop: float = 0.0  # from the end of an action until another rank can use its result

    def of(self, action: Action) -> float:
        parts = {
            "F": [self.forward],
            "I": [self.input_gradient],
            "W": [self.weight_gradient],
            "B": [self.input_gradient, self.weight_gradient],
        }[action.kind]
        return sum(one if isinstance(one, int | float) else one[action.stage] for one in parts)


UNIT = Times(1.0, 1.0, 1.0)


class Planned(NamedTuple):
    """An action with its place and time."""

    rank: int  # in the pipeline
    action: Action
    start_s: float
    end_s: float


def timeline(schedule: Grid, times: Times = UNIT) -> tuple[Planned, ...]:
    """Return when each action is done if every rank begins it as soon as it can, in dependency
    order.

    Messages cost only ``times.hop``, and no rank waits to send.
    """
    return follow(schedule, times.of, times.hop)


def follow(
    schedule: Grid, lasts: Callable[[Action], float], hop: float = 0.0
) -> tuple[Planned, ...]:
    """Return ``timeline`` for any durations: ``lasts`` gives that of each action."""
    present = {action for row in schedule.rows for action in row}
    free = [0.0] * schedule.ranks
    done: dict[Action, tuple[int, float]] = {}
    result = []
    for rank, _, action in walk(schedule.rows, schedule.stages)[0]:
        begin = free[rank]
        for one in needs(action, schedule.stages, present):
            where, at = done[one]
            begin = max(begin, at if where == rank else at + hop)
        end = free[rank] = begin + lasts(action)
        done[action] = rank, end
        result.append(Planned(rank, action, begin, end))
    return tuple(result)


def makespan_s(schedule: Grid, times: Times = UNIT) -> float:
    """Return the seconds from the first action's start to the last one's end."""
    return max(one.end_s for one in timeline(schedule, times))


def bubble(schedule: Grid, times: Times = UNIT) -> float:
    """Return the idle share of K · makespan."""
    planned = timeline(schedule, times)
    whole = schedule.ranks * max(one.end_s for one in planned)
    return 1 - sum(one.end_s - one.start_s for one in planned) / whole if whole else 0.0


def span_idle_s(schedule: Grid, times: Times = UNIT) -> tuple[float, ...]:
    """Return the seconds that each rank idles between its first and its last action."""
    result = []
    for rank in range(schedule.ranks):
        mine = [one for one in timeline(schedule, times) if one.rank == rank]
        busy = sum(one.end_s - one.start_s for one in mine)
        result.append(mine[-1].end_s - mine[0].start_s - busy)
    return tuple(result)


def peak_bytes(
    schedule: Grid, activations: Sequence[float], fixed: Sequence[float] | None = None
) -> tuple[float, ...]:
    """Return the most bytes on each rank: activations of all microbatches in flight, and ``fixed``.

    ``activations``: bytes of one microbatch at each stage. ``fixed``: what each stage always holds:
    parameters, gradients, ...
    """
    result = []
    for row in schedule.rows:
        held = peak = 0.0
        for one in row:
            held += activations[one.stage] * ((one.kind == "F") - (one.kind in "BW"))
            peak = max(peak, held)
        result.append(
            peak + sum(fixed[stage] for stage in {one.stage for one in row}) if fixed else peak
        )
    return tuple(result)


# -- planned events --

_ROW_OF = {
    "F": ("forward", ""),
    "B": ("backward", ""),
    "I": ("backward", "input"),
    "W": ("weight_grad", ""),
}


def plan(
    schedule: Grid,
    times: Times = UNIT,
    *,
    nbytes: int = 0,
    start_ns: int = 0,
    iteration: int = 0,
    microbatches: int | None = None,
) -> pl.DataFrame:
    """Return the planned events of a schedule, with the columns and types of a run's table.

    A message of ``nbytes`` bytes leaves at the end of an action whose result another rank needs,
    and arrives ``times.hop`` later. Without a flush the rows are numbered by iteration from
    ``iteration`` on, with ``microbatches`` each.
    """
    each = microbatches or schedule.microbatches
    planned = timeline(schedule, times)
    rows: list[dict[str, object]] = []
    ops: dict[tuple[int, int], int] = {}
    for rank, action, start, end in planned:
        kind, name = _ROW_OF[action.kind]
        when = {
            "iteration": iteration + action.microbatch // each,
            "microbatch": action.microbatch % each,
        }
        row = {"rank": rank, "kind": kind, "name": name, "stage": action.stage, "lane": "compute"}
        rows.append({**row, **when, "start": start, "end": end})
        to = action.stage + (1 if action.kind == "F" else -1)
        if action.kind == "W" or not 0 <= to < schedule.stages or schedule.rank_of[to] == rank:
            continue
        peer = schedule.rank_of[to]
        op = ops[rank, peer] = ops.get((rank, peer), -1) + 1
        message = {
            **when,
            "start": end,
            "end": end + times.hop,
            "collective": "p2p",
            "group": "default",
            "op": op,
            "nbytes": nbytes,
            "name": "activation" if action.kind == "F" else "gradient",
        }
        rows.append(
            {
                **message,
                "rank": rank,
                "peer": peer,
                "stage": action.stage,
                "kind": "send",
                "lane": "send",
            }
        )
        rows.append(
            {**message, "rank": peer, "peer": rank, "stage": to, "kind": "recv", "lane": "recv"}
        )
    return _table(rows, start_ns)


def _table(rows: Sequence[dict[str, object]], start_ns: int) -> pl.DataFrame:
    frame = pl.DataFrame(rows, infer_schema_length=None).with_columns(
        start_ns=start_ns + (pl.col("start") * 1e9).round().cast(pl.Int64),
        end_ns=start_ns + (pl.col("end") * 1e9).round().cast(pl.Int64),
        seq=pl.int_range(pl.len()).over("rank", "lane"),
        generation=pl.lit(0),
    )
    missing = [pl.lit(None).alias(name) for name in SCHEMA if name not in frame.columns]
    return frame.with_columns(missing).select(
        pl.col(name).cast(dtype).fill_null(_nothing(dtype)) for name, dtype in SCHEMA.items()
    )


def _nothing(dtype: pl.DataType) -> object:
    return "" if dtype == pl.Categorical else float("nan") if dtype == pl.Float64 else -1
