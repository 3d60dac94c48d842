"""Exercises of chapter 17: ranks that come and go."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from workbench.common.errors import WorkbenchError
from workbench.exercises.answers import function, number
from workbench.exercises.exercise import Exercise
from workbench.exercises.grade import call
from workbench.exercises.recorded import experiment, finished
from workbench.exercises.verdict import Finding, equal, near
from workbench.runs.run import start

JOB = experiment(
    ranks=(2, 4),
    iterations=100_000,
    batch_size=48,
    dtype="float64",
    threads=1,
    recovery="shrink",
    pad_compute="5 ms",
)


def ten_changes(answer: float) -> list[Finding]:
    """Judge the goodput of ten changes per hour by its definition."""
    why = "Ten times half a second of 3,600: a thousandth is lost, less than most expect."
    return [near("goodput", round(1 - 10 * 0.5 / 3600, 4), answer, 0.0005, why)]


def five_changes(autumn: Callable[..., Any]) -> list[Finding]:
    """Judge a function that changes a live run by the generations that it has made."""
    record = start(JOB)
    late = threading.Timer(90, record.stop)
    late.start()
    try:
        call(autumn, record)
    finally:
        late.cancel()
        record.stop()
    record.wait(60, check=False, progress=False)
    recovered = [*record.recovery()]
    if len(recovered) < 5:
        raise WorkbenchError(
            f"autumn(run) has returned after {len(recovered)} changes of the team. Expected: 5. "
            "run.recovery() lists those that are done; wait for each before you ask for the next"
        )
    losses = record.result.losses
    exp = JOB.replace(strategy="sequential", ranks=1, min_ranks=None, recovery="abort")
    alone = finished(exp.replace(pad_compute=None, iterations=len(losses))).result.losses
    apart = max(abs(a - b) for a, b in zip(losses, alone, strict=True))
    sizes = [4, *(len(_team(record, generation)) for generation in range(1, 6))]
    why = "Four go down to two, one by one, and then up again."
    return [
        equal("ranks of each team", [4, 3, 2, 3, 4, 3], sizes, why),
        Finding(
            "losses of one process",
            apart < 1e-12,
            "apart by less than 1e-12",
            f"{apart:.0e}",
            "The mean is over the samples of the minibatch, whichever ranks take them.",
        ),
    ]


def _team(record: Any, generation: int) -> set[int]:
    rows = record.events.filter(kind="optimizer", generation=generation)
    return {*rows["rank"]}


EXERCISES = (
    Exercise(
        name="17.1",
        title="Ten changes an hour",
        difficulty=1,
        minutes=5,
        takes=number("share, 0 to 1"),
        judge=ten_changes,
        task="""
            Ranks come and go ten times an hour, and each change costs half a second, in which
            nobody trains. What goodput is left?
            """,
        hint="Goodput is the share of the time that passed in iterations that count.",
        solution="$1 - 5/3600 = 0.9986$.",
    ),
    Exercise(
        name="17.2",
        title="Shrink and grow",
        difficulty=3,
        minutes=25,
        takes=function("autumn(run)"),
        judge=five_changes,
        task="""
            Write `autumn(run)`: while a run goes on with up to four ranks and at least two, remove
            ranks until two train, add ranks until four do, and so on, five changes in all: 4, 3,
            2, 3, 4, 3 ranks. The grader compares the losses with those of one process.
            """,
        hint="""
            `run.remove_rank(rank)`, `run.add_rank()`; `len(run.recovery())` counts the changes that
            are done; between two of them let a few iterations pass (`run.iteration`).
            """,
        solution="""
            ```python
            def autumn(run):
                for change, ask in enumerate(
                    [
                        lambda: run.remove_rank(3),
                        lambda: run.remove_rank(2),
                        run.add_rank,
                        run.add_rank,
                        lambda: run.remove_rank(3),
                    ]
                ):
                    here = run.iteration
                    while run.iteration < here + 5:
                        time.sleep(0.05)
                    ask()
                    while len(run.recovery()) <= change:
                        time.sleep(0.05)
            ```
            """,
    ),
)
