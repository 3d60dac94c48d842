"""The outputs of a forward pass, used once more for the metrics of the same samples.

Where a task's metrics call the model with what its loss has just called it with, and no layer does
anything else in evaluation than in training, they get the output that is there: the metrics of a
minibatch then cost microseconds instead of one more forward pass.
"""

from __future__ import annotations

from functools import cache
from operator import attrgetter, is_
from types import FunctionType
from typing import Any, NamedTuple

import torch
from torch import nn

from workbench.rank.validation import aside

_KNOWN = "torch.nn.modules.", "workbench.tasks."  # modules of layers that hide nothing from us
_version = attrgetter("_version")


class _Call(NamedTuple):
    """One call of the model: its arguments, its output, and how often each had been written to."""

    arguments: tuple[Any, ...]
    output: torch.Tensor
    versions: list[int]


class Outputs:
    """The calls of ``model`` in a training pass, from ``keep`` until ``stop``.

    Its layers are looked at once.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model, self._forward = model, model.forward
        self._calls: list[_Call] = []
        self._are_same = all(map(_is_same_in_evaluation, model.modules()))

    def keep(self) -> None:
        """Keep calls from now on, where they may stand for calls in evaluation."""
        self._calls.clear()
        if self._are_same:
            vars(self.model)["forward"] = self._call

    def stop(self) -> None:
        """Keep no more calls."""
        if self._are_same:
            del vars(self.model)["forward"]

    def measure(self, task: Any, batch: Any) -> dict[str, float]:
        """Return the task's metrics of a batch, without a trace in the training. The model answers
        calls that were kept without computing them; no layer need be told of evaluation then. They
        are forgotten.
        """
        if not self._calls:
            return aside(task, self.model, batch)
        own, random = vars(self.model), torch.default_generator.get_state()
        training, own["training"], own["forward"] = own["training"], False, self._answer
        try:
            with torch.set_grad_enabled(False):  # as `no_grad`, which takes twice as many calls
                result: dict[str, float] = task.metrics(self.model, batch)
        finally:
            own["training"] = training
            del own["forward"]
            self._calls.clear()
            torch.default_generator.set_state(random)
        return result

    def _call(self, *arguments: Any, **named: Any) -> Any:
        output = self._forward(*arguments, **named)
        if not named and all(isinstance(one, torch.Tensor) for one in (*arguments, output)):
            self._calls.append(_Call(arguments, output, _versions(*arguments, output)))
        return output

    def _answer(self, *arguments: Any, **named: Any) -> Any:
        """Return what the model made of these very tensors, if they were not written to since."""
        for call in () if named else self._calls:
            if len(call.arguments) == len(arguments) and all(map(is_, call.arguments, arguments)):
                if _versions(*arguments, call.output) == call.versions:
                    return call.output.detach()
                break
        return self._forward(*arguments, **named)


def _versions(*tensors: torch.Tensor) -> list[int]:
    return [*map(_version, tensors)]


def _is_same_in_evaluation(layer: nn.Module) -> bool:
    kind: Any = type(layer)
    return "forward" not in vars(layer) and _never_asks(kind)


@cache
def _never_asks(kind: Any) -> bool:
    """Return whether a layer of this class surely computes the same in training and in evaluation:
    its code is known, and never asks which it is.
    """
    own = kind.__mro__[: kind.__mro__.index(nn.Module)]
    codes = (one for part in own for one in vars(part).values() if isinstance(one, FunctionType))
    known = all(part.__module__.startswith(_KNOWN) for part in own)
    return known and not any("training" in one.__code__.co_names for one in codes)


# Torch's own layers are looked at before ranks are forked: else each rank would look at their code
# itself, and a fork copies the pages.
_torchs: list[Any] = [one for one in vars(nn.modules).values() if isinstance(one, type)]
for _kind in _torchs:
    if issubclass(_kind, nn.Module):
        _never_asks(_kind)
