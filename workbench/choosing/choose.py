"""The choice of "auto": every algorithm's file is walked through, and the fastest wins.

    choose("all_reduce", 4, 1 << 20, costs)      "ring"
    print(why("all_reduce", 4, 1 << 20, costs))

Every file ``collectives/<operation>_*.py`` that takes this number of ranks takes part. The same
costs give the same answer on every rank; so links are those of the spec, and changes by hand during
a run do not change a choice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workbench import collectives
from workbench.choosing.costs import Costs
from workbench.choosing.predict import busiest_sends, predict
from workbench.collectives import OPERATIONS
from workbench.common import extensions
from workbench.common.errors import CollectiveError, SpecError
from workbench.common.names import listed, nearest
from workbench.common.units import print_seconds

EQUAL = 1.05  # times as long: no difference that a prediction knows of
STEPS = 4  # sizes looked at between one and twice it: "auto" does not tell nearer ones apart
SMALLEST, LARGEST = 64, 1 << 26  # bytes between which ``ranges`` looks
ALONE = {"all_reduce": "ring"}  # for a group of one rank, which sends nothing
PLAINEST = "ring"  # of those that are alike in all: a hierarchy of one level is one
COMPARED = 1 << 20  # bytes: those that are equally fast are compared by what they send of so many


def algorithms(operation: str) -> tuple[str, ...]:
    """Return the algorithm names of an operation. Raises SpecError for one without files."""
    if operation not in OPERATIONS:
        raise SpecError(
            f"operation = {operation!r}: there is no such operation"
            f"{nearest(operation, OPERATIONS)}. Allowed: {listed(OPERATIONS)}"
        )
    return tuple(collectives.algorithms(operation))


def candidates(operation: str, n: int) -> tuple[str, ...]:
    """Return the algorithms of an operation that take ``n`` ranks."""
    return tuple(name for name in algorithms(operation) if not refuses(operation, name, n))


def refuses(operation: str, algorithm: str, n: int) -> str:
    """Return why an algorithm does not take ``n`` ranks; "" if it does."""
    module = extensions.load("collectives", f"{operation}_{algorithm}")
    return collectives.refusal(getattr(module, "takes", None), n)


def choose(operation: str, n: int, nbytes: int, costs: Costs) -> str:
    """Return the fastest algorithm by ``costs``; the same on every rank with the same costs."""
    if n == 1:
        return ALONE.get(operation) or algorithms(operation)[0]
    key = key_of(operation, n, nbytes)
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


def key_of(operation: str, n: int, nbytes: int) -> tuple[str, str, int, int]:
    """Return the key of a choice in ``Costs.known``: one for sizes that are nearly alike."""
    return "choose", operation, n, _rounded(nbytes)


def _sent(operation: str, name: str, n: int, costs: Costs) -> tuple[float, ...]:
    key = "sent", operation, name, n
    if key not in costs.known:
        costs.known[key] = busiest_sends(operation, name, n, COMPARED, costs)
    result: tuple[float, ...] = costs.known[key]
    return result


def _rounded(nbytes: int) -> int:
    if nbytes <= 4:
        return nbytes
    return max(4, round(2 ** (round(STEPS * math.log2(nbytes)) / STEPS)))


def times(operation: str, n: int, nbytes: int, costs: Costs) -> dict[str, float]:
    """Return the seconds of every algorithm that takes ``n`` ranks."""
    return {name: predict(operation, name, n, nbytes, costs) for name in candidates(operation, n)}


# ---- why


@dataclass(frozen=True, repr=False)
class Choice:
    """The choice of "auto", with the predictions for the other algorithms."""

    operation: str
    n: int
    nbytes: int
    chosen: str
    seconds: Mapping[str, float]  # predicted, by algorithm
    costs: Costs

    @property
    def words(self) -> str:
        """The choice in a sentence."""
        others = sorted((s, name) for name, s in self.seconds.items() if name != self.chosen)
        text = f"{self.chosen}: {print_seconds(self.seconds[self.chosen])} predicted"
        against = ", ".join(f"{name} {print_seconds(s)}" for s, name in others)
        return f"{text}{f' ({against})' if against else ''}"

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        head = f"{self.operation} of {size(self.nbytes)} on {self.n} ranks: {self.words}."
        ruled = ranges(self.operation, self.n, self.costs)
        return f"{head}\nauto: {in_words(ruled)}.\nCosts: {self.costs.source or 'given'}."


def why(operation: str, n: int, nbytes: int, costs: Costs) -> Choice:
    """Explain the choice of "auto" for ``nbytes`` on ``n`` ranks, with predicted times."""
    chosen = choose(operation, n, nbytes, costs)
    seconds = times(operation, n, nbytes, costs) if n > 1 else {chosen: 0.0}
    return Choice(operation, n, nbytes, chosen, seconds, costs)


def ranges(operation: str, n: int, costs: Costs) -> list[tuple[str, int]]:
    """Return the choices of "auto" by size: (algorithm, bytes up to which; 0: no end)."""
    key = "ranges", operation, n
    if key not in costs.known:
        result: list[tuple[str, int]] = []
        for at in _trial_sizes(operation, n, costs):
            name = choose(operation, n, at, costs)
            if result and result[-1][0] == name:
                result.pop()
            result.append((name, at))
        costs.known[key] = [*result[:-1], (result[-1][0], 0)]
    return list(costs.known[key])


def powers() -> list[int]:
    """Return the sizes in bytes that ``ranges`` tries first."""
    return [SMALLEST << k for k in range(round(math.log2(LARGEST / SMALLEST)) + 1)]


def _trial_sizes(operation: str, n: int, costs: Costs) -> list[int]:
    """Return powers of two, and more sizes between two of them where the choice changes."""
    names = [choose(operation, n, nbytes, costs) for nbytes in powers()]
    sizes = []
    for k, name in enumerate(names):
        if k and name != names[k - 1]:
            sizes += [round((SMALLEST << k - 1) * 2 ** (j / STEPS)) for j in range(1, STEPS)]
        sizes.append(SMALLEST << k)
    return sizes


def in_words(ruled: Sequence[tuple[str, int]]) -> str:
    """Return e.g. "one_shot up to 32 KiB, ring above"."""
    if len(ruled) == 1:
        return f"{ruled[0][0]} at every size"
    lines = [f"{name} up to {size(most)}" for name, most in ruled[:-1]]
    return f"{', '.join(lines)}, {ruled[-1][0]} above"


def size(nbytes: float) -> str:
    """Return e.g. "32 KiB"."""
    for unit, scale in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= scale:
            return f"{_short(nbytes / scale)} {unit}"
    return f"{nbytes:.0f} B"


def _short(value: float) -> str:
    """Return the value with two digits, or as a whole number."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"
