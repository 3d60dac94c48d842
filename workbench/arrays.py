"""Flat arrays: how to copy and combine them, in numpy where it is fast and in torch elsewhere."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from workbench.errors import CollectiveError

SUM, PRODUCT, MIN, MAX = "SUM", "PRODUCT", "MIN", "MAX"


class Kernels(NamedTuple):
    """``copy(into, x)``; ``reduce[name](a, b, out=...)``."""

    copy: Any
    reduce: dict[str, Any]


def _torch(function: Any) -> Any:
    return lambda a, b, out: function(a, b, out=out)


NUMPY = Kernels(np.copyto, {SUM: np.add, PRODUCT: np.multiply, MIN: np.minimum, MAX: np.maximum})
TORCH = Kernels(
    lambda into, x: into.copy_(x),
    {
        SUM: _torch(torch.add),
        PRODUCT: _torch(torch.mul),
        MIN: _torch(torch.minimum),
        MAX: _torch(torch.maximum),
    },
)
# numpy adds float16 element by element, and knows no bfloat16.
LEFT_TO_TORCH = frozenset({torch.float16, torch.bfloat16})


def kernels_of(x: Any) -> Kernels:
    return NUMPY if isinstance(x, np.ndarray) else TORCH


def fast_array(flat: torch.Tensor) -> Any:
    """A flat host tensor as numpy sees it (a third of torch's cost a call), or itself."""
    return flat if flat.dtype in LEFT_TO_TORCH else flat.numpy()


def flat_array(x: Any) -> Any:
    """``x`` as a flat array that shares its memory. Raises CollectiveError unless contiguous."""
    if isinstance(x, np.ndarray):
        return x if x.ndim == 1 else x.reshape(-1)
    x = x.detach()
    if not x.is_contiguous():
        raise CollectiveError(
            f"a tensor of shape {tuple(x.shape)} and strides {x.stride()} is not contiguous: "
            "pass x.contiguous()"
        )
    return fast_array(x.view(-1))


def bytes_of(flat: Any) -> memoryview:
    """The memory of a flat array as bytes."""
    if isinstance(flat, np.ndarray):
        return flat.view(np.uint8).data
    return bytes_of(flat.view(torch.uint8).numpy())
