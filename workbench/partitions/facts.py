"""What a page is told of samples: the header's ``run.samples``; and what ranks of a run tell of it.

A rank of a run keeps which samples it loaded in its first iterations, and tells them: the picture
is of what was loaded, whatever the strategy is, a user's own and a wrong one too.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.batches import Minibatches
from workbench.partitions.minibatches import epoch_of

if TYPE_CHECKING:
    from workbench.partitions.laws import Law
    from workbench.partitions.minibatches import Minibatch

MOST_MINIBATCHES, MOST_IDS = 64, 4096  # that a page is told
EVERY_SECONDS = 1.0  # a slow run tells what it has so often
KEY = "samples"  # of the metadata; "samples 3" is what rank 3 took
Part = list[int] | dict[str, tuple[int, int, int]]  # ids; {"slice": (start, stop, step)} of all


def facts_of(
    minibatches: Sequence[Minibatch], *, samples: int, batch_size: int, ranks: int,
    drop_last: bool, shuffle: bool, sampler: str, laws: Sequence[Law],
) -> dict[str, Any]:  # fmt: skip
    told, ids = list[dict[str, Any]](), 0
    for one in minibatches[:MOST_MINIBATCHES]:
        ids += max(len(one.sequential), sum(map(len, one.of)))
        if ids > MOST_IDS and told:
            break
        told.append(one.as_fact())
    return {
        "n": samples, "batch_size": batch_size, "ranks": ranks, "drop_last": drop_last,
        "shuffle": shuffle, "sampler": sampler, "minibatches": told,
        "more": len(minibatches) - len(told),
        "laws": [{"name": law.name, "holds": law.holds, "words": law.words} for law in laws],
    }  # fmt: skip


# ---- on a rank of a run


class Taken:
    """Which samples a rank took in its first iterations; told now and then."""

    def __init__(
        self, rank: int, minibatches: Minibatches, iterations: int,
        tell: Callable[[dict[str, str]], None],
    ) -> None:  # fmt: skip
        self._rank, self._minibatches, self._tell = rank, minibatches, tell
        self._iterations, self._wanted = iterations, _wanted(minibatches, iterations)
        self._of: dict[int, list[int]] = {}  # that are under way
        self._parts: dict[int, Part] = {}
        self._next = 1  # iterations after which it is told: 1, 4, 16, 64; or once a second
        self._told_at = time.monotonic()

    def load(self, iteration: int, ids: Iterable[int]) -> None:
        if 0 <= iteration < self._wanted:
            self._of.setdefault(iteration, []).extend(int(i) for i in ids)

    def counts(self, iteration: int, samples: int) -> None:
        """So many of those that were loaded count in this iteration, which is over."""
        if not 0 <= iteration < self._wanted:
            return
        took = self._of.pop(iteration, [])[:samples]
        self._parts[iteration] = _shortened(took, self._minibatches.ids(iteration).tolist())
        done, at = iteration + 1, time.monotonic()
        if done in (self._next, self._wanted) or at - self._told_at >= EVERY_SECONDS:
            self._next, self._told_at = 4 ** (math.floor(math.log(done, 4) + 1e-9) + 1), at
            self._tell(self._told(done))

    def _told(self, done: int) -> dict[str, str]:
        """As metadata of the run: what this rank took, and what fixes what there is to take."""
        whole = self._minibatches
        what = {"n": whole.samples, "batch_size": whole.batch_size, "seed": whole.seed,
                "iterations": self._iterations}  # fmt: skip
        took = [self._parts.get(i, []) for i in range(done)]
        return {KEY: json.dumps(what), f"{KEY} {self._rank}": json.dumps(took)}


def _shortened(ids: list[int], whole: list[int]) -> Part:
    """A part that is a slice of its minibatch as that slice: of a short run, most of what is kept
    would else be these ids.
    """
    if len(ids) > 1 and {ids[0], ids[1]} <= set(whole):
        start, second = whole.index(ids[0]), whole.index(ids[1])
        stop, step = start + (second - start) * len(ids), second - start
        if step > 0 and whole[start:stop:step] == ids:
            return {"slice": (start, stop, step)}
    return ids


def _in_full(part: Part, whole: list[int]) -> list[int]:
    return whole[slice(*part["slice"])] if isinstance(part, dict) else part


def _wanted(minibatches: Minibatches, iterations: int) -> int:
    """Iterations that are kept."""
    fit = MOST_IDS // max(1, min(minibatches.batch_size, minibatches.samples))
    return min(MOST_MINIBATCHES, max(1, fit), iterations)


def samples_told(metadata: Mapping[str, str]) -> dict[str, str]:
    """What ranks have told of it up to now."""
    return {name: text for name, text in dict(metadata).items() if name.partition(" ")[0] == KEY}


def run_facts(metadata: Mapping[str, str]) -> dict[str, Any] | None:
    """The page's run.samples of a run; None while nothing is known, or where ranks do not share out
    minibatches. Only iterations that every rank has told of are in it.
    """
    metadata = samples_told(metadata)
    if KEY not in metadata:
        return None
    from workbench.partitions.laws import laws

    what = json.loads(metadata[KEY])
    whole = Minibatches(what["n"], what["batch_size"], what["seed"])
    took: dict[int, list[Part]] = {
        int(name.split()[1]): json.loads(text) for name, text in metadata.items() if name != KEY
    }
    ranks, known = sorted(took), min(map(len, took.values()), default=0)
    minibatches: list[Minibatch] = []
    for first in range(0, known, whole.per_epoch):
        own = range(first, min(known, first + whole.per_epoch))
        alone = [whole.ids(i).tolist() for i in own]
        of = [
            [_in_full(took[rank][i], ids) for i, ids in zip(own, alone, strict=True)]
            for rank in ranks
        ]
        minibatches += epoch_of(first // whole.per_epoch, alone, of)
    if not minibatches:
        return None
    judged = [
        law for law in laws(minibatches, whole.samples, len(ranks), shuffled=True)
        if law.name in ("same minibatches", "parts of one size")
    ]  # fmt: skip  # the others are of whole epochs
    found = facts_of(
        minibatches, samples=whole.samples, batch_size=whole.batch_size, ranks=len(ranks),
        drop_last=False, shuffle=True, sampler="run", laws=judged,
    )  # fmt: skip
    return found | {
        "more": max(0, what["iterations"] - len(found["minibatches"])), "rank_of": ranks,
    }  # fmt: skip
