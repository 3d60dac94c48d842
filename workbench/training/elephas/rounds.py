"""Rounds, and the rows of each minibatch: what all ranks agree on before they train.

    batch_size   rows of one iteration, of all workers; each takes its equal part, of its partition
    epoch        as many iterations as the largest partition needs; a smaller one has none at last
    round        from a pull to the next: an epoch, or an iteration

Walk  partitions of 5 and 3 rows, batch_size 4, so 2 each: an epoch is 3 iterations. Rows per
      iteration: 2 2 1 of the first, 2 1 0 of the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from workbench.rank.job import Job


@dataclass(frozen=True)
class Rounds:
    """``sizes``: rows of each worker's partition; ``iterations``: of the run."""

    sizes: tuple[int, ...]
    batch_size: int
    iterations: int
    seed: int
    per_epoch_push: bool

    @property
    def workers(self) -> int:
        return len(self.sizes)

    def rows(self, worker: int) -> int:
        """Return the rows of a whole minibatch that a worker trains."""
        return len(range(worker, self.batch_size, self.workers))

    @property
    def epoch(self) -> int:
        """The number of iterations of an epoch."""
        return max(-(-size // self.rows(worker)) for worker, size in enumerate(self.sizes))

    @property
    def length(self) -> int:
        """The number of iterations of a round; the run's last round may be shorter."""
        return self.epoch if self.per_epoch_push else 1

    def begins(self, iteration: int) -> bool:
        """Return whether workers pull before this iteration."""
        return iteration % self.length == 0

    def ends(self, iteration: int) -> bool:
        """Return whether workers push after this iteration."""
        return (iteration + 1) % self.length == 0 or iteration + 1 == self.iterations

    def first(self, iteration: int) -> int:
        """Return the first iteration of the round."""
        return iteration - iteration % self.length

    def ids(self, worker: int, iteration: int) -> np.ndarray:
        """Return the places in its partition of a worker's rows of an iteration; there may be none.

        Each epoch has an order of its own.
        """
        epoch, number = divmod(iteration, self.epoch)
        order = np.random.default_rng([self.seed, epoch, worker]).permutation(self.sizes[worker])
        size = self.rows(worker)
        mine: np.ndarray = order[number * size : (number + 1) * size]
        return mine


def agree(job: Job, rows: int, frequency: str) -> Rounds:
    """Return the rounds of a run. ``rows``: of this rank's partition; 0 on the server."""
    sizes = torch.zeros(job.ranks, dtype=torch.int64)
    sizes[job.rank] = rows
    dist.all_reduce(sizes, group=job.group("partitions"))
    exp = job.exp
    each: Sequence[int] = sizes[1:].tolist()
    return Rounds(tuple(each), exp.batch_size, exp.iterations, exp.seed, frequency == "epoch")
