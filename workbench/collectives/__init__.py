"""Collective algorithms, one small file each: ``<operation>_<algorithm>.py`` defines
``<operation>``.

An all-reduce takes a communicator and a flat array or tensor ``x_N``, the same N and dtype on every
rank, combines it over the ranks in place and returns it. A user's own takes ``(comm, x)``, with
``x`` a flat tensor, and returns the sum or leaves it in ``x``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from workbench.arrays import SUM
from workbench.errors import CollectiveError


def users_own(function: Callable[..., Any]) -> Callable[..., Any]:
    """A user's ``f(comm, x)`` or ``f(comm, x, reduce)`` as one of ours."""
    reduces = len(inspect.signature(function).parameters) > 2

    def all_reduce(comm: Any, x_N: Any, reduce: str = SUM) -> Any:
        x = torch.from_numpy(x_N) if isinstance(x_N, np.ndarray) else x_N
        if reduces:
            result = function(comm, x, reduce)
        elif reduce == SUM:
            result = function(comm, x)
        else:
            raise CollectiveError(
                f"{function.__name__}(comm, x) sums; {reduce} was asked for: "
                "give it a third parameter, reduce"
            )
        return x if result is None else result

    return all_reduce
