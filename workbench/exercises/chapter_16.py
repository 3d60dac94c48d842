"""Exercises of chapter 16: checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from workbench.exercises.answers import names, numbers
from workbench.exercises.exercise import Exercise
from workbench.exercises.verdict import Finding, equal, near
from workbench.formulas.checkpoint_interval import young
from workbench.studies.drift.drift import drift

OWN = ("parameters", "optimizer state", "sampler position")


def thousand_machines(answer: Mapping[str, float]) -> list[Finding]:
    """Judge Young's interval and what is lost by the formula."""
    cost, mtbf = 300.0, 3 * 3600.0
    tau = young(cost, mtbf)
    lost = cost / tau + tau / (2 * mtbf)
    why = (
        "Half of it goes into checkpoints, half into repeated work. Twice the machines: half "
        "the time between failures, and both grow by a root of two. That is why large jobs keep "
        "copies in a neighbor's memory: a cost of a second brings it to 1.4 %."
    )
    return [
        near("minutes between two checkpoints", round(tau / 60, 1), answer["minutes"], 0.03),
        near("share of time lost", round(lost, 3), answer["share"], 0.03, why),
    ]


def what_is_needed(answer: Sequence[str]) -> list[Finding]:
    """Judge which parts are needed by leaving each out of a real resumption."""
    report = drift("data_parallel", ranks=2, iterations=30, resumes_at=15, optimizer="adam")
    report.wait(300, progress=False)
    needed = {"parameters"}
    for part, bug in (
        ("optimizer state", "no optimizer state"),
        ("sampler position", "no sampler position"),
    ):
        if report.findings[bug].kind == "bug":
            needed.add(part)
    why = "Without either, training goes on but differs; drift reports both as bugs."
    return [equal("needed", sorted(needed), sorted(set(answer)), why)]


EXERCISES = (
    Exercise(
        name="16.1",
        title="A thousand machines",
        difficulty=2,
        minutes=10,
        takes=numbers("minutes", "share"),
        judge=thousand_machines,
        task="""
            A job on 1,000 machines fails every three hours and writes a checkpoint in 5 minutes.
            How many minutes should lie between two checkpoints, by Young's formula, and which share
            of the time is lost, to checkpoints and to what is done again?
            """,
        hint="$\\tau = \\sqrt{2CM}$; what is lost is $C/\\tau + \\tau/2M$.",
        solution="$\\sqrt{2 \\cdot 5 \\cdot 180} = 42.4$ minutes, and $2 \\cdot 5/42.4 = 0.236$.",
    ),
    Exercise(
        name="16.2",
        title="What belongs in it?",
        difficulty=1,
        minutes=5,
        takes=names(f"some of {', '.join(map(repr, OWN))}", '["parameters", ...]'),
        judge=what_is_needed,
        task="""
            Which of "parameters", "optimizer state" and "sampler position" must a checkpoint of
            training with Adam hold, so that resumed training is the same? The grader leaves each
            out.
            """,
        hint="Which of them shape what comes after the interruption?",
        solution="All three.",
    ),
)
