"""Which algorithm "auto" takes, and why: each one's file is walked through, the fastest wins.

    choose("all_reduce", 4, 1 << 20, costs)      "ring"
    print(why("all_reduce", 4, 1 << 20, costs))

Every file ``collectives/<operation>_*.py`` takes part that takes this number of ranks. The same
costs give the same answer on every rank; so links are as the spec has them, and what is done to
them by hand while a run goes on changes no choice.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from workbench import collectives
from workbench.choosing.costs import Costs
from workbench.choosing.predict import predict, sent
from workbench.collectives import OPERATIONS
from workbench.errors import CollectiveError, SpecError
from workbench.source import listed, nearest

EQUAL = 1.05  # times as long: no difference that a prediction knows of
STEPS = 4  # sizes looked at between one and twice it: "auto" does not tell nearer ones apart
SMALLEST, LARGEST = 64, 1 << 26  # bytes between which ``ranges`` looks
ALONE = {"all_reduce": "ring"}  # of one rank, which sends nothing
PLAINEST = "ring"  # of those that are alike in all: a hierarchy of one level is one
COMPARED = 1 << 20  # bytes: those that are equally fast are compared by what they send of so many


@cache
def algorithms(operation: str) -> tuple[str, ...]:
    """Names of the files of an operation. Raises SpecError for an operation without."""
    if operation not in OPERATIONS:
        raise SpecError(
            f"there is no collective {operation!r}{nearest(operation, OPERATIONS)}. There is: "
            f"{listed(OPERATIONS)}"
        )
    return tuple(collectives.algorithms(operation))


@cache
def candidates(operation: str, n: int) -> tuple[str, ...]:
    """Those of an operation's algorithms that take ``n`` ranks."""
    return tuple(name for name in algorithms(operation) if not refuses(operation, name, n))


def refuses(operation: str, algorithm: str, n: int) -> str:
    """Why an algorithm does not take ``n`` ranks; "" if it does."""
    module = importlib.import_module(f"workbench.collectives.{operation}_{algorithm}")
    return collectives.refusal(getattr(module, "takes", None), n)


def choose(operation: str, n: int, nbytes: int, costs: Costs) -> str:
    """The algorithm that takes least time by ``costs``; the same on every rank that has them."""
    if n == 1:
        return ALONE.get(operation) or algorithms(operation)[0]
    key = "choose", operation, n, _rounded(nbytes)
    if key not in costs.known:
        seconds = times(operation, n, _rounded(nbytes), costs)
        if not seconds:
            raise CollectiveError(f"no algorithm of {operation} takes {n} ranks")
        most = EQUAL * min(seconds.values())
        equal = [name for name in seconds if seconds[name] <= most]
        costs.known[key] = min(
            equal, key=lambda name: (_sent(operation, name, n, costs), name != PLAINEST, name)
        )
    return str(costs.known[key])


def _sent(operation: str, name: str, n: int, costs: Costs) -> tuple[int, int]:
    key = "sent", operation, name, n
    if key not in costs.known:
        costs.known[key] = sent(operation, name, n, COMPARED, costs)
    found: tuple[int, int] = costs.known[key]
    return found


def _rounded(nbytes: int) -> int:
    if nbytes <= 4:
        return nbytes
    return max(4, round(2 ** (round(STEPS * math.log2(nbytes)) / STEPS)))


def times(operation: str, n: int, nbytes: int, costs: Costs) -> dict[str, float]:
    """Seconds of every algorithm that takes ``n`` ranks."""
    return {name: predict(operation, name, n, nbytes, costs) for name in candidates(operation, n)}


# ---- why


@dataclass(frozen=True, repr=False)
class Choice:
    """What "auto" takes, and what it knows of the others."""

    operation: str
    n: int
    nbytes: int
    chosen: str
    seconds: Mapping[str, float]  # predicted, by algorithm
    costs: Costs

    @property
    def words(self) -> str:
        """In a sentence."""
        others = sorted((s, name) for name, s in self.seconds.items() if name != self.chosen)
        told = f"{self.chosen}: {said(self.seconds[self.chosen])} predicted"
        against = ", ".join(f"{name} {said(s)}" for s, name in others)
        return f"{told}{f' ({against})' if against else ''}"

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        head = f"{self.operation} of {size(self.nbytes)} on {self.n} ranks: {self.words}."
        ruled = ranges(self.operation, self.n, self.costs)
        return f"{head}\nauto: {in_words(ruled)}.\nCosts: {self.costs.source or 'given'}."


def why(operation: str, n: int, nbytes: int, costs: Costs) -> Choice:
    """What "auto" takes for ``nbytes`` on ``n`` ranks, with each algorithm's predicted seconds."""
    chosen = choose(operation, n, nbytes, costs)
    seconds = times(operation, n, nbytes, costs) if n > 1 else {chosen: 0.0}
    return Choice(operation, n, nbytes, chosen, seconds, costs)


def ranges(operation: str, n: int, costs: Costs) -> list[tuple[str, int]]:
    """What "auto" takes from the smallest sizes on: (algorithm, bytes up to which, 0: no end)."""
    key = "ranges", operation, n
    if key not in costs.known:
        found: list[tuple[str, int]] = []
        for at in _looked_at(operation, n, costs):
            name = choose(operation, n, at, costs)
            if found and found[-1][0] == name:
                found.pop()
            found.append((name, at))
        costs.known[key] = [*found[:-1], (found[-1][0], 0)]
    return list(costs.known[key])


def powers() -> list[int]:
    """The sizes in bytes that ``ranges`` looks at first."""
    return [SMALLEST << k for k in range(round(math.log2(LARGEST / SMALLEST)) + 1)]


def _looked_at(operation: str, n: int, costs: Costs) -> list[int]:
    """Powers of two; where the choice changes between two of them, the sizes between them too."""
    names = [choose(operation, n, nbytes, costs) for nbytes in powers()]
    sizes = []
    for k, name in enumerate(names):
        if k and name != names[k - 1]:
            sizes += [round((SMALLEST << k - 1) * 2 ** (j / STEPS)) for j in range(1, STEPS)]
        sizes.append(SMALLEST << k)
    return sizes


def in_words(ruled: Sequence[tuple[str, int]]) -> str:
    """ "one_shot up to 32 KB, ring above"."""
    if len(ruled) == 1:
        return f"{ruled[0][0]} at every size"
    told = [f"{name} up to {size(most)}" for name, most in ruled[:-1]]
    return f"{', '.join(told)}, {ruled[-1][0]} above"


def size(nbytes: float) -> str:
    """ "32 KB": 1024 bytes each, as tensors' sizes are said."""
    for unit, scale in (("MB", 1 << 20), ("KB", 1 << 10)):
        if nbytes >= scale:
            return f"{_short(nbytes / scale)} {unit}"
    return f"{nbytes:.0f} B"


def _short(value: float) -> str:
    """Two digits, but whole numbers whole."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def said(seconds: float) -> str:
    """ "350 µs"."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
