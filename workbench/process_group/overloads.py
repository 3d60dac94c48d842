"""The forms in which torch takes an operation, put into one: lists of tensors, and options.

``group.allreduce(x, ReduceOp.MAX)`` is what torch.distributed itself writes as
``group.allreduce([x], options)``: one tensor stands for a list; root, reduction and time limit for
their options.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch


def options(kind: Any, argument: Any, timeout: timedelta | None = None, **fields: Any) -> Any:
    """Return ``argument`` if it is options of that kind, else new ones.

    ``argument`` may be the first of the ``fields``, or the timeout where there are none. A field
    that is None stays as torch has it.
    """
    if isinstance(argument, kind):
        return argument
    first = next(iter(fields), "timeout")
    values = {"timeout": timeout, **fields}
    if values[first] is None:
        values[first] = argument
    result = kind()
    for name, value in values.items():
        if value is not None:
            setattr(result, name, value)
    return result


def several(x: Any) -> list[torch.Tensor]:
    """Return one tensor as a list."""
    return [x] if isinstance(x, torch.Tensor) else x


def lists(parts: Any, other: Any) -> Any:
    """Return ``parts`` as lists of tensors: it is one if the call's other end is a tensor."""
    return [parts] if isinstance(other, torch.Tensor) else parts
