"""The theory of a collective: steps, bytes, seconds; and α, β, γ fitted to measured points.

The formulas and their papers are in ``formulas/``, the planned events in
``theory/planned_events.py``. Units are seconds and bytes; ``nbytes`` are those of the operation's
whole tensor: of a gather, what the root ends with. Every function takes an ``operation``, by
default the all-reduce.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from workbench.formulas import (
    ALGORITHMS,
    OPERATIONS,
    Algorithm,
    Cost,
    Terms,
    chunk_numbers,
    chunk_sizes,
    expected,
    hierarchical,
    level_elements,
    lower_bound,
    sends_something,
)
from workbench.theory.algorithms import find
from workbench.theory.planned_events import plan, whole_elements

__all__ = [
    "ALGORITHMS",
    "OPERATIONS",
    "Algorithm",
    "Cost",
    "Fit",
    "Measurement",
    "Terms",
    "bytes_sent",
    "chunk_numbers",
    "chunk_sizes",
    "crossover",
    "expected",
    "find",
    "fit",
    "hierarchical",
    "level_elements",
    "lower_bound",
    "messages_sent",
    "plan",
    "predict",
    "sends_something",
    "steps",
    "terms",
]

Named = str | Algorithm


def steps(algorithm: Named, n: int, *, operation: str = "all_reduce") -> int:
    """Return the steps of one operation over ``n`` ranks; 0 for a single rank."""
    chosen = find(algorithm, operation)
    return chosen.steps(n) if n > 1 else 0


def messages_sent(
    algorithm: Named, n: int, *, operation: str = "all_reduce", root: int = 0
) -> tuple[int, ...]:
    """Return the messages that each rank sends in one operation on 1 byte or more."""
    chosen = find(algorithm, operation)
    return _from(root, chosen.sends(n)) if n > 1 else (0,)


def bytes_sent(
    algorithm: Named,
    n: int,
    nbytes: int,
    itemsize: int = 4,
    *,
    operation: str = "all_reduce",
    root: int = 0,
) -> tuple[int, ...]:
    """Return the payload bytes that each rank sends, cut between elements of ``itemsize`` bytes.

    Raises ValueError if ``nbytes`` is not a whole number of elements.
    """
    chosen, elements = find(algorithm, operation), whole_elements(nbytes, itemsize)
    if n == 1 or elements == 0:
        return (0,) * n
    return _from(root, [itemsize * each for each in chosen.sent(n, elements)])


def _from(root: int, by_place: Sequence[int]) -> tuple[int, ...]:
    """Return by rank what is given by place, where place 0 is the root's."""
    return (*by_place[len(by_place) - root :], *by_place[: len(by_place) - root])


def terms(algorithm: Named, n: int, nbytes: float, *, operation: str = "all_reduce") -> Terms:
    """Return the factors of α, β and γ; zeros if nothing is sent."""
    chosen = find(algorithm, operation)
    return chosen.terms(n, nbytes) if sends_something(operation, n, nbytes) else Terms(0, 0, 0)


def predict(
    algorithm: Named, n: int, nbytes: float, cost: Cost, *, operation: str = "all_reduce"
) -> float:
    """Return the seconds of one operation on ``nbytes`` bytes over ``n`` ranks."""
    return terms(algorithm, n, nbytes, operation=operation).seconds(cost)


def crossover(
    first: Named, second: Named, n: int, cost: Cost, *, operation: str = "all_reduce"
) -> float:
    """Return the bytes L* at which both take equally long; inf if there is no such size.

    Below L* the algorithm with fewer messages wins.
    """
    a, b = terms(first, n, 1, operation=operation), terms(second, n, 1, operation=operation)
    slope = Terms(0, b.sent - a.sent, b.added - a.added).seconds(cost)
    fixed = (a.messages - b.messages) * cost.alpha_s
    return fixed / slope if slope and fixed / slope > 0 else float("inf")


# -- measured points --


@dataclass(frozen=True)
class Measurement:
    """The duration of one operation, best as the median over repetitions of the slowest rank."""

    algorithm: str
    n: int
    nbytes: int
    seconds: float
    operation: str = "all_reduce"

    @property
    def terms(self) -> Terms:
        return terms(self.algorithm, self.n, self.nbytes, operation=self.operation)


@dataclass(frozen=True)
class Fit:
    """The model that fits the points best, and how well."""

    cost: Cost
    relative_error: float  # root mean square of (predicted - measured) / measured
    points: tuple[Measurement, ...]


def fit(points: Iterable[Measurement], gamma_s_per_byte: float | None = None) -> Fit:
    """Fit α, β, γ >= 0 by least squares of the *relative* error: all sizes count alike.

    β and γ can be told apart only by algorithms whose sent and added bytes differ in proportion:
    ring and naive (2 : 1) together with one_shot (1 : 1). Else the one that alone explains the
    points gets all, and β if both do. ``gamma_s_per_byte`` sets γ where it was measured by itself.
    Raises ValueError if there is no point, or one without bytes, peers or duration.
    """
    points = tuple(points)
    empty = [p for p in points if p.seconds <= 0 or p.n < 2 or p.nbytes <= 0]
    if not points or empty:
        raise ValueError(
            "a fit needs measurements of 2 or more ranks, some bytes and some seconds; "
            f"got {empty or 'none'}"
        )
    seconds = np.array([p.seconds for p in points])
    A = np.array([p.terms for p in points]) / seconds[:, None]
    target, columns = np.ones(len(points)), [0, 1, 2]
    if gamma_s_per_byte is not None:
        target, columns = target - A[:, 2] * gamma_s_per_byte, [0, 1]
    result = non_negative(A, target, columns)
    result[2] = result[2] if gamma_s_per_byte is None else gamma_s_per_byte
    error = float(np.sqrt(np.mean((A @ result - 1) ** 2)))
    return Fit(Cost(*result.tolist()), error, points)


def non_negative(
    A: npt.NDArray[np.float64], target: npt.NDArray[np.float64], columns: Sequence[int]
) -> npt.NDArray[np.float64]:
    """Return the x >= 0 with the least |Ax - target|, zero outside ``columns``.

    With three unknowns every choice of non-zero ones can be tried; the smallest of equally good
    choices is taken.
    """
    best = np.zeros(A.shape[1])
    least = float(np.linalg.norm(target))
    for count in range(1, len(columns) + 1):
        for chosen in map(list, combinations(columns, count)):
            some = A[:, chosen]
            scale = np.linalg.norm(some, axis=0)
            if not scale.all() or np.linalg.matrix_rank(some / scale, tol=1e-6) < count:
                continue  # they cannot be told apart
            x = np.linalg.lstsq(some / scale, target, rcond=None)[0] / scale
            rest = float(np.linalg.norm(some @ x - target))
            if (x >= 0).all() and rest < least * (1 - 1e-9) - 1e-12:
                least, best = rest, np.zeros(A.shape[1])
                best[chosen] = x
    return best
