"""The memory of a rank in sharded training.

Besides its own shards it holds the layers that are gathered now, their whole gradients until these
are reduced, and the buffers of collectives.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable

import torch

from workbench.rank.memory import Memory

GATHERED, GRADIENTS, BUFFERS = "gathered layers", "whole gradients", "buffers"


class ShardedMemory(Memory):
    """Bytes held, by kind; the sizes are those of the storages themselves."""

    def __init__(self, rank: int, limit: int | None = None) -> None:
        super().__init__(rank, limit)
        self.fixed |= {GATHERED: 0, GRADIENTS: 0, BUFFERS: 0}

    def change(self, kind: str, nbytes: int) -> None:
        """Add ``nbytes`` (negative: fewer) to the bytes of this kind."""
        self.fixed[kind] += nbytes
        self.fixed_bytes += nbytes
        self.check()

    def ours(self, addresses: Iterable[int]) -> None:
        """Leave these storages out of what autograd saves: they are counted already."""
        self._ours.update(addresses)

    def not_ours(self, addresses: Iterable[int]) -> None:
        self._ours.difference_update(addresses)

    def buffer(self, tensor: torch.Tensor) -> torch.Tensor:
        """Count this tensor for its lifetime."""
        nbytes = tensor.untyped_storage().nbytes()
        self.change(BUFFERS, nbytes)
        weakref.finalize(tensor, self._released, nbytes)
        return tensor

    def _released(self, nbytes: int) -> None:
        self.fixed[BUFFERS] -= nbytes
        self.fixed_bytes -= nbytes
