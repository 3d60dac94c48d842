"""A task's loss without its model: what it calls the model with, and what it makes of an answer.

A task says ``loss(model, batch)`` and calls the model once inside. The first stage of a pipeline
needs the arguments of that call, the last one the loss of what came out at the other end: in both a
stand-in takes the model's place.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch

from workbench.errors import WorkbenchError


class _Called(BaseException):
    """Leaves the task's loss with the arguments that it called the model with. Not an Exception:
    no ``except`` of the task may swallow it.
    """

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__()
        self.positional, self.named = args, kwargs


class _Asking(torch.nn.Module):
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise _Called(args, kwargs)


class _Answering(torch.nn.Module):
    def __init__(self, given: Any) -> None:
        super().__init__()
        self.given, self.calls = given, 0

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        if self.calls > 1:
            raise WorkbenchError(
                "the task's loss or metrics calls the model twice for a batch; a pipeline runs it "
                "once: call it once and use its output again"
            )
        return self.given


def arguments(task: Any, model: torch.nn.Module, batch: Any) -> tuple[Any, ...]:
    """What the task's loss calls the model with for this batch, as positional arguments."""
    try:
        task.loss(_Asking(), batch)
    except _Called as called:
        if not called.named:
            return called.positional
        bound = inspect.signature(model.forward).bind(*called.positional, **called.named)
        return bound.args
    raise WorkbenchError("the task's loss does not call the model: there is nothing to cut")


def answering(given: Any) -> torch.nn.Module:
    """A model that answers ``given``, whatever it is asked."""
    return _Answering(given)
