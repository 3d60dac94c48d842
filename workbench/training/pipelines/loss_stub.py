"""A task's loss without its model: its arguments for the model, and its loss of a given output.

A task defines ``loss(model, batch)`` and calls the model once inside. The first stage of a pipeline
needs the arguments of that call; the last one needs the loss of the last stage's output. Both pass
a stub instead of the model.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch

from workbench.common.errors import WorkbenchError


class _Called(BaseException):
    """Leaves the task's loss with the arguments of its call of the model.

    Not an Exception, so that no ``except`` of the task can catch it.
    """

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__()
        self.positional, self.named = args, kwargs


class _Asking(torch.nn.Module):
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise _Called(args, kwargs)


class _Answering(torch.nn.Module):
    def __init__(self, output: Any) -> None:
        super().__init__()
        self.output, self.calls = output, 0

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        if self.calls > 1:
            raise WorkbenchError(
                "the task's loss or metrics calls the model twice for a batch; a pipeline runs it "
                "once: call it once and use its output again"
            )
        return self.output


def arguments(task: Any, model: torch.nn.Module, batch: Any) -> tuple[Any, ...]:
    """Return the positional arguments with which the task's loss calls the model for this batch."""
    try:
        task.loss(_Asking(), batch)
    except _Called as called:
        if not called.named:
            return called.positional
        bound = inspect.signature(model.forward).bind(*called.positional, **called.named)
        return bound.args
    raise WorkbenchError("the task's loss does not call the model: there is nothing to cut")


def answering(output: Any) -> torch.nn.Module:
    """Return a model whose output is always ``output``."""
    return _Answering(output)
