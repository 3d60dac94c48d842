"""Exercises of chapter 22: wrong updates that raise no error."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from workbench.auditing.audit import audit
from workbench.exercises.answers import choices, function, numbers
from workbench.exercises.exercise import Exercise
from workbench.exercises.verdict import Finding, equal, near
from workbench.exercises.wrong_updates import BUGS
from workbench.user_code.capture import write_out

# What the audit said of each bug: python -m tests.exercises.record_updates records it again.
FILE = Path(__file__).with_name("updates.json")
PARAMETERS = ("all", "norm", "up.weight", "down.weight", "bias")
STEP = """
import torch.distributed as dist
from workbench.exercises import wrong_updates

wrong_updates.average = {name}
dist.init_process_group("gloo")
wrong_updates.train(dist.get_rank(), dist.get_world_size())
"""


def recorded() -> dict[str, dict[str, Any]]:
    """Return what the audit said of each bug: ``parameter``, one of PARAMETERS; ``factor``, 1 where
    it named none; ``sentence``.
    """
    result: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    return result


def parameters(answer: Mapping[str, str]) -> list[Finding]:
    """Judge by what the audit said of each program."""
    records = recorded()
    return [
        equal(f"bug {bug}", records[bug]["parameter"], answer[bug], records[bug]["sentence"])
        for bug in BUGS
    ]


def factors(answer: Mapping[str, float]) -> list[Finding]:
    """Judge by what the audit said of the four programs that scale a gradient."""
    records = recorded()
    return [
        near(
            f"bug {bug}",
            round(records[bug]["factor"], 3),
            answer[bug],
            0.01,
            records[bug]["sentence"],
        )
        for bug in answer
    ]


def averages(average: Callable[..., Any]) -> list[Finding]:
    """Judge by an audit of the step with the reader's function in it."""
    name, code = write_out(average)
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "step.py")
        script.write_text(code + STEP.format(name=name), encoding="utf-8")
        report = audit(script, ranks=4, progress=False)
    return [equal("verdict of the audit", "RIGHT", report.verdict, report.sentence)]


EXERCISES = (
    Exercise(
        name="22.1",
        title="Which parameter goes wrong?",
        difficulty=2,
        minutes=15,
        takes=choices(BUGS, *PARAMETERS),
        judge=parameters,
        task="""
            For each of the ten bugs: which gradient is not the one that is due? Say `"all"` where
            every parameter's is wrong, and `"norm"` for the two of the normalization.
            """,
        hint="""
            Where in the step is the bug: in the loss, on the way back through the model, in the sum
            over ranks, or in what is done to all gradients at the end?
            """,
        solution="""
            a, e, h, i and j concern all parameters, b and g the normalization, c `up.weight`, d the
            bias, f `down.weight`.
            """,
    ),
    Exercise(
        name="22.2",
        title="By which factor?",
        difficulty=2,
        minutes=10,
        takes=numbers("a", "d", "e", "h"),
        judge=factors,
        task="""
            Four of the bugs scale a gradient. By how much is it larger than the one that is due, in
            each of them?
            """,
        hint="""
            For d, count how often the bias is in the scores, and how often the gradient that a rank
            uses counts it.
            """,
        solution="""
            a: 2, the sum of two pairs. d: 0.5; both ranks of a pair add the bias, so it counts
            twice in the loss, and each rank's gradient counts it once. e: 2, two means are added.
            h: 0.5, since two pairs are divided by four ranks.
            """,
    ),
    Exercise(
        name="22.3",
        title="Write the reduction",
        difficulty=3,
        minutes=15,
        takes=function("average(name, grad, pair, same)"),
        judge=averages,
        task="""
            `average(name, grad, pair, same)` is called on each of the four ranks for each
            parameter, in the same order. It must leave in `grad` the gradient of the mean over the
            samples of both pairs. `pair` is the group of the ranks that split the model, `same`
            that of the ranks that hold the same part of it. The audit judges the whole step.
            """,
        hint="""
            Which parameter does a rank have whole although it has seen only half of the pair's
            tokens with it?
            """,
        solution="""
            ```python
            def average(name, grad, pair, same):
                if name.startswith("norm"):
                    dist.all_reduce(grad, group=pair)
                dist.all_reduce(grad, group=same)
                grad /= 2
            ```
            """,
    ),
)
