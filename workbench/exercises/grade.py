"""Grade an answer: check its kind, let the judge look at it, keep the result."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from workbench.common.arguments import Text, Unfit, checked
from workbench.common.errors import SpecError, WorkbenchError, short
from workbench.exercises import progress_file
from workbench.exercises.catalogue import exercise
from workbench.exercises.verdict import Finding, Verdict


@checked
def grade(name: Text, answer: Any = ...) -> Verdict:
    """Judge ``answer`` to the exercise ``name`` ("01.2"), and keep whether it is solved.

    The judge runs real ranks where that takes any, and goes by what they record: bytes, steps,
    time, memory, staleness. The verdict says what was expected, what was received, and why. With
    ``...`` as the answer nothing runs: the verdict displays the exercise.

    Raises SpecError if there is no such exercise, or the answer is of another kind than it takes.

    >>> wb.grade("01.2", 60)
    """
    task = exercise(name)
    if answer is ...:
        return Verdict(task.name, task.title, (), task=task)
    try:
        value = task.takes.take(answer)
    except Unfit as error:
        raise SpecError(f"wb.grade: answer = {short(answer)}: must be {error}") from None
    began = time.perf_counter()
    try:
        findings = [*task.judge(value)]
    except WorkbenchError as error:  # of what the reader wrote, on the ranks or before they began
        findings = [Finding("what you wrote runs", False, "no error", str(error))]
    verdict = Verdict(task.name, task.title, findings, time.perf_counter() - began)
    progress_file.keep_answer(task.name, verdict.solved)
    return verdict


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function of the reader's gives. Raises WorkbenchError, with its error, where it
    fails: that is a finding.
    """
    try:
        return function(*arguments)
    except Exception as error:
        words = ", ".join(map(short, arguments))
        raise WorkbenchError(
            f"{getattr(function, '__name__', 'your function')}({words}) raised "
            f"{type(error).__name__}: {error}"
        ) from error
