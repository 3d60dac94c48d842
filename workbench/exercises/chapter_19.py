"""Exercises of chapter 19: the age of samples, and the lag of policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from workbench.common.errors import WorkbenchError
from workbench.exercises.answers import experiment, function, numbers
from workbench.exercises.exercise import Exercise
from workbench.exercises.grade import call
from workbench.exercises.recorded import finished
from workbench.exercises.verdict import Finding, at_least, at_most, near
from workbench.experiment.spec import Experiment
from workbench.runs.run import Run

ALONE = Experiment(
    strategy="sequential",
    task="catch",
    ranks=1,
    iterations=400,
    batch_size=32,
    optimizer="adam",
    threads=1,
    options={"capacity": 400, "learn_from": 100, "block": 4},
)
WINDOWS = (range(15, 35), range(45, 65), range(250, 400))  # filling, nearly full, full


def mean_age(run: Run, of: range) -> float:
    """Return the mean age of the minibatches of these updates. Raises WorkbenchError where there
    are none.
    """
    ages = run.events.filter(kind="metric", name="sample age")
    mean: Any = ages.filter(pl.col("iteration").is_between(of[0], of[-1]))["value"].mean()
    if mean is None:
        raise WorkbenchError(f"the run has no minibatch in updates {of[0]} to {of[-1]}")
    return float(mean)


def half_the_block(answer: Mapping[str, float]) -> list[Finding]:
    """Judge by a run whose replay is full long before its end."""
    options = {"capacity": 600, "learn_from": 100, "block": 2}
    run = finished(ALONE.replace(iterations=600, options=options))
    return [
        near(
            "mean age in updates",
            mean_age(run, range(300, 600)),
            answer["mean"],
            0.06,
            "C / 2b: half the frames per update, and a transition stays for twice the updates.",
        ),
        near(
            "age in updates of the oldest transition in replay",
            300,
            answer["oldest"],
            0.02,
            "C / b: after so many updates, newer transitions have taken every place.",
        ),
    ]


def before_it_is_full(formula: Callable[..., Any]) -> list[Finding]:
    """Judge a formula by minibatches from when replay fills until long after."""
    run, findings = finished(ALONE), []
    for window in WINDOWS:
        predictions = [call(formula, update, 400, 100, 4) for update in window]
        if not all(isinstance(one, int | float) for one in predictions):
            raise WorkbenchError(f"it must return a number, and returned {predictions[0]!r}")
        words = f"mean age in updates {window[0]} to {window[-1]}"
        why = {
            WINDOWS[0]: "What was played before the first update is as old as the update's number.",
            WINDOWS[1]: "What was played since has ages from 0 to the update's number, evenly.",
            WINDOWS[2]: "Replay is full and holds nothing older than C / b.",
        }[window]
        mean = sum(predictions) / len(predictions)
        findings.append(near(words, round(mean_age(run, window), 1), round(mean, 1), 0.12, why))
    return findings


def young_and_large(answer: Experiment) -> list[Finding]:
    """Judge an experiment by its options and the ages of what it learned from."""
    if answer.strategy != "sequential":
        raise WorkbenchError(f"strategy must be 'sequential', and is {answer.strategy!r}")
    run = finished(answer)
    capacity, block = (answer.options.get(*one) for one in (("capacity", 10_000), ("block", 4)))
    full = -(-capacity // block)
    last = len(run.result.losses)
    return [
        at_least("transitions that replay holds", 800, capacity),
        at_least("updates after replay is full", 100, last - full),
        at_most(
            "mean age in updates of the last 100 minibatches",
            30,
            round(mean_age(run, range(max(0, last - 100), last)), 1),
            "C / 2b: where C must not shrink, b has to grow.",
        ),
    ]


EXERCISES = (
    Exercise(
        name="19.1",
        title="Half the frames per update",
        difficulty=1,
        minutes=5,
        takes=numbers("mean", "oldest"),
        judge=half_the_block,
        task="""
            Let one process play 2 frames per update in place of 4, with a memory of 600
            transitions: `{"capacity": 600, "learn_from": 100, "block": 2}`. Once replay is full:
            how old is what it learns from, on average, and how old is the oldest transition?
            """,
        hint="""
            How many updates does it take until every transition in replay has been replaced?
            """,
        solution="""
            $C / 2b = 600 / 4 = 150$ updates on average, and $C / b = 300$ for the oldest.
            """,
    ),
    Exercise(
        name="19.2",
        title="A large memory of young samples",
        difficulty=2,
        minutes=10,
        takes=experiment('an experiment: alone.replace(options={"capacity": ..., ...})'),
        judge=young_and_large,
        task="""
            Submit an experiment with `strategy="sequential"` on `catch` whose replay holds at
            least 800 transitions, and whose last 100 minibatches are 30 updates old at most, on
            average. Replay must have been full for 100 updates by then.
            """,
        hint="""
            $C/2b \\le 30$ and $C \\ge 800$. Which option is $b$?
            """,
        solution="""
            ```python
            alone.replace(iterations=300, options={"capacity": 800, "learn_from": 100, "block": 16})
            ```

            $800 / 32 = 25$ updates. It costs four times the frames per update. This is what
            actors are for: sixteen frames per update take one process long, and eight actors
            hardly any time.
            """,
    ),
    Exercise(
        name="19.3",
        title="Before replay is full",
        difficulty=3,
        minutes=20,
        takes=function("mean_age(update, capacity, learn_from, block)"),
        judge=before_it_is_full,
        task="""
            $C/2b$ holds once replay is full. Write `mean_age(update, capacity, learn_from, block)`:
            the mean age of what one process learns from in update 0, 1, 2, ..., full or not. Before
            the first update, `learn_from` transitions were played; before each further one, `block`
            more. The grader compares it with what `alone` records.
            """,
        hint="""
            There are two groups. What was played before the first update is `update` updates old,
            all of it. What was played since has ages from 0 to `update`. Which of them leaves
            first?
            """,
        solution="""
            ```python
            def mean_age(update, capacity, learn_from, block):
                held = min(capacity, learn_from + update * block)
                since = min(held, update * block)  # played since the first update
                oldest = since / block  # updates
                return (since * oldest / 2 + (held - since) * update) / held
            ```

            While replay fills, its mean age is *above* half of the update's number: the
            transitions of the beginning are all as old as they can be.
            """,
    ),
)
