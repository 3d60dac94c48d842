"""The rows of a tensor that a rank holds: ranges along its first dimension, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Rows:
    """Ranges of the first dimension of a tensor that has ``total`` of them."""

    total: int
    ranges: tuple[tuple[int, int], ...]

    @classmethod
    def whole(cls, total: int) -> Rows:
        """Return all rows."""
        return cls(total, ((0, total),) if total else ())

    @classmethod
    def of_ranges(cls, total: int, ranges: Sequence[range]) -> Rows:
        """Return these rows."""
        return cls(total, tuple((one.start, one.stop) for one in ranges if len(one)))

    @classmethod
    def from_lists(cls, fields: Sequence[Any]) -> Rows:
        """Return the rows of ``as_lists``."""
        return cls(fields[0], tuple((start, stop) for start, stop in fields[1]))

    def as_lists(self) -> list[Any]:
        """Return them as JSON has them."""
        return [self.total, [list(one) for one in self.ranges]]

    def __len__(self) -> int:
        return sum(stop - start for start, stop in self.ranges)

    def shared_with(self, other: Rows) -> Iterator[tuple[int, int, int]]:
        """Yield what both have: its place here, its place there, and its number of rows."""
        begin = 0
        for start, stop in self.ranges:
            there = 0
            for from_, to in other.ranges:
                first, last = max(start, from_), min(stop, to)
                if first < last:
                    yield begin + first - start, there + first - from_, last - first
                there += to - from_
            begin += stop - start


def local(value: torch.Tensor) -> torch.Tensor:
    """Return what this rank holds of a tensor that may be distributed (DTensor)."""
    to_local = getattr(value, "to_local", None)
    held: torch.Tensor = value if to_local is None else to_local()
    return held.detach()


def rows_of(value: torch.Tensor) -> Rows | None:
    """Return the rows that this rank holds; None: all of it."""
    if not hasattr(value, "to_local"):
        return None
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    shape, offset = compute_local_shape_and_global_offset(
        value.shape,
        value.device_mesh,  # type: ignore[attr-defined]
        value.placements,  # type: ignore[attr-defined]
    )
    start = offset[0] if shape[0] else 0
    return Rows(value.shape[0], ((start, start + shape[0]),) if shape[0] else ())
