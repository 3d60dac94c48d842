"""The part of the whole tensor that a message is, where the algorithm does not say."""

from __future__ import annotations

from typing import Any

import torch

Whole = tuple[int, int]  # address of its first element, elements


def whole_of(x: torch.Tensor) -> Whole:
    """Remember a flat tensor, of which ``part_of`` then knows the parts."""
    return x.data_ptr(), x.numel()


def part_of(x: Any, whole: Whole | None, parts: int) -> int:
    """Return the number of the part of the whole tensor that ``x`` is a view of; -1 if of none.

    The whole tensor, or a copy of it, is cut into ``parts`` even ones: the first N mod ``parts``
    have one element more, as ``tensor_split`` cuts. Returns 0 if ``x`` is as large as the whole.
    """
    if whole is None or not isinstance(x, torch.Tensor):
        return -1
    (address, elements), count, itemsize = whole, x.numel(), x.element_size()
    if count == elements:
        return 0
    inside = x.data_ptr() - address
    if 0 <= inside < elements * itemsize:
        at = inside // itemsize
    elif x.untyped_storage().nbytes() == elements * itemsize:
        at = int(x.storage_offset())
    else:
        return -1
    even, extra = divmod(elements, parts)
    ends = [i * even + min(i, extra) for i in range(parts + 1)]
    number = ends.index(at) if at in ends[:-1] else -1
    return number if number >= 0 and ends[number + 1] - at == count else -1
