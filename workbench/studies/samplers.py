"""The samplers that a partition is dealt out by: torch's, the workbench's, or the user's own, read
as the parts that ranks take.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workbench.common.errors import SpecError, short
from workbench.training.sampling.minibatches import (
    Minibatch,
    epoch_of,
    listened,
    places,
    share,
)

SAMPLERS = {
    "distributed": "torch's DistributedSampler and BatchSampler",
    "workbench": "the workbench's minibatches, as its runs take them",
}
MOST = 1_000_000  # samples that are dealt out, and minibatches that own samplers are asked for


@dataclass(frozen=True)
class OwnSamplers:
    """The user's samplers, one per rank, and their parameters."""

    samplers: Sequence[Any]
    samples: Any  # how many, or their ids; None: as many as the samplers tell of
    batch_size: int | None  # of the whole minibatch
    sequential: Any  # what one process would take; None: all in order, or shuffled
    shuffle: bool
    seed: int
    epochs: int
    set_epoch: bool  # call it before each epoch


@dataclass(frozen=True)
class Drawn:
    """The samples that the user's samplers gave."""

    order: Sequence[int]  # the sample at each place of the data set
    batch_size: int
    ranks: int
    minibatches: tuple[Minibatch, ...]


def read_samplers(own: OwnSamplers) -> Drawn:
    """Ask the samplers for what they give, in every epoch. Raises SpecError."""
    from torch.utils.data import BatchSampler

    samplers, sequential = own.samplers, own.sequential
    several = isinstance(samplers, Sequence) and not isinstance(samplers, str | bytes)
    if not several or not samplers or not all(map(_gives, samplers)):
        raise SpecError(
            f"samplers = {short(samplers)}: a list with one for each rank: DataLoaders, samplers, "
            "or lists of ids"
        )
    ranks, epochs = len(samplers), whole("epochs", own.epochs)
    each = None
    if own.batch_size is not None:
        each = share(whole("batch_size", own.batch_size), ranks)
    known = [n for n in map(_length, samplers) if n]
    alone = sequential if sequential is not None else ()
    parts = listened(samplers, each, alone, epochs, MOST, own.set_epoch)
    all_ids = [i for one in parts for ids in one.of for i in ids]
    if own.samples is not None:
        order: Sequence[int] = order_of(own.samples)
    elif known:
        order = range(max(known))
    else:
        order = range(max(all_ids, default=0) + 1)
    size = own.batch_size or max((sum(map(len, one.of)) for one in parts), default=1)
    if sequential is None:
        one_process = [
            BatchSampler(places(len(order), own.shuffle, own.seed + epoch), size, drop_last=False)
            for epoch in range(epochs)
        ]
        parts = [
            one
            for epoch, sampler in enumerate(one_process)
            for one in _beside(sampler, order, parts, epoch, ranks)
        ]
    return Drawn(order, size, ranks, tuple(parts))


def _beside(
    alone: Any, order: Sequence[int], parts: Sequence[Minibatch], epoch: int, ranks: int
) -> list[Minibatch]:
    """Return the epoch's parts with what one process takes beside them."""
    of_epoch = [one for one in parts if one.epoch == epoch]
    of = [[one.of[rank] for one in of_epoch] for rank in range(ranks)]
    return epoch_of(epoch, [[order[place] for place in some] for some in alone], of)


def _gives(sampler: Any) -> bool:
    """Return whether the object can yield samples."""
    return hasattr(sampler, "__iter__") and not isinstance(sampler, str | bytes)


def _length(source: Any) -> int:
    """Return the length of the data set behind a sampler or a loader; 0 if it is unknown."""
    for name in ("dataset", "data_source"):
        for one in (source, getattr(source, "sampler", None)):
            behind: Any = getattr(one, name, None)
            if hasattr(behind, "__len__"):
                return len(behind)
    return 0


def order_of(samples: int | Sequence[int]) -> Sequence[int]:
    """Return the sample at each place of the data set. Raises SpecError."""
    if isinstance(samples, Sequence) and not isinstance(samples, bytes):
        try:
            ids = [operator.index(i) for i in samples]
        except TypeError:
            ids = []
        if not ids or len(set(ids)) != len(ids) or min(ids) < 0:
            raise SpecError(
                f"samples = {short(samples)}: how many, or ids from 0 on, each once, one at least"
            )
        return ids
    return range(whole("samples", samples))


def whole(name: str, value: Any) -> int:
    """Return a whole number from 1 on. Raises SpecError."""
    try:
        number = operator.index(value)
    except TypeError:
        raise SpecError(f"{name} = {value!r}: must be a whole number, 1 or more") from None
    if isinstance(value, bool) or number < 1:
        raise SpecError(f"{name} = {value!r}: must be a whole number, 1 or more")
    return number
