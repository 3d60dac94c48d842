"""Exercises of chapter 23: learning from rewards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from workbench.common.errors import WorkbenchError
from workbench.exercises.answers import function, number
from workbench.exercises.exercise import Exercise
from workbench.exercises.grade import call
from workbench.exercises.verdict import Finding, equal, near

RATE, DISCOUNT = 0.1, 0.9
CASES = {  # what is tried -> values of state and of the one after, action, reward, is it over
    "a reward": ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0], 2, 1.0, False),
    "the best action of the next state": ([1.0, 2.0, 3.0], [-4.0, 5.0, 0.5], 0, 0.0, False),
    "a loss": ([0.5, 0.5, 0.5], [-1.0, -2.0, -3.0], 1, -0.25, False),
    "the end of an episode": ([0.5, 4.0, 0.5], [9.0, 9.0, 9.0], 1, 2.0, True),
}


def one_update(update: Callable[..., Any]) -> list[Finding]:
    """Judge an update of the table by what it writes, case after case."""
    findings = []
    for words, (now, following, action, reward, over) in CASES.items():
        aim = reward + (0.0 if over else DISCOUNT * max(following))
        expected = now[action] + RATE * (aim - now[action])
        table = np.array([now, following])
        received = call(update, table, 0, action, reward, 1, over, RATE, DISCOUNT)
        if not isinstance(received, int | float):
            raise WorkbenchError(f"it must return a number, and returned {received!r}")
        why = "A tenth of the way to the reward and the discounted value of the best next action."
        findings.append(near(f"new value after {words}", expected, float(received), 1e-6, why))
    return findings


def actors_needed(answer: float) -> list[Finding]:
    """Judge by frames per second: what learning takes in, and what an actor plays."""
    why = "50 · 4 = 200 frames per second are wanted, and an actor plays 40."
    return [equal("actors", 5, answer, why)]


EXERCISES = (
    Exercise(
        name="23.1",
        title="Write the update",
        difficulty=2,
        minutes=10,
        takes=function("update(Q, state, action, reward, following, over, rate, discount)"),
        judge=one_update,
        task="""
            `Q[state]` has a value for each action. After `action` there was a `reward`, and the
            next state is `following`; `over` says whether the episode ended with it. Return the new
            value of `Q[state][action]`.
            """,
        hint="What is the best value that the next state offers, and what if there is none?",
        solution="""
            ```python
            def update(Q, state, action, reward, following, over, rate, discount):
                aim = reward if over else reward + discount * max(Q[following])
                return Q[state][action] + rate * (aim - Q[state][action])
            ```
            """,
    ),
    Exercise(
        name="23.2",
        title="How many actors?",
        difficulty=1,
        minutes=5,
        takes=number("actors"),
        judge=actors_needed,
        task="""
            A learner makes 50 updates per second and wants four new frames for each. An actor plays
            40 frames per second. How many actors does it need?
            """,
        hint="How many frames per second does the learner want?",
        solution="Five: 200 frames per second, divided by 40.",
    ),
)
