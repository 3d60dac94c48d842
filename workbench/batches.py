"""Which samples make up which minibatch, and which of them a worker takes.

(number of samples, seed, iteration, batch_size) alone decide a minibatch, so that every strategy
and every number of ranks trains on the same ones in the same order. A worker takes every p-th
position of the minibatch: rank 0 positions 0, p, 2p ..., rank 1 positions 1, p+1, ... (sources: the
minibatch partition of Listing 13.2.1; torch's DistributedSampler cuts the same way, but pads by
repeating).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TypeVar

import numpy as np


class Minibatches:
    """Sample ids of every iteration.

    Each epoch is a new permutation; its last minibatch may be smaller.
    """

    def __init__(self, samples: int, batch_size: int, seed: int) -> None:
        self.samples, self.batch_size, self.seed = samples, batch_size, seed
        self.per_epoch = -(-samples // batch_size)
        self._epoch, self._order = -1, np.empty(0, np.int64)

    def ids(self, iteration: int) -> np.ndarray:
        """The ids (int64) of the whole minibatch of an iteration."""
        epoch, place = divmod(iteration, self.per_epoch)
        if epoch != self._epoch:
            self._epoch, self._order = (
                epoch,
                np.random.default_rng([self.seed, epoch]).permutation(self.samples),
            )
        return self._order[place * self.batch_size : (place + 1) * self.batch_size]

    def size(self, iteration: int) -> int:
        """Samples of that minibatch."""
        start = iteration % self.per_epoch * self.batch_size
        return min(self.batch_size, self.samples - start)


Ids = TypeVar("Ids", np.ndarray, range)


def partition(ids: Ids, rank: int, ranks: int) -> Ids:
    """The part of a minibatch that a worker takes; may be empty."""
    return ids[rank::ranks]


def held(ids: np.ndarray, rank: int, ranks: int) -> np.ndarray:
    """The part of a minibatch that a rank has itself, where the data set is partitioned: rank r has
    the samples r, r + p, r + 2p ...; the parts are uneven, and may be empty.
    """
    mine: np.ndarray = ids[ids % ranks == rank]
    return mine


def portion(ids: Ids, worker: int, workers: int, shares: Sequence[float] | None = None) -> Ids:
    """The part of a minibatch that this worker takes: an equal one, or its share of ``shares``.

    Uneven parts follow each other; their borders are rounded, so that every sample has one worker.
    """
    if shares is None:
        return partition(ids, worker, workers)
    each: Sequence[float] = shares
    edges = [round(len(ids) * up_to / sum(each)) for up_to in (0.0, *accumulate(each))]
    return ids[edges[worker] : edges[worker + 1]]
