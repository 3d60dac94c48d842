"""A task's model without its memory: layers and shapes, on torch's meta device.

The driver looks at some models before any rank starts. In a web app their numbers are a visitor's,
so that the server must hold none of them: a layer of a trillion weights costs a few kilobytes here.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.overrides import TorchFunctionMode

from workbench.common.errors import SpecError
from workbench.common.extensions import PACKAGE

_only = ContextVar("blueprints only", default=False)
MOST_TENSORS = 1_024  # parameters: each takes some 4 KB and 0.2 ms, whatever its shape
Seen = TypeVar("Seen")


def look_at_model(task: Any, look: Callable[[nn.Module], Seen]) -> Seen:
    """Return what ``look`` says of the task's model; of its blueprint within ``blueprints_only``.

    Raises SpecError for a model that cannot be made.
    """
    return look(blueprint(task) if _only.get() and is_ours(task) else task.model())


@contextlib.contextmanager
def blueprints_only() -> Iterator[None]:
    """Within it the driver looks at blueprints only: numbers of a model are a stranger's."""
    token = _only.set(True)
    try:
        yield
    finally:
        _only.reset(token)


def is_ours(task: Any) -> bool:
    """Return whether the task's class is one of this package's, whose models need no numbers."""
    return type(task).__module__.startswith(f"{PACKAGE}.tasks.")


def blueprint(task: Any) -> nn.Module:
    """Return the task's model on the meta device. Raises SpecError where it cannot be made, or has
    more than MOST_TENSORS parameters.
    """
    try:
        with _few_parameters(), torch.device("meta"), _Uninitialized():
            model: nn.Module = task.model()
    except SpecError:
        raise
    except Exception as error:  # of a number that no tensor has, say
        why = str(error).strip().splitlines()[0][:200] if str(error).strip() else ""
        raise SpecError.at(
            "task_options", f"its model cannot be made of these ({type(error).__name__}: {why})"
        ) from None
    return model


class _Uninitialized(TorchFunctionMode):
    """Leaves values undrawn: there are none, and torch would import 70 MB of modules for it."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        named = kwargs or {}
        if func is torch.Tensor.normal_ or getattr(func, "__module__", "") == nn.init.__name__:
            return named["tensor"] if "tensor" in named else args[0]
        return func(*args, **named)


@contextlib.contextmanager
def _few_parameters() -> Iterator[None]:
    """Raise SpecError once the models that this thread makes have more than MOST_TENSORS."""
    me, count = threading.get_ident(), 0

    def note(*_: object) -> None:
        nonlocal count
        if threading.get_ident() != me:  # torch asks the hooks of all threads
            return
        count += 1
        if count > MOST_TENSORS:
            raise SpecError.at(
                "task_options",
                f"its model has more than {MOST_TENSORS:,} tensors of parameters: take fewer "
                "layers",
            )

    hook = register_module_parameter_registration_hook(note)
    try:
        yield
    finally:
        hook.remove()
