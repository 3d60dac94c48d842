"""The laws of a partition, each with the numbers that show whether it holds.

Law   a partition trains as one process would if in every minibatch (1) the ranks together take the
      very samples that one process takes, each once, and (2) a sample counts equally on any rank:
      dividing the sum of the ranks' means by p is right for parts of one size only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from workbench.common.names import enumerated
from workbench.common.units import counted
from workbench.training.sampling.minibatches import Minibatch

LISTED = 6  # ids that are named


@dataclass(frozen=True)
class Law:
    """``holds``, and in ``words`` where it does not, or what that is good for."""

    name: str
    holds: bool
    words: str


def laws(
    minibatches: Sequence[Minibatch], samples: int, ranks: int, shuffled: bool, rounded: str = ""
) -> list[Law]:
    """Check the laws, in the order in which a reader asks for them.

    ``samples``: the number of ids. ``shuffled``: each epoch should have its own order.
    ``rounded``: a reason for which minibatches may differ, if there is one.
    """
    result = [_same(minibatches, rounded), _once(minibatches, samples), _even(minibatches)]
    if ranks > 1:
        result.append(_in_step(minibatches, ranks))
    if shuffled and minibatches and minibatches[-1].epoch > 0:
        result.append(_epochs_differ(minibatches))
    return result


def listed(ids: Sequence[int]) -> str:
    """Format ids as "3, 5 and 8", at most LISTED of them."""
    named, more = [str(one) for one in ids[:LISTED]], len(ids) - LISTED
    if more > 0:
        named.append(f"{more} more")
    return enumerated(named)


def named(one: Minibatch, epochs: bool) -> str:
    return f"minibatch {one.number}" + (f" of epoch {one.epoch}" if epochs else "")


def _same(all_of_them: Sequence[Minibatch], rounded: str) -> Law:
    """Compare each minibatch with one process's: gradients then add up to the same."""
    several = any(one.epoch for one in all_of_them)
    name, wrong = "same minibatches", [one for one in all_of_them if not one.equal]
    if not wrong:
        return Law(
            name,
            True,
            "the ranks together take what one process takes, in each of "
            f"{counted(len(all_of_them), 'minibatch')}",
        )
    first = wrong[0]
    extra = sorted(Counter(first.union) - Counter(first.sequential))
    lack = sorted(Counter(first.sequential) - Counter(first.union))
    text = " and ".join(
        f"{what} {listed(ids)}" for what, ids in (("also has", extra), ("lacks", lack)) if ids
    )
    return Law(
        name,
        False,
        f"{len(wrong)} of {counted(len(all_of_them), 'minibatch')} differ{'s' * (len(wrong) == 1)} "
        f"from one process; {named(first, several)} {text}"
        f"{f': {rounded}' if rounded else ''}",
    )


def _once(all_of_them: Sequence[Minibatch], samples: int) -> Law:
    """Check each epoch: a repeated sample counts double, one left out is never learned from."""
    again: Counter[int] = Counter()
    left_out = 0
    for epoch in {one.epoch for one in all_of_them}:
        counts = Counter(i for one in all_of_them if one.epoch == epoch for i in one.union)
        again += Counter({i: times - 1 for i, times in counts.items() if times > 1})
        left_out = max(left_out, samples - len(counts))
    parts = []
    if again:
        are, them = ("are", "them") if len(again) > 1 else ("is", "it")
        text = f"{listed(sorted(again))} {are} taken again, so averages count {them} more than once"
        parts.append(text)
    if left_out:
        are = "is" if left_out == 1 else "are"
        parts.append(f"{counted(left_out, 'sample')} of {samples} {are} left out of an epoch")
    words = "; ".join(parts) or f"each of {counted(samples, 'sample')} is taken once an epoch"
    return Law("every sample once", not parts, words)


def _even(all_of_them: Sequence[Minibatch]) -> Law:
    """Check that shares are equal: then the mean of the ranks' means is the mean over samples."""
    name = "parts of one size"
    uneven = [one for one in all_of_them if len({len(ids) for ids in one.of}) > 1]
    if not uneven:
        return Law(name, True, "the sum of the ranks' means divided by their number is the mean")
    sizes = [len(ids) for ids in uneven[0].of]
    text = ", ".join(map(str, sizes[:LISTED])) + (", ..." if len(sizes) > LISTED else "")
    return Law(
        name,
        False,
        f"ranks take {text} in {named(uneven[0], any(one.epoch for one in all_of_them))}: weigh "
        "each rank's mean by its number of samples, do not divide the sum by the number of ranks",
    )


def _in_step(all_of_them: Sequence[Minibatch], ranks: int) -> Law:
    """Check that ranks have equally many minibatches.

    Otherwise one waits without end in an all-reduce.
    """
    lengths = [sum(bool(one.of[rank]) for one in all_of_them) for rank in range(ranks)]
    name = "as many minibatches on every rank"
    if len(set(lengths)) == 1:
        return Law(name, True, f"{lengths[0]} each: no rank waits for an all-reduce that never is")
    few, many = lengths.index(min(lengths)), lengths.index(max(lengths))
    return Law(
        name,
        False,
        f"rank {few} has a part in {min(lengths)}, rank {many} in {max(lengths)}: all-reduces "
        f"hang, unless rank {few} takes part with nothing (torch's Join)",
    )


def _epochs_differ(all_of_them: Sequence[Minibatch]) -> Law:
    """Check shuffling: without set_epoch DistributedSampler repeats its order in every epoch."""
    last = all_of_them[-1].epoch
    orders = {
        tuple(one.of for one in all_of_them if one.epoch == epoch) for epoch in range(last + 1)
    }
    name = "each epoch another order"
    if len(orders) == last + 1:
        return Law(name, True, "each epoch has minibatches of its own")
    words = (
        "epochs have the same minibatches: a sampler needs shuffle=True, and set_epoch(epoch) "
        "before each epoch"
    )
    return Law(name, False, words)


# ---- averages


@dataclass(frozen=True)
class Averages:
    """Three means of one number per sample.

    ``true`` counts each sample once. ``counted`` adds up all samples that ranks took, repeated ones
    too, and divides by their number. ``of_means`` divides the sum of the ranks' means by the number
    of ranks, as Listing 13.2.1 does.
    """

    true: float
    counted: float
    of_means: float

    def __str__(self) -> str:
        return (
            f"each sample once {self.true:.3g}; sum over ranks / samples taken {self.counted:.3g}; "
            f"sum of the ranks' means / ranks {self.of_means:.3g}"
        )


def averages(values: Sequence[float], by_rank: Sequence[Sequence[int]]) -> Averages:
    """Return the averages of ``values`` by sample id, as ranks with these ids compute them.

    A rank without any adds 0, as an empty sum does.
    """
    own = [[float(values[i]) for i in ids] for ids in by_rank]
    every = [value for some in own for value in some]
    ids = {i for some in by_rank for i in some}
    return Averages(
        true=fsum(float(values[i]) for i in ids) / max(1, len(ids)),
        counted=fsum(every) / max(1, len(every)),
        of_means=fsum(fsum(some) / max(1, len(some)) for some in own) / max(1, len(own)),
    )
