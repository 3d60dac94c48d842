"""The samples of each minibatch, and those that a worker takes.

(number of samples, seed, iteration, batch_size) alone decide a minibatch, so that every strategy
and every number of ranks trains on the same ones in the same order. A worker takes every p-th
position of the minibatch: rank 0 positions 0, p, 2p ..., rank 1 positions 1, p+1, ... (sources: the
minibatch partition of Listing 13.2.1; torch's DistributedSampler cuts the same way, but pads by
repeating).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import TypeVar

import numpy as np

from workbench.experiment.spec import Experiment
from workbench.experiment.team import Team

SIZES = "sizes"  # of what the driver prepares


@dataclass(frozen=True)
class Minibatch:
    """The whole minibatch of one iteration: the iteration's number, and its sample ids (int64)."""

    iteration: int
    ids: np.ndarray


class Minibatches:
    """Sample ids of every iteration.

    Each epoch is a new permutation; its last minibatch may be smaller. ``sizes``: where they change
    in the course of a run, the first iteration of each size, and the size; so that each sample is
    in one minibatch of an epoch, they follow each other whatever their sizes are. ``buffer``: the
    samples of a shuffle buffer, for a data set that is read from front to back (``order_of``).
    """

    def __init__(
        self,
        samples: int,
        batch_size: int,
        seed: int,
        sizes: Sequence[tuple[int, int]] = (),
        buffer: int | None = None,
    ) -> None:
        self.samples, self.batch_size, self.seed = samples, batch_size, seed
        self.buffer = buffer
        self.per_epoch = -(-samples // batch_size)
        # (first iteration, epoch, samples of it before, size)
        self._spans = [(0, 0, 0, batch_size)]
        for first, size in sizes:
            at = _place(self._spans, first, samples)
            self._spans = [one for one in self._spans if one[0] < first]
            self._spans.append((first, *at[:2], size))
        self._epoch, self._order = -1, np.empty(0, np.int64)

    def under(self, seed: int) -> Minibatches:
        """Return those of another seed."""
        return Minibatches(self.samples, self.batch_size, seed, buffer=self.buffer)

    def ids(self, iteration: int) -> np.ndarray:
        """Return the ids (int64) of the whole minibatch of an iteration."""
        epoch, start, size = _place(self._spans, iteration, self.samples)
        if epoch != self._epoch:
            self._epoch = epoch
            self._order = order_of(self.samples, self.seed, epoch, self.buffer)
        return self._order[start : start + size]

    def size(self, iteration: int) -> int:
        """Return the number of samples of that minibatch."""
        _, start, size = _place(self._spans, iteration, self.samples)
        return min(size, self.samples - start)

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """The first iteration of each size, and the size."""
        return [(first, size) for first, _, _, size in self._spans]

    @property
    def scale(self) -> float:
        """The size of the newest minibatches as a multiple of ``batch_size``."""
        return self._spans[-1][3] / self.batch_size


def order_of(samples: int, seed: int, epoch: int, buffer: int | None = None) -> np.ndarray:
    """Return the ids (int64) of an epoch in the order in which they are taken.

    With a ``buffer``, ids are read from front to back, each waits for a random time and is taken:
    at most ``buffer`` of them have been read and not yet taken, and a sample is taken less than
    ``buffer`` places before or after its own. The order is known beforehand, so a run that goes on
    after a kill needs no buffer that survived.
    """
    draw = np.random.default_rng([seed, epoch])
    if buffer is None:
        return draw.permutation(samples)
    taken_at = np.arange(samples) + buffer * draw.random(samples)
    return np.argsort(taken_at, kind="stable")


@dataclass(frozen=True)
class Sizes:
    """The sizes of the minibatches of a run that is resumed, ``until`` an iteration."""

    until: int = 0
    each: tuple[tuple[int, int], ...] = ()

    def to_json(self) -> str:
        """Return it as the driver sends it."""
        return json.dumps([self.until, self.each])

    @classmethod
    def from_json(cls, text: str) -> Sizes:
        """Return what ``to_json`` wrote; "": the run begins at the beginning."""
        if not text:
            return cls()
        until, each = json.loads(text)
        return cls(until, tuple((first, size) for first, size in each if first < until))


def _place(
    spans: Sequence[tuple[int, int, int, int]], iteration: int, samples: int
) -> tuple[int, int, int]:
    """Return the epoch of a minibatch, how many samples of it come before, and its size, if the
    epoch has as many left.
    """
    first, epoch, start, size = next(one for one in reversed(spans) if one[0] <= iteration)
    in_first = -(-(samples - start) // size)  # minibatches until the epoch's end
    number = iteration - first
    if number < in_first:
        return epoch, start + number * size, size
    more, place = divmod(number - in_first, -(-samples // size))
    return epoch + 1 + more, place * size, size


def minibatches_of(
    exp: Experiment, team: Team, samples: int, prepared: Mapping[str, str]
) -> Minibatches:
    """Return the minibatches of a run, whose size may go with the number of ranks. ``prepared``:
    from the driver, with the earlier sizes of a run that is resumed (``Sizes``). ``samples``: 0 for
    a task that plays, since it counts its own samples.
    """
    before, samples = Sizes.from_json(prepared.get(SIZES, "")), samples or exp.batch_size
    if not exp.scale_batch:
        return Minibatches(samples, exp.batch_size, exp.seed, buffer=exp.shuffle_buffer)
    batches = [
        (max(first, before.until), max(1, round(exp.batch_size * ranks / exp.ranks)))
        for first, ranks in team.sizes or ((0, len(team.members)),)
    ]
    sizes = (*before.each, *batches)
    return Minibatches(samples, exp.batch_size, exp.seed, sizes, exp.shuffle_buffer)


Ids = TypeVar("Ids", np.ndarray, range)


def partition(ids: Ids, rank: int, ranks: int) -> Ids:
    """Return a worker's share of a minibatch; it may be empty."""
    return ids[rank::ranks]


def held(ids: np.ndarray, rank: int, ranks: int) -> np.ndarray:
    """Return the samples of a minibatch that a rank holds, where the data set is partitioned: rank
    r has the samples r, r + p, r + 2p ...; shares are uneven, and may be empty.
    """
    mine: np.ndarray = ids[ids % ranks == rank]
    return mine


def portion(ids: Ids, worker: int, workers: int, shares: Sequence[float] | None = None) -> Ids:
    """Return this worker's share of a minibatch: an equal one, or its entry of ``shares``.

    Uneven parts follow each other; their ends are rounded, so that every sample has one worker.
    """
    if shares is None:
        return partition(ids, worker, workers)
    each: Sequence[float] = shares
    edges = [round(len(ids) * up_to / sum(each)) for up_to in (0.0, *accumulate(each))]
    return ids[edges[worker] : edges[worker + 1]]


@lru_cache(1024)
def portion_size(
    samples: int, worker: int, workers: int, shares: tuple[float, ...] | None = None
) -> int:
    """Return how many samples this worker's share of a minibatch has."""
    return len(portion(range(samples), worker, workers, shares))
