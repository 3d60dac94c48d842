"""Iterations of an attached job, by the steps of its optimizers: rows say to which one they belong.

An iteration ends with ``optimizer.step()``. Of several optimizers the one with the most steps
counts, so that a loop over two of them is one iteration.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from workbench.process_group import session as sessions
from workbench.recording.events import OPTIMIZER, Where, now


@cache
def count() -> None:
    """Count iterations from now on, in this process."""
    steps: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
    began: dict[int, int] = {}

    def before(optimizer: Any, *_: Any) -> None:
        began[id(optimizer)] = now()

    def after(optimizer: Any, *_: Any) -> None:
        start, recorder = began.pop(id(optimizer), 0), _recorder()
        steps[optimizer] = steps.get(optimizer, 0) + 1
        if recorder is None or not start:
            return
        lane = recorder.lane("compute")
        lane.context(where=recorder.where)
        lane.write(OPTIMIZER, start, now())
        recorder.where = Where(iteration=max(recorder.where.iteration, steps[optimizer]))

    hooks: list[tuple[Callable[..., Any], Callable[..., None]]] = [
        (register_optimizer_step_pre_hook, before),
        (register_optimizer_step_post_hook, after),
    ]
    for register, hook in hooks:
        register(hook)


def _recorder() -> Any:
    """Return the recorder of this process; None before its first group."""
    session = sessions._current
    return None if session is None or not session.attached else session.recorder
