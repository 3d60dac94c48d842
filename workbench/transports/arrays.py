"""Flat arrays: how to copy and combine them, in numpy where it is fast and in torch elsewhere."""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import torch

from workbench.common.errors import CollectiveError

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
# What numpy moves and adds fast; the rest of what torch has travels as bytes.
IN_NUMPY = {
    getattr(torch, name): np.dtype(name)
    for name in ("float32", "float64", "uint8", "int8", "int16", "int32", "int64")
}
PLAIN = frozenset(IN_NUMPY)
BYTES = np.dtype("uint8")


def kernels_of(x: Any) -> Kernels:
    return NUMPY if isinstance(x, np.ndarray) else TORCH


def fast_array(flat: torch.Tensor) -> Any:
    """Return a flat host tensor as numpy sees it (a third of torch's cost per call), or the tensor
    itself.
    """
    if flat.dtype in LEFT_TO_TORCH:
        return flat
    known = IN_NUMPY.get(flat.dtype)
    return flat.numpy() if known is None else in_numpy(flat, known)


def in_numpy(flat: torch.Tensor, dtype: np.dtype[Any]) -> Any:
    """Return the memory of a flat, dense host tensor, of elements of ``dtype``; it keeps the tensor
    alive.

    After ``Tensor.numpy`` torch refuses for good to resize the tensor's storage, and FSDP1 frees
    what it has gathered by that.
    """
    nbytes = flat.numel() * flat.itemsize
    if not (nbytes and flat.is_cpu):
        return np.empty(0, dtype) if flat.is_cpu else flat.numpy()  # which says what is wrong
    memory: Any = (ctypes.c_char * nbytes).from_address(flat.data_ptr())
    memory.tensor = flat
    return np.frombuffer(memory, dtype)


class JoinedArrays:
    """Flat arrays that stand for one: one after the other. It can be cut where they meet, and
    within one of them.
    """

    def __init__(self, arrays: Sequence[Any]) -> None:
        self.arrays, self.dtype, self.itemsize = arrays, arrays[0].dtype, arrays[0].itemsize
        self.ends = [0, *accumulate(map(len, arrays))]

    def __len__(self) -> int:
        return self.ends[-1]

    def __getitem__(self, at: slice) -> Any:
        i = min(bisect_right(self.ends, at.start), len(self.arrays)) - 1
        if at.stop > self.ends[i + 1]:
            raise CollectiveError(
                f"elements {at.start} to {at.stop} lie in more than one of the tensors of a list"
            )
        return self.arrays[i][at.start - self.ends[i] : at.stop - self.ends[i]]


def at_address(address: int, elements: int, dtype: torch.dtype) -> Any:
    """Return host memory as a flat array, as bytes where numpy does not know its dtype. It keeps
    nothing alive: only for as long as its owner has what lies there.
    """
    if not elements:
        return np.empty(0, IN_NUMPY.get(dtype, BYTES))
    memory: Any = (ctypes.c_char * (elements * dtype.itemsize)).from_address(address)
    return np.frombuffer(memory, IN_NUMPY.get(dtype, BYTES))


def together(flats: Sequence[torch.Tensor], view: Callable[[torch.Tensor], Any]) -> Any:
    """Return flat host tensors as one flat array; ``view``: ``moved`` or ``fast_array``."""
    arrays = [view(flat) for flat in flats]
    return arrays[0] if len(arrays) == 1 else JoinedArrays(arrays)


def moved(flat: torch.Tensor) -> Any:
    """Return a flat host tensor as numpy moves it: as bytes where numpy does not know its dtype, or
    is slow with it. Only for moving, not for adding.
    """
    return in_numpy(flat, IN_NUMPY.get(flat.dtype, BYTES))


def flat_array(x: Any) -> Any:
    """Return ``x`` as a flat array that shares its memory. Raises CollectiveError unless
    contiguous.
    """
    if isinstance(x, np.ndarray):
        return x if x.ndim == 1 else x.reshape(-1)
    if not isinstance(x, torch.Tensor):
        raise CollectiveError(f"a {type(x).__name__} cannot travel: pass a tensor or an array")
    x = x.detach()
    if not x.is_contiguous():
        raise CollectiveError(
            f"a tensor of shape {tuple(x.shape)} and strides {x.stride()} is not contiguous: "
            "pass x.contiguous()"
        )
    return fast_array(x.view(-1))


def copy_of(x: Any) -> Any:
    """Copy a flat array's values into new memory."""
    return x.copy() if isinstance(x, np.ndarray) else x.clone()


def room_for(elements: int, like: Any) -> Any:
    """Allocate a flat array of the dtype of ``like``; its contents are arbitrary."""
    if isinstance(like, np.ndarray):
        return np.empty(elements, like.dtype)
    return like.new_empty(elements)


def bytes_of(flat: Any) -> memoryview:
    """Return the memory of a flat array as bytes."""
    if isinstance(flat, np.ndarray):
        return flat.view(np.uint8).data
    return bytes_of(in_numpy(flat, BYTES))


def kind_of(x: Any) -> str:
    """Describe a value: "float32 of shape (3,)", "a list"."""
    if not isinstance(x, torch.Tensor | np.ndarray):
        return f"a {type(x).__name__}"
    words = f"{str(x.dtype).removeprefix('torch.')} of shape {tuple(x.shape)}"
    if not isinstance(x, torch.Tensor):
        return words
    layout = str(x.layout).removeprefix("torch.")
    apart = "" if layout == "strided" else f", {layout}"
    return f"{words}{apart}{f' on {x.device}' if x.device.type != 'cpu' else ''}"
