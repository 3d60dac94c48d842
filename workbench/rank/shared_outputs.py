"""The outputs of a forward pass, used once more for the metrics of the same samples.

Where a task's metrics call the model with what its loss has just called it with, and no layer does
anything else in evaluation than in training, they get the output that is there: the metrics of a
minibatch then cost microseconds in place of one more forward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from types import FunctionType
from typing import Any, NamedTuple

import torch
from torch import nn

_KNOWN = "torch.nn.modules.", "workbench.tasks."  # modules of layers that hide nothing from us


class _Call(NamedTuple):
    """One call of the model: its arguments, its output, and how often each had been written to."""

    arguments: tuple[Any, ...]
    output: torch.Tensor
    versions: list[int]


class Outputs:
    """The calls of ``model`` in a training pass, from now on until ``stop``."""

    def __init__(self, model: nn.Module) -> None:
        self._model, self._calls = model, list[_Call]()
        self.stop: Callable[[], None] = lambda: None
        if not model._forward_hooks and all(map(_is_same_in_evaluation, model.modules())):
            self.stop = model.register_forward_hook(self._keep, with_kwargs=True).remove

    def _keep(
        self, _: nn.Module, arguments: tuple[Any, ...], named: Mapping[str, Any], output: Any
    ) -> None:
        if not named and all(isinstance(one, torch.Tensor) for one in (*arguments, output)):
            self._calls.append(_Call(arguments, output, _versions(*arguments, output)))

    @contextmanager
    def given_again(self) -> Iterator[None]:
        """Have the model answer the same calls with the same outputs, without computing them."""
        if not self._calls:
            yield
            return
        forward, own = self._model.forward, vars(self._model)

        def answer(*arguments: Any, **named: Any) -> Any:
            output = None if named else self._output(arguments)
            return forward(*arguments, **named) if output is None else output

        own["forward"] = answer
        try:
            yield
        finally:
            del own["forward"]

    def _output(self, arguments: tuple[Any, ...]) -> torch.Tensor | None:
        """Return what the model made of these very tensors, if nobody has written to them since."""
        for call in self._calls:
            if len(call.arguments) == len(arguments) and all(
                one is other for one, other in zip(call.arguments, arguments, strict=True)
            ):
                same = _versions(*arguments, call.output) == call.versions
                return call.output.detach() if same else None
        return None


def _versions(*tensors: torch.Tensor) -> list[int]:
    return [one._version for one in tensors]


def _is_same_in_evaluation(layer: nn.Module) -> bool:
    kind: Any = type(layer)
    return "forward" not in vars(layer) and _never_asks(kind)


@lru_cache
def _never_asks(kind: Any) -> bool:
    """Return whether a layer of this class surely computes the same in training and in evaluation:
    its code is known, and never asks which it is.
    """
    own = kind.__mro__[: kind.__mro__.index(nn.Module)]
    codes = (one for part in own for one in vars(part).values() if isinstance(one, FunctionType))
    known = all(part.__module__.startswith(_KNOWN) for part in own)
    return known and not any("training" in one.__code__.co_names for one in codes)
