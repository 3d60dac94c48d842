"""Exercises of chapter 7: a schedule of one's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workbench.exercises.answers import function
from workbench.exercises.chapter_06 import idle, in_flight, pipeline
from workbench.exercises.exercise import Exercise
from workbench.exercises.recorded import finished
from workbench.exercises.verdict import Finding, at_most
from workbench.training.pipelines import theory
from workbench.training.pipelines.laws import check_pipeline
from workbench.training.pipelines.schedule import build


def judged(rows: Callable[..., Any], most: float) -> list[Finding]:
    """Judge a schedule: its laws and what it holds by the record, its bubble by the plan."""
    schedule = build(rows, ranks=4, microbatches=8)
    record = finished(pipeline(rows))
    broken = check_pipeline(record.events, schedule, iterations=record.experiment.iterations)
    law = "every action once, in order, none before what it needs"
    held = max(in_flight(record, rank) for rank in range(4))
    measured = f"Measured on this machine just now: {idle(record, schedule):.3f}."
    return [
        Finding("it runs as planned", not broken, law, str(broken[0]) if broken else law),
        at_most("microbatches held at any stage", 4, held, "1F1B holds four on rank 0."),
        at_most("bubble of the plan", most, round(theory.bubble(schedule), 3), measured),
    ]


TASK = """
    Four ranks, eight microbatches, every F, I and W 20 ms. 1F1B leaves the ranks idle for more than
    a quarter of the time. Write a schedule that is accepted, holds no more than **4** microbatches
    at any stage at any time, as much as 1F1B does, and leaves the ranks idle for no more than
"""

EXERCISES = (
    Exercise(
        name="07.1",
        title="Better than 1F1B",
        difficulty=2,
        minutes=30,
        takes=function("mine(ranks, microbatches, stages_per_rank)"),
        judge=lambda rows: judged(rows, 0.22),
        task=TASK.rstrip() + " **0.22** of the time.",
        hint="""
            A weight gradient waits for nobody: split B into I and W, do I at once, and W when there
            is nothing else to do.
            """,
        solution="""
            The greedy rule, which stands in the next section: its plan has a bubble of 0.172.
            """,
    ),
    Exercise(
        name="07.2",
        title="As good as ZB-H1",
        difficulty=3,
        minutes=40,
        takes=function("mine(ranks, microbatches, stages_per_rank)"),
        judge=lambda rows: judged(rows, 0.15),
        task=TASK.rstrip() + " **0.15** of the time. A greedy rule does not reach that.",
        hint="The later the stage, the longer it idles at the end: there, W may wait longest.",
        solution="`apart` of the chapter, which is ZB-H1: stage $d$ keeps $d$ of W back.",
    ),
)
