"""What holds of a partition and what does not, each with the numbers that show it.

Law   a partition trains as one process would if in every minibatch (1) the ranks together take the
      very samples that one process takes, each once, and (2) a sample counts equally on any rank:
      dividing the sum of the ranks' means by p is right for parts of one size only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from workbench.partitions.minibatches import Minibatch
from workbench.units import counted

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
    """In the order in which one asks for them. ``samples``: how many ids there are; ``shuffled``:
    each epoch is to have an order of its own; ``rounded``: a reason for which minibatches may
    differ, if there is one.
    """
    found = [_same(minibatches, rounded), _once(minibatches, samples), _even(minibatches)]
    if ranks > 1:
        found.append(_in_step(minibatches, ranks))
    if shuffled and minibatches and minibatches[-1].epoch > 0:
        found.append(_epochs_differ(minibatches))
    return found


def listed(ids: Sequence[int]) -> str:
    """ "3, 5 and 8": at most LISTED of them by name."""
    named, more = [str(one) for one in ids[:LISTED]], len(ids) - LISTED
    if more > 0:
        named.append(f"{more} more")
    return named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"


def named(one: Minibatch, epochs: bool) -> str:
    return f"minibatch {one.number}" + (f" of epoch {one.epoch}" if epochs else "")


def _same(all_of_them: Sequence[Minibatch], rounded: str) -> Law:
    """Compared minibatch by minibatch: gradients then add up to those of one process."""
    several = any(one.epoch for one in all_of_them)
    name, wrong = "same minibatches", [one for one in all_of_them if not one.equal]
    if not wrong:
        return Law(name, True, "the ranks together take what one process takes, in each of "
                               f"{counted(len(all_of_them), 'minibatch')}")  # fmt: skip
    first = wrong[0]
    extra = sorted(Counter(first.union) - Counter(first.sequential))
    lack = sorted(Counter(first.sequential) - Counter(first.union))
    told = " and ".join(
        f"{what} {listed(ids)}" for what, ids in (("has also", extra), ("lacks", lack)) if ids
    )
    return Law(
        name, False,
        f"{len(wrong)} of {counted(len(all_of_them), 'minibatch')} differ{'s' * (len(wrong) == 1)} "
        f"from one process; {named(first, several)} {told}"
        f"{f': {rounded}' if rounded else ''}",
    )  # fmt: skip


def _once(all_of_them: Sequence[Minibatch], samples: int) -> Law:
    """In every epoch: what is repeated counts double, what is left out was never learned from."""
    again: Counter[int] = Counter()
    left_out = 0
    for epoch in {one.epoch for one in all_of_them}:
        seen = Counter(i for one in all_of_them if one.epoch == epoch for i in one.union)
        again += Counter({i: times - 1 for i, times in seen.items() if times > 1})
        left_out = max(left_out, samples - len(seen))
    parts = []
    if again:
        are, them = ("are", "them") if len(again) > 1 else ("is", "it")
        told = f"{listed(sorted(again))} {are} taken again, so averages count {them} more than once"
        parts.append(told)
    if left_out:
        are = "is" if left_out == 1 else "are"
        parts.append(f"{counted(left_out, 'sample')} of {samples} {are} left out of an epoch")
    words = "; ".join(parts) or f"each of {counted(samples, 'sample')} is taken once an epoch"
    return Law("every sample once", not parts, words)


def _even(all_of_them: Sequence[Minibatch]) -> Law:
    """Then the mean of the ranks' means is the mean over samples."""
    name = "parts of one size"
    uneven = [one for one in all_of_them if len({len(ids) for ids in one.of}) > 1]
    if not uneven:
        return Law(name, True, "the sum of the ranks' means divided by their number is the mean")
    sizes = [len(ids) for ids in uneven[0].of]
    told = ", ".join(map(str, sizes[:LISTED])) + (", ..." if len(sizes) > LISTED else "")
    return Law(
        name, False,
        f"ranks take {told} in {named(uneven[0], any(one.epoch for one in all_of_them))}: weigh "
        "each rank's mean by its number of samples, do not divide the sum by the number of ranks",
    )  # fmt: skip


def _in_step(all_of_them: Sequence[Minibatch], ranks: int) -> Law:
    """Else whoever has one more waits for an all-reduce that the others never begin."""
    lengths = [sum(bool(one.of[rank]) for one in all_of_them) for rank in range(ranks)]
    name = "as many minibatches on every rank"
    if len(set(lengths)) == 1:
        return Law(name, True, f"{lengths[0]} each: no rank waits for an all-reduce that never is")
    few, many = lengths.index(min(lengths)), lengths.index(max(lengths))
    return Law(
        name, False,
        f"rank {few} has a part in {min(lengths)}, rank {many} in {max(lengths)}: all-reduces "
        f"hang, unless rank {few} takes part with nothing (torch's Join)",
    )  # fmt: skip


def _epochs_differ(all_of_them: Sequence[Minibatch]) -> Law:
    """Shuffling: without set_epoch DistributedSampler deals out the same order in every epoch."""
    last = all_of_them[-1].epoch
    orders = {
        tuple(one.of for one in all_of_them if one.epoch == epoch) for epoch in range(last + 1)
    }
    name = "each epoch another order"
    if len(orders) == last + 1:
        return Law(name, True, "each epoch has minibatches of its own")
    words = "epochs have the same minibatches: shuffle=True, and set_epoch(epoch) before each"
    return Law(name, False, words)


# ---- averages


@dataclass(frozen=True)
class Averages:
    """Three answers to "what is the mean?", of one number a sample.

    ``true`` counts each sample once. ``counted`` adds up what all ranks took, repeated samples
    too, and divides by how many those were. ``of_means`` divides the sum of the ranks' means by the
    number of ranks, as Listing 13.2.1 does.
    """

    true: float
    counted: float
    of_means: float

    def __str__(self) -> str:
        return (
            f"each sample once {self.true:.3g}; sum over ranks / samples taken {self.counted:.3g}; "
            f"sum of the ranks' means / ranks {self.of_means:.3g}"
        )


def averages(values: Sequence[float], taken: Sequence[Sequence[int]]) -> Averages:
    """Of ``values`` by sample id, as ranks that took these ids would find them. A rank without any
    adds 0, as an empty sum does.
    """
    own = [[float(values[i]) for i in ids] for ids in taken]
    every = [value for some in own for value in some]
    ids = {i for some in taken for i in some}
    return Averages(
        true=fsum(float(values[i]) for i in ids) / max(1, len(ids)),
        counted=fsum(every) / max(1, len(every)),
        of_means=fsum(fsum(some) / max(1, len(some)) for some in own) / max(1, len(own)),
    )
