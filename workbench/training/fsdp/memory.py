"""The memory of a rank in sharded training.

Besides its own shards it holds the layers that are gathered now, their whole gradients until these
are reduced, and the buffers of collectives.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable

import torch

from workbench.rank.bands import BUFFERS, GATHERED, UNREDUCED
from workbench.rank.memory import Memory
from workbench.recording.recorder import Recorder


class ShardedMemory(Memory):
    """Bytes held, by kind; the sizes are those of the storages themselves."""

    def __init__(
        self, rank: int, limit: int | None = None, recorder: Recorder | None = None
    ) -> None:
        super().__init__(rank, limit, recorder)
        self.fixed |= {GATHERED: 0, UNREDUCED: 0, BUFFERS: 0}
        self.whole_bytes = 0  # of parameters of which the optimizer updates a part
        self._buffers: list[Callable[[], object]] = []  # each ends the count of one

    def parameter_bytes(self) -> int:
        return self.whole_bytes or super().parameter_bytes()

    def ours(self, addresses: Iterable[int]) -> None:
        """Leave these storages out of what autograd saves: they are counted already."""
        self._ours.update(addresses)

    def not_ours(self, addresses: Iterable[int]) -> None:
        self._ours.difference_update(addresses)

    def weigh_gradients(self) -> int:
        """Return the bytes held; buffers that are left are gradients, which arrived there."""
        for release in self._buffers:
            release()
        self._buffers.clear()
        return super().weigh_gradients()

    def buffer(self, tensor: torch.Tensor, layer: str) -> torch.Tensor:
        """Count this tensor, a buffer of this layer's collectives, for its lifetime."""
        nbytes = tensor.untyped_storage().nbytes()
        self.change(BUFFERS, nbytes, layer)
        self._buffers.append(weakref.finalize(tensor, self._released, nbytes, layer))
        return tensor

    def _released(self, nbytes: int, layer: str) -> None:
        # Written with the next change: this may run in between any two.
        self._take(BUFFERS, self.bands.standing(BUFFERS, layer).nbytes - nbytes, layer)
