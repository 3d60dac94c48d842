"""Exercises of chapter 3: consistency."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from workbench.exercises.answers import function, number
from workbench.exercises.exercise import Exercise
from workbench.exercises.models import Digits
from workbench.exercises.recorded import experiment, finished
from workbench.exercises.verdict import Finding, at_least, at_most, timed
from workbench.experiment.faults import Freeze, Jitter, Slow
from workbench.runs.run import Run

JOB = experiment(
    strategy="parameter_server",
    task=Digits,
    ranks=5,
    iterations=40,
    lr=0.2,
    pad_compute="10 ms",
)


def asleep(answer: float) -> list[Finding]:
    """Judge by the iterations that others do while one worker is frozen under SSP."""
    exp = JOB.replace(
        options={"consistency": "ssp", "staleness": 3},
        faults=(Freeze(rank=2, at_iteration=10, seconds=1.0),),
    )
    ahead = max(lead(finished(exp), worker, of=2) for worker in (1, 3, 4))
    words = f"30 to {10 * (ahead + 1)} ms: others came {ahead} iterations ahead and stopped there"
    why = "Each of the others may do three iterations more than the server got of the sleeper."
    ok = 30 <= answer <= 10 * (ahead + 1)
    return [Finding("milliseconds until another worker notices", ok, words, f"{answer:g}", why)]


def unlucky(answer: float) -> list[Finding]:
    """Judge the share of waiting under BSP by its expected value and by the record."""
    jitter = (Jitter(probability=0.5, factor=2),)
    record = finished(JOB.replace(options={"consistency": "bsp"}, faults=jitter))
    why = (
        "An iteration lasts 10 or 20 ms, 15 on average, as before. The slowest of four lasts 10 ms "
        "with probability 1/16, else 20: 19.4 on average. 1 - 15 / 19.4 = 0.23, and before it was "
        "0.44. What counts is not the mean but how far the slowest is from it."
    )
    return [timed("share of time waiting", 0.226, waiting_share(record), answer, 0.1, why)]


def a_pair(rule: Callable[..., Any]) -> list[Finding]:
    """Judge a rule by the leads of workers 1 and 2 over each other, and of 3 and 4 over them."""
    slow = (Slow(rank=1, factor=4),)
    record = finished(JOB.replace(options={"consistency": rule}, faults=slow, iterations=24))
    held = "Worker 1 is four times as slow; worker 2 has to wait for it in every iteration."
    free = "Workers 3 and 4 do not wait, so they are far ahead of worker 1 in the end."
    return [
        at_most("lead of worker 2 over worker 1", 0, lead(record, 2, of=1), held),
        at_most("lead of worker 1 over worker 2", 0, lead(record, 1, of=2)),
        at_least("lead of worker 3 over worker 1", 8, lead(record, 3, of=1), free),
        at_least("lead of worker 4 over worker 1", 8, lead(record, 4, of=1)),
    ]


def lead(record: Run, worker: int, of: int) -> int:
    """Return the most iterations that ``worker`` started ahead of what another had taken in."""
    starts = record.events.filter(kind="clock", rank=worker).sort("start_ns")
    accepted = record.events.filter(kind="apply", peer=of)["end_ns"].sort()
    apply_counts = [accepted.search_sorted(at, side="right") for at in starts["start_ns"]]
    leads = zip(starts["iteration"], apply_counts, strict=True)
    return max(int(iteration - done) for iteration, done in leads)


def waiting_share(record: Run) -> float:
    """Return the share of a worker's time in which it does not compute."""
    rows = record.events.filter(pl.col("rank") > 0)
    padded = ["load", "forward", "backward"]
    took = (pl.col("end_ns") - pl.col("start_ns")).sum()
    busy = rows.filter(pl.col("kind").is_in(padded)).select(took).item() / 4
    whole: Any = rows.select(pl.col("end_ns").max() - pl.col("start_ns").min()).item()
    return 1 - float(busy) / float(whole)


EXERCISES = (
    Exercise(
        name="03.1",
        title="How long may a worker sleep?",
        difficulty=1,
        minutes=5,
        takes=number("milliseconds"),
        judge=asleep,
        task="""
            SSP with bound 3, iterations of 10 ms, all workers equally fast. One of them is frozen.
            How long may it sleep before another worker notices, that is, has to wait?
            """,
        hint="How many iterations may the others still start, and how long do they last?",
        solution="""
            30 to 40 ms: the others may start iterations $a$ to $a + 3$, where $a$ is the number of
            the frozen worker's gradients received so far. The part of iteration $a$ that was over
            when the worker froze makes the difference.
            """,
    ),
    Exercise(
        name="03.2",
        title="The same mean, another jitter",
        difficulty=2,
        minutes=10,
        takes=number("share, 0 to 1"),
        judge=unlucky,
        task="""
            `wb.Jitter(probability=0.5, factor=2)`: the mean iteration lasts 15 ms, as with a tenth
            of the iterations six times as long. Which share of its time does one of four workers
            wait under BSP?
            """,
        hint="How long does the slowest of four take, on average? The others wait for that one.",
        solution="""
            The slowest takes $20 - 10/16 = 19.4$ ms on average, so $1 - 15/19.4 = 0.23$ of the time
            is waiting; with the rarer and longer jitter it was 0.44.
            """,
    ),
    Exercise(
        name="03.3",
        title="A pair that waits for each other",
        difficulty=2,
        minutes=15,
        takes=function("rule(worker, iteration, clocks)"),
        judge=a_pair,
        task="""
            Write a rule under which workers 1 and 2 wait for each other, as under BSP, and nobody
            else waits. The grader makes worker 1 four times as slow, and reads the leads.
            """,
        hint="""
            `clocks.accepted` is a dictionary: worker → iterations that the servers have taken in.
            `rule` says whether `worker` may start `iteration`.
            """,
        solution="""
            ```python
            def rule(worker, iteration, clocks):
                if worker not in (1, 2):
                    return True
                return iteration <= clocks.accepted.get(3 - worker, iteration)
            ```
            """,
    ),
)
