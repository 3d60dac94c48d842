"""Futures of tensors for readers in C++: DDP's built-in hook that halves gradients.

A future that is made in Python holds a Python object of any kind, and the hook
(``BuiltinCommHookType.FP16_COMPRESS``) asks for a list of tensors. TorchScript alone makes futures
of such a type: a function of its own waits for ours, without a thread, and returns what it held.
Compiling that takes 0.1 s, so this file is imported only when it is needed.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

_library = torch.library.Library("workbench", "DEF")  # type: ignore[no-untyped-call]
_library.define("listed(Any x) -> Tensor[]")  # type: ignore[no-untyped-call]
_library.impl("listed", list, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]


def _waits(future: torch.jit.Future[Any]) -> list[torch.Tensor]:
    return torch.ops.workbench.listed(torch.jit.wait(future))  # type: ignore


def _as_list(future: torch.jit.Future[Any]) -> torch.jit.Future[list[torch.Tensor]]:
    return torch.jit.fork(_waits, future)  # type: ignore


with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # nothing else makes such futures
    # What a future will hold, a list of tensors, as C++ knows it; what it will raise.
    listed = torch.jit.script(_as_list)
