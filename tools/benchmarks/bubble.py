"""Padded equal stages: the makespan and the bubble as measured, against the schedule's plan."""

from __future__ import annotations

import itertools
import statistics
from dataclasses import dataclass

import polars as pl
from rich.console import Console
from rich.table import Table

import workbench as wb
from tools.benchmarks.figures import Figure
from workbench.training.pipelines import bubble
from workbench.training.pipelines.schedule import build

SCHEDULES = {"gpipe": 1, "1f1b": 1, "interleaved_1f1b": 2, "zb_h1": 1}  # stages a rank
RANKS, MICROBATCHES = (2, 4), (4, 8, 16, 32)
PAD, ITERATIONS = "20 ms", 5
LONGER, WIDER, RECORDING = 3.0, 0.02, 1.0  # %, share of the ranks' time, % of a step


@dataclass(frozen=True)
class Case:
    """Medians over iterations."""

    schedule: str
    ranks: int
    microbatches: int
    planned_s: float
    makespan_s: float
    planned: float  # the bubble: idle share of the ranks' time
    measured: float
    recording: float  # its share of the run

    @property
    def longer(self) -> float:
        """Than the plan, in %."""
        return (self.makespan_s / self.planned_s - 1) * 100


def run(name: str, ranks: int, microbatches: int) -> Case:
    options = {
        "schedule": name,
        "microbatches": microbatches,
        "stages_per_rank": SCHEDULES[name],
    }
    exp = wb.Experiment(
        strategy="pipeline",
        options=options,
        task="lenet_digits",
        ranks=ranks,
        threads=1,
        batch_size=4 * microbatches,
        iterations=ITERATIONS,
        pad_compute=PAD,
    )
    live = wb.run(exp)
    live.wait(120)
    schedule = build(name, ranks=ranks, microbatches=microbatches, stages_per_rank=SCHEDULES[name])
    measured = bubble.measure(live.events, schedule, pads_ns=exp.pads_ns)
    sums = measured.parts.group_by("iteration").agg(pl.col("busy_ns", "whole_ns").sum())
    shares = (1 - sums["busy_ns"] / sums["whole_ns"]).to_list()
    return Case(
        name,
        ranks,
        microbatches,
        measured.planned_s,
        measured.makespan_s,
        measured.predicted,
        statistics.median(shares),
        live.overhead().share,
    )


def show(cases: list[Case]) -> None:
    title = "K ranks, M microbatches; medians of iterations; rec.: what recording takes of the step"
    table = Table(title=title, title_justify="left")
    for column in (
        "schedule",
        "K",
        "M",
        "planned ms",
        "measured",
        "longer %",
        "bubble",
        "measured",
        "rec. %",
    ):
        table.add_column(column, justify="left" if column == "schedule" else "right")
    for one in cases:
        table.add_row(
            one.schedule,
            str(one.ranks),
            str(one.microbatches),
            f"{one.planned_s * 1e3:.0f}",
            f"{one.makespan_s * 1e3:.1f}",
            f"{one.longer:.2f}",
            f"{one.planned:.4f}",
            f"{one.measured:.4f}",
            f"{one.recording * 100:.2f}",
        )
    Console().print(table)


def measure() -> list[Figure]:
    combinations = itertools.product(SCHEDULES, RANKS, MICROBATCHES)
    cases = [run(*one) for one in combinations]
    show(cases)
    figures = []
    for name in SCHEDULES:
        mine = [one for one in cases if one.schedule == name]
        longest = max(mine, key=lambda one: abs(one.longer))
        widest = max(mine, key=lambda one: abs(one.measured - one.planned))
        figures += [
            Figure(
                f"{name}: makespan, off the plan",
                abs(longest.longer),
                LONGER,
                "%",
                False,
                f"worst: K={longest.ranks}, M={longest.microbatches}",
            ),
            Figure(
                f"{name}: bubble, off the plan's",
                abs(widest.measured - widest.planned),
                WIDER,
                "",
                False,
                f"worst: {widest.measured:.4f}, planned {widest.planned:.4f}, "
                f"K={widest.ranks}, M={widest.microbatches}",
            ),
        ]
    shares = [one.recording * 100 for one in cases]
    detail = f"up to {max(shares):.2f} %"
    median = statistics.median(shares)
    figures.append(
        Figure("recording, padded runs", median, RECORDING, "% of the step", False, detail)
    )
    return figures
