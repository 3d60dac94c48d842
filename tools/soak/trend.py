"""Does a number grow from case to case? A line through its second half, and how sure it is.

What a driver holds rises while things are used for the first time, and stays there: that is past in
the second half of many cases. What may still come is a single step, because a large piece of work
leaves memory in pieces that cannot be given back. A leak goes on: with each case, or by a step with
each case of some kind. So one step is taken out of the line, and told; a second one counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

SURE = 3.0  # standard errors
FEWEST = 40  # values in the second half: of fewer nothing can be said
HALVED = 0.5  # a step is one if the line leaves so much less unexplained with it

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Trend:
    """``slope`` a case, with its standard error, over the last ``cases``; infinite if they are too
    few. ``step``: what was added at once, and ``at`` which of all values (-1: no step).
    """

    slope: float
    error: float
    cases: int
    step: float = 0.0
    at: int = -1

    @property
    def least(self) -> float:
        """What it surely grows by over these cases, the one step aside."""
        return max(0.0, self.slope - SURE * self.error) * self.cases

    def __str__(self) -> str:
        if math.isinf(self.error):
            return f"{self.cases} cases in the second half are too few to tell a trend"
        text = f"{self.slope:+.4f} ± {self.error:.4f} a case over the last {self.cases}"
        return text + (f", and {self.step:+.1f} at once at value {self.at}" if self.at >= 0 else "")


def trend(values: Sequence[float]) -> Trend:
    """Of the second half of the values; those that are NaN are left out."""
    there = [(at, value) for at, value in enumerate(values) if not math.isnan(value)]
    there = there[len(there) // 2 :]
    if (n := len(there)) < FEWEST:
        return Trend(0.0, math.inf, n)
    y = np.array([value for _, value in there])
    line = np.stack([np.ones(n), np.arange(n) - (n - 1) / 2], axis=1)
    fits = {c: _fitted(np.column_stack([line, np.arange(n) >= c]), y) for c in range(2, n - 1)}
    at = min(fits, key=lambda c: _square(fits[c][1]))
    factors, rest = _fitted(line, y)
    if _square(fits[at][1]) >= HALVED * _square(rest):
        return Trend(float(factors[1]), _error(line, rest), n)
    factors, rest = fits[at]
    columns = np.column_stack([line, np.arange(n) >= at])
    return Trend(float(factors[1]), _error(columns, rest), n, float(factors[2]), there[at][0])


def _fitted(columns: Values, y: Values) -> tuple[Values, Values]:
    """The factors of least squares, and what they leave over."""
    factors = np.linalg.lstsq(columns, y, rcond=None)[0]
    return factors, y - columns @ factors


def _square(rest: Values) -> float:
    return float(rest @ rest)


def _error(columns: Values, rest: Values) -> float:
    """The slope's. Memory moves in steps, so that what is left over is like what came just before:
    it counts for fewer values than there are (Bartlett 1935, of the effective size of a sample).
    """
    n, number = columns.shape
    square = _square(rest)
    alike = float(rest[1:] @ rest[:-1]) / square if square > 0 else 0.0
    alike = min(max(alike, 0.0), 0.95)
    spread = np.linalg.inv(columns.T @ columns)[1, 1]
    return math.sqrt(square / (n - number) * spread * (1 + alike) / (1 - alike))
