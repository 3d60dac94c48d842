"""The memory of a server's rank: what it holds of its keys, and of its workers' messages.

parameters       the newest values of its keys, and of those that it keeps as a replica
being sent       older versions of them, in buffers that leave for workers
gradients        room for a push of every worker: W times its keys
optimizer state  of its keys

The model in which a run's result is put together at the end is not counted.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sized
from typing import Protocol

import torch

from workbench.rank.bands import GRADIENTS, PARAMETERS, SENT
from workbench.rank.memory import Memory
from workbench.recording.recorder import Recorder


class Held(Protocol):
    """The tensors that a shard holds."""

    values_n: torch.Tensor

    @property
    def inbox(self) -> Sized: ...  # a gradient of each worker
    @property
    def buffers(self) -> int: ...


class ServerMemory(Memory):
    """Bytes held by a server, by kind; ``limit``: bytes, or None."""

    @property
    def remedy(self) -> str:
        return "Take more servers or fewer workers, or raise the limit"

    def __init__(
        self, rank: int, limit: int | None = None, recorder: Recorder | None = None
    ) -> None:
        super().__init__(rank, limit, recorder)
        self.fixed |= {SENT: 0}
        self._shards: weakref.WeakSet[Held] = weakref.WeakSet()

    def watch(self, parameters: Iterable[torch.Tensor], *optimizers: torch.optim.Optimizer) -> None:
        """Count the optimizers' state: the parameters are those of shards."""
        self._optimizers |= {weakref.ref(one): (-1, 0) for one in optimizers}

    def add(self, shard: Held) -> None:
        """Count what this shard holds, as long as it exists."""
        self._shards.add(shard)
        self.weigh()

    def weigh_gradients(self) -> int:
        """Return the bytes held now."""
        held = dict.fromkeys((PARAMETERS, SENT, GRADIENTS), 0)
        for shard in self._shards:
            values = shard.values_n.nbytes
            held[PARAMETERS] += values
            held[SENT] += values * shard.buffers
            held[GRADIENTS] += values * len(shard.inbox)
        for kind, nbytes in held.items():
            self._take(kind, nbytes)
        self.write()
        self.check()
        return self.held
