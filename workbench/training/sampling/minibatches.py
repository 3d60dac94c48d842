"""The samples of each rank in each minibatch, beside those that one process would take.

Everything is drawn from torch's own samplers (or from a user's), none of it from a formula:

    one process   Sequential- or RandomSampler          -> BatchSampler(m)
    rank r of p   DistributedSampler(num_replicas=p)    -> BatchSampler(m // p), set_epoch(epoch)

Walk  24 samples, m = 8, p = 2, in order: the second minibatch is 8 to 15; DistributedSampler deals
      it out like cards, 8 10 12 14 to rank 0 and 9 11 13 15 to rank 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Any

import numpy as np

from workbench.common.errors import SpecError
from workbench.rank import batches

Ids = tuple[int, ...]


@dataclass(frozen=True)
class Minibatch:
    """One minibatch of an epoch. What a rank does not have is empty."""

    epoch: int
    number: int  # within its epoch
    sequential: Ids  # what one process would take
    of: tuple[Ids, ...]  # what each rank takes
    repeated: tuple[Ids, ...]  # places in ``of[rank]`` of samples that this epoch has had before

    @property
    def union(self) -> list[int]:
        """The samples of all ranks together, in ascending order; repeated ones as often as used."""
        return sorted(one for ids in self.of for one in ids)

    @property
    def equal(self) -> bool:
        return self.union == sorted(self.sequential)

    def as_fact(self) -> dict[str, Any]:
        """Return the minibatch as a page reads it."""
        return {
            "epoch": self.epoch,
            "number": self.number,
            "sequential": list(self.sequential),
            "of": [list(ids) for ids in self.of],
            "repeated": [list(at) for at in self.repeated],
        }


def epoch_of(
    epoch: int, sequential: Iterable[Sequence[int]], of: Sequence[Iterable[Sequence[int]]]
) -> list[Minibatch]:
    """Pair the minibatches of one process with those of each rank, for an epoch.

    A sample is repeated where the epoch had it in an earlier minibatch, in this one at an earlier
    place, or at the same place on a lower rank: the order in which samples are dealt.
    """
    in_turn = zip_longest(*of, fillvalue=()) if of else iter(())
    result: list[Minibatch] = []
    had: set[int] = set()
    for number, (alone, each) in enumerate(zip_longest(sequential, in_turn, fillvalue=None)):
        parts = tuple(tuple(map(int, ids)) for ids in (each or [()] * len(of)))
        repeated: list[list[int]] = [[] for _ in parts]
        for at in range(max(map(len, parts), default=0)):
            for rank, ids in enumerate(parts):
                if at < len(ids):
                    if ids[at] in had:
                        repeated[rank].append(at)
                    had.add(ids[at])
        result.append(
            Minibatch(
                epoch, number, tuple(map(int, alone or ())), parts, tuple(map(tuple, repeated))
            )
        )
    return result


# ---- torch's own samplers


def drawn(
    order: Sequence[int],
    batch_size: int,
    ranks: int,
    *,
    shuffle: bool,
    seed: int,
    drop_last: bool,
    drop_last_batch: bool,
    set_epoch: bool,
    epochs: int,
) -> list[Minibatch]:
    """Return the minibatches of torch's samplers. ``order``: the sample at each place of the data
    set.
    """
    from torch.utils.data import BatchSampler, DistributedSampler

    each = share(batch_size, ranks)
    data: Any = order  # it is only asked for its length
    samplers: list[Any] = [
        DistributedSampler(
            data, num_replicas=ranks, rank=rank, shuffle=shuffle, seed=seed, drop_last=drop_last
        )
        for rank in range(ranks)
    ]
    result: list[Minibatch] = []
    for epoch in range(epochs):
        if set_epoch:
            for sampler in samplers:
                sampler.set_epoch(epoch)
        alone = BatchSampler(
            places(len(order), shuffle, seed + epoch * set_epoch), batch_size, drop_last_batch
        )
        of = [BatchSampler(sampler, each, drop_last_batch) for sampler in samplers]
        result += epoch_of(epoch, _samples(order, alone), [_samples(order, one) for one in of])
    return result


def share(batch_size: int, ranks: int) -> int:
    """Return a rank's share of a minibatch, rounded down as multi-process scripts do."""
    return max(1, batch_size // ranks)


def places(samples: int, shuffle: bool, seed: int) -> Any:
    """Return one process's sampler; a shuffled one draws DistributedSampler's own permutation."""
    import torch
    from torch.utils.data import RandomSampler, SequentialSampler

    if not shuffle:
        return SequentialSampler(range(samples))
    return RandomSampler(range(samples), generator=torch.Generator().manual_seed(seed))


def _samples(order: Sequence[int], chosen: Iterable[Sequence[int]]) -> Iterator[Ids]:
    return (tuple(order[place] for place in some) for some in chosen)


# ---- the workbench's own minibatches


def dealt(
    order: Sequence[int], batch_size: int, ranks: int, *, shuffle: bool, seed: int, epochs: int
) -> list[Minibatch]:
    """Return the minibatches of runs: uneven where ranks do not divide one, nothing repeated."""
    whole, result = batches.Minibatches(len(order), batch_size, seed), list[Minibatch]()
    for epoch in range(epochs):
        minibatches: list[list[int]] = []
        for number in range(whole.per_epoch):
            first = number * batch_size
            at = (
                whole.ids(epoch * whole.per_epoch + number)
                if shuffle
                else np.arange(first, min(first + batch_size, len(order)))
            )
            minibatches.append([order[int(place)] for place in at])
        of = [
            [batches.partition(np.array(ids), rank, ranks).tolist() for ids in minibatches]
            for rank in range(ranks)
        ]
        result += epoch_of(epoch, minibatches, of)
    return result


# ---- a user's own


def listened(
    samplers: Sequence[Any],
    batch_size: int | None,
    sequential: Any,
    epochs: int,
    most: int,
    set_epoch: bool,
) -> list[Minibatch]:
    """Return what these samplers or loaders yield, one per rank.

    ``set_epoch``: call it before each epoch, where it exists, as the user's loop should.
    ``most``: minibatches of an epoch to look at. Raises SpecError where no ids are yielded.
    """
    result: list[Minibatch] = []
    for epoch in range(epochs):
        for one in (*samplers, sequential) if set_epoch else ():
            _set_epoch(one, epoch)
        of = [
            list(islice(_batches(one, batch_size, f"samplers[{rank}]"), most))
            for rank, one in enumerate(samplers)
        ]
        alone = list(islice(_batches(sequential, None, "sequential"), most))
        result += epoch_of(epoch, alone, of)
    return result


def _set_epoch(loader: Any, epoch: int) -> None:
    """Tell a loader, and the samplers in it, which epoch begins."""
    inside = getattr(loader, "batch_sampler", None)
    for one in (loader, getattr(loader, "sampler", None), inside, getattr(inside, "sampler", None)):
        if one is not None and hasattr(one, "set_epoch"):
            one.set_epoch(epoch)


def _batches(loader: Any, size: int | None, name: str) -> Iterator[Ids]:
    """Yield the minibatches of a loader, a batch sampler, a sampler, or any iterable of ids."""
    inside = getattr(loader, "batch_sampler", None)
    source = inside or loader
    if hasattr(loader, "dataset") and hasattr(loader, "collate_fn") and source is loader:
        source = loader.sampler  # a DataLoader without batches yields one sample at a time
        size = size or 1
    waiting: list[int] = []
    for one in source:
        if _is_id(one):
            waiting.append(int(one))
            if len(waiting) == (size or 1):
                yield tuple(waiting)
                waiting = []
            continue
        try:
            ids = tuple(int(i) for i in one)
        except (TypeError, ValueError):
            raise SpecError(
                f"{name} yields {one!r}: a sampler yields sample ids (integers), a batch sampler "
                "lists of them; of a DataLoader its batch_sampler is asked"
            ) from None
        yield ids
    if waiting:
        yield tuple(waiting)


def _is_id(one: Any) -> bool:
    return isinstance(one, int | np.integer) or (getattr(one, "ndim", None) == 0)
