"""The samples that a rank of a run loaded in its first iterations.

The rank reports them as metadata, so the picture shows what was loaded, whatever the strategy is: a
user's own and a wrong one too.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping

from workbench.experiment.spec import Experiment
from workbench.rank.batches import Minibatches

MOST_MINIBATCHES, MOST_IDS = 64, 4096  # that a page is told
EVERY_SECONDS = 1.0  # between reports of a slow run
KEY = "samples"  # of the metadata; "samples 3" is what rank 3 took
Part = list[int] | dict[str, tuple[int, int, int]]  # ids; {"slice": (start, stop, step)} of all


class Taken:
    """The samples that a rank took in its first iterations; told now and then."""

    def __init__(
        self,
        rank: int,
        minibatches: Minibatches,
        exp: Experiment,
        tell: Callable[[dict[str, str]], None],
    ) -> None:
        self._rank, self._tell, self._scaled = rank, tell, exp.scale_batch
        # Slices are told of minibatches of one size, which readers know.
        self._minibatches = Minibatches(
            minibatches.samples, exp.batch_size, minibatches.seed, buffer=minibatches.buffer
        )
        self._iterations, self._end = (
            exp.iterations,
            _iterations_kept(minibatches, exp.iterations),
        )
        self._of: dict[int, list[int]] = {}  # that are under way
        self._parts: dict[int, Part] = {}
        self._next = 1  # iterations after which it is told: 1, 4, 16, 64; or once per second
        self._told_at = time.monotonic()

    def abandon(self) -> None:
        """Forget what was loaded in an iteration that did not end: it is done again, and told."""
        self._of.clear()
        self._told_at = -math.inf

    def load(self, iteration: int, ids: Iterable[int]) -> None:
        if 0 <= iteration < self._end:
            self._of.setdefault(iteration, []).extend(int(i) for i in ids)

    def counts(self, iteration: int, samples: int) -> None:
        """End this iteration; ``samples`` of those that were loaded count."""
        if not 0 <= iteration < self._end:
            return
        took = self._of.pop(iteration, [])[:samples]
        self._parts[iteration] = _as_slice(took, self._minibatches.ids(iteration).tolist())
        done, at = iteration + 1, time.monotonic()
        if done in (self._next, self._end) or at - self._told_at >= EVERY_SECONDS:
            self._next, self._told_at = 4 ** (math.floor(math.log(done, 4) + 1e-9) + 1), at
            self._tell(self._metadata(done))

    def _metadata(self, done: int) -> dict[str, str]:
        """Return it as metadata of the run: what this rank took, and what determines the
        minibatches.
        """
        whole = self._minibatches
        what = {
            "n": whole.samples,
            "batch_size": whole.batch_size,
            "seed": whole.seed,
            "iterations": self._iterations,
            **({"scaled": True} if self._scaled else {}),
            **({} if whole.buffer is None else {"buffer": whole.buffer}),
        }
        first = min(self._parts, default=done)  # a process that came later knows nothing of before
        took = [self._parts.get(i, [] if i >= first else None) for i in range(done)]
        return {KEY: json.dumps(what), f"{KEY} {self._rank}": json.dumps(took)}


def merge(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """Return what a rank tells, with what its former process had told of the iterations of which
    it knows nothing.
    """
    result = dict(after)
    for key in after.keys() & before.keys():
        if key.startswith(f"{KEY} "):
            now, past = json.loads(after[key]), json.loads(before[key])
            for at in [at for at, part in enumerate(now[: len(past)]) if part is None]:
                now[at] = past[at]
            result[key] = json.dumps(now)
    return result


def _as_slice(ids: list[int], whole: list[int]) -> Part:
    """Write ids that are a slice of their minibatch as that slice: in a short run, these ids would
    be most of what is kept.
    """
    if len(ids) > 1 and {ids[0], ids[1]} <= set(whole):
        start, second = whole.index(ids[0]), whole.index(ids[1])
        stop, step = start + (second - start) * len(ids), second - start
        if step > 0 and whole[start:stop:step] == ids:
            return {"slice": (start, stop, step)}
    return ids


def _iterations_kept(minibatches: Minibatches, iterations: int) -> int:
    """Return the number of iterations that are kept."""
    fit = MOST_IDS // max(1, min(minibatches.batch_size, minibatches.samples))
    return min(MOST_MINIBATCHES, max(1, fit), iterations)
