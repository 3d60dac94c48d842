"""Exercises of chapter 15: a rank dies."""

from __future__ import annotations

from collections.abc import Callable
from statistics import mean
from typing import Any

from workbench.common.errors import WorkbenchError, short
from workbench.common.names import listed
from workbench.exercises.answers import function, number
from workbench.exercises.exercise import Exercise
from workbench.exercises.grade import call
from workbench.exercises.recorded import finished
from workbench.exercises.verdict import Finding, at_least, equal
from workbench.exercises.ways import CHOICES, incidents
from workbench.experiment.checkpoint import Checkpoint
from workbench.experiment.faults import Kill
from workbench.experiment.spec import Experiment

JOB = Experiment(
    ranks=4, iterations=24, batch_size=32, optimizer="adam", dtype="float64", threads=1
)


def two_spares(policy: Callable[..., Any]) -> list[Finding]:
    """Judge a recovery policy by three deaths: which ranks came, which were left."""
    deaths = tuple(Kill(rank=rank, at_iteration=at) for rank, at in ((0, 5), (1, 11), (3, 17)))
    record = finished(JOB.replace(recovery=policy, faults=deaths))
    fresh = [len(one.fresh) for one in record.recovery()]
    alone = finished(JOB.replace(strategy="sequential", ranks=1)).result.losses
    apart = max(abs(a - b) for a, b in zip(record.result.losses, alone, strict=True))
    why = "failure.number counts the failures before this one: 0, 1, 2."
    return [
        equal("new processes after each death", [1, 1, 0], fresh, why),
        equal("ranks at the end", 3, len(record.result.digests)),
        Finding(
            "losses of one process",
            apart < 1e-12,
            "apart by less than 1e-12",
            f"{apart:.0e}",
            "The minibatch is shared among the ranks that are there, so no sample is lost.",
        ),
    ]


def done_again(answer: float) -> list[Finding]:
    """Judge the iterations that a restart does again by the record."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        plan = Checkpoint(folder=folder, every=5)
        deaths = (Kill(rank=2, at_iteration=13),)
        record = finished(JOB.replace(recovery="restart", checkpoint=plan, faults=deaths))
        lost = record.recovery()[0].iterations_lost
    why = (
        "The last checkpoint followed iteration 10; 11, 12 and 13 were complete, and are repeated."
    )
    return [equal("iterations", lost, answer, why)]


def skip_wait_abandon_stop(rule: Callable[..., Any]) -> list[Finding]:
    """Judge a rule by the recorded goodput of what it chooses for ten incidents."""
    recorded, chosen = incidents(), []
    for incident, goodput in recorded:
        choice = call(rule, dict(incident))
        if choice not in CHOICES:
            raise WorkbenchError(
                f"rule({incident}) returned {short(choice)}: it returns one of {listed(CHOICES)}"
            )
        chosen.append(goodput[choice])
    ended = sum(not one for one in chosen)
    best = mean(max(goodput.values()) for _, goodput in recorded)
    why = "Waiting, leaving out and restarting each cost something else: compare the seconds."
    return [
        equal("jobs that do not end well", 0, ended, "Nothing that ends a job is worth its cost."),
        at_least("mean goodput", round(0.98 * best, 3), round(mean(chosen), 3), why),
    ]


EXERCISES = (
    Exercise(
        name="15.1",
        title="Two spare processes",
        difficulty=1,
        minutes=10,
        takes=function("policy(failure)"),
        judge=two_spares,
        task="""
            Write a recovery policy that replaces the first two ranks that die, and then goes on
            with fewer. The grader kills three of four.
            """,
        hint="`failure.number` is how many failures there were before this one.",
        solution="""
            ```python
            def policy(failure):
                return failure.replace() if failure.number < 2 else failure.shrink()
            ```
            """,
    ),
    Exercise(
        name="15.2",
        title="What a restart does again",
        difficulty=1,
        minutes=5,
        takes=number("iterations"),
        judge=done_again,
        task="""
            `recovery="restart"` with a checkpoint after every fifth iteration. Rank 2 is killed as
            it begins iteration 14. How many iterations are done again?
            """,
        hint="After which iterations is there a checkpoint?",
        solution="Three: 11, 12 and 13. The newest checkpoint was written after iteration 10.",
    ),
    Exercise(
        name="15.3",
        title="Skip, wait, abandon or stop",
        difficulty=2,
        minutes=15,
        takes=function("rule(incident)"),
        judge=skip_wait_abandon_stop,
        task="""
            Write the rule that decides. `incident` is a dictionary: `what` ("sample", "source",
            "links" or "rank"), `seconds` (how long it is expected to last, `math.inf` if it does
            not end by itself), `struck` of `ranks` are affected, and `restart_seconds`. Return
            "skip" (leave the minibatch out), "wait", "abandon" (go on without those ranks) or
            "stop" (give the machines back, and resume from the checkpoint on others).

            Ten incidents were recorded under each of the four choices. The grader takes the
            goodput of what you choose: at least 98% of the best.
            """,
        hint="Which choices can help at all against each `what`? Which of those is cheapest, and "
        "for how many seconds?",
        solution="""
            ```python
            def rule(incident):
                if incident["what"] == "sample":
                    return "skip"
                if incident["what"] == "source":
                    return "wait" if incident["seconds"] < incident["restart_seconds"] else "stop"
                return "wait" if incident["seconds"] < 1 else "abandon"
            ```

            Waiting does not mend a sample, and no other rank can read a data set that is away.
            Abandoning costs half a second to notice and a new group, so a rank that is late for
            less is worth waiting for.
            """,
    ),
)
