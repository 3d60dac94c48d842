"""Exercises of chapter 4: stale gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from workbench.exercises.answers import function, number
from workbench.exercises.exercise import Exercise
from workbench.exercises.models import Digits
from workbench.exercises.recorded import experiment, finished
from workbench.exercises.verdict import Finding, at_least, at_most, timed
from workbench.experiment.faults import Slow
from workbench.runs.run import Run

JOB = experiment(
    strategy="parameter_server",
    task=Digits,
    ranks=5,
    iterations=40,
    lr=0.12,
    pad_compute="10 ms",
    options={"consistency": "asp"},
)


def until_first_done(record: Run) -> pl.DataFrame:
    """Return the rows up to the moment at which the first worker has pushed its last gradient."""
    events: pl.DataFrame = record.events
    last = events.filter(kind="push").group_by("rank").agg(pl.col("end_ns").max())
    return events.filter(pl.col("end_ns") <= last["end_ns"].min())


def total(rows: pl.DataFrame, name: str) -> float:
    """Return the sum of a metric."""
    return float(sum(rows.filter(kind="metric", name=name)["value"]))


def six_workers(answer: float) -> list[Finding]:
    """Judge the mean staleness by the record of six workers."""
    rows = until_first_done(finished(JOB.replace(ranks=7)))
    measured: Any = rows.filter(pl.col("iteration") > 2, kind="apply")["value"].mean()
    why = "While one computes a gradient, each of the other W - 1 pushes one."
    return [timed("mean staleness, in updates", 5, measured, answer, 0.05, why)]


def lost_share(answer: float) -> list[Finding]:
    """Judge which share of the samples is dropped by the record of five workers."""
    options = {"consistency": "asp", "stale_gradients": "drop", "drop_above": 1}
    rows = finished(JOB.replace(ranks=6, options=options)).events
    share = total(rows, "dropped") / total(rows, "samples")
    why = "Of five gradients in a row at most d + 1 = 2 have missed no more than d = 1 updates."
    return [timed("share of the work", 0.6, share, answer, 0.05, why)]


def slow_third(answer: float) -> list[Finding]:
    """Judge what dropping a slow worker's gradients loses by the record."""
    options = {
        "consistency": "asp",
        "stale_gradients": "drop",
        "drop_above": 5,
        "shares": (1 / 3, 2 / 9, 2 / 9, 2 / 9),
    }
    exp = JOB.replace(options=options, faults=(Slow(rank=1, factor=3),), iterations=60)
    rows = until_first_done(finished(exp))
    share = total(rows, "dropped") / total(rows, "samples")
    why = "Per unit of time it computes q / f = 1/9 and the others 1 - q = 2/3: 1/9 of 7/9 is 1/7."
    return [timed("share of the work", 1 / 7, share, answer, 0.1, why)]


def fresh_enough(rule: Callable[..., Any]) -> list[Finding]:
    """Judge a rule by the oldest gradient, and by whether a worker can lead at all."""
    exp = JOB.replace(options={"consistency": rule}, faults=(Slow(rank=1, factor=5),))
    record = finished(exp)
    # From the start on: once the others stand at a bound, each new gradient is nearly fresh.
    oldest: Any = record.events.filter(kind="apply")["value"].max()
    starts = record.events.filter(kind="clock", rank=2).sort("start_ns")
    apply_ends = record.events.filter(kind="apply", peer=1)["end_ns"].sort()
    done = [apply_ends.search_sorted(at, side="right") for at in starts["start_ns"]]
    ahead = max(it - own for it, own in zip(starts["iteration"], done, strict=True))
    return [
        at_most(
            "updates that the oldest gradient has missed",
            9,
            int(oldest),
            "With a bound of s on the clocks a gradient misses at most (W - 1)(2s + 1) updates: "
            "9 for s = 1.",
        ),
        at_least(
            "iterations that worker 2 is ahead of worker 1",
            1,
            int(ahead),
            "Under BSP no worker is ahead, and all wait in every iteration.",
        ),
    ]


EXERCISES = (
    Exercise(
        name="04.1",
        title="Six equal workers",
        difficulty=1,
        minutes=5,
        takes=number("updates"),
        judge=six_workers,
        task="Six workers, equally fast, under ASP. How stale is a gradient on average?",
        hint="What does each of the others do while one of them computes a gradient?",
        solution="$W - 1 = 5$ updates.",
    ),
    Exercise(
        name="04.2",
        title="What does a strict rule throw away?",
        difficulty=2,
        minutes=5,
        takes=number("share, 0 to 1"),
        judge=lost_share,
        task="""
            Five workers, equally fast, under ASP, with `stale_gradients="drop"` and `drop_above=1`.
            Which share of all samples that are computed is thrown away?
            """,
        hint="Each of them expects to miss four updates. How many of five in a row are applied?",
        solution="$1 - (d + 1)/W = 1 - 2/5 = 0.6$, with nobody slow at all.",
    ),
    Exercise(
        name="04.3",
        title="A third of the data on a slow worker",
        difficulty=2,
        minutes=10,
        takes=number("share, 0 to 1"),
        judge=slow_third,
        task="""
            Worker 1 takes a third of every minibatch and is three times as slow; all that it sends
            is dropped. Which share of the samples that are computed is lost, until the first worker
            is done?
            """,
        hint="Count samples per unit of time: the slow worker's, and those of the others.",
        solution="$\\frac{q/f}{q/f + 1 - q} = \\frac{1/9}{1/9 + 2/3} = 1/7 = 0.143$.",
    ),
    Exercise(
        name="04.4",
        title="Wait a little, not for everybody",
        difficulty=3,
        minutes=15,
        takes=function("rule(worker, iteration, clocks)"),
        judge=fresh_enough,
        task="""
            Worker 1 is five times as slow as the three others. Write a rule under which no
            gradient misses more than 9 updates, and yet workers may be ahead of the slowest by an
            iteration.
            """,
        hint="`clocks.slowest` counts the iterations of the slowest that were taken in.",
        solution="""
            SSP with bound 1:

            ```python
            def rule(worker, iteration, clocks):
                return iteration - clocks.slowest <= 1
            ```
            """,
    ),
)
