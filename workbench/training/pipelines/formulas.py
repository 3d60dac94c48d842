"""The papers' formulas for pipelines with equal stages: idle time and microbatches in flight.

``theory.py`` follows a schedule action by action; the formulas give the expected result, and None
where they do not hold. Papers: see each file of ``schedules/``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """The variables of the formulas."""

    K: int  # ranks
    M: int  # microbatches; of the whole run where there is no flush
    v: int = 1  # stages per rank
    f: float = 1.0  # seconds of a stage's forward,
    i: float = 1.0  # of its input gradient,
    w: float = 1.0  # and of its weight gradient; a whole backward lasts i + w

    @property
    def busy(self) -> float:
        """Seconds that each rank computes."""
        return self.v * self.M * (self.f + self.i + self.w)


Number = Callable[[Case], float]


@dataclass(frozen=True)
class Formula:
    """The cost of a schedule."""

    idle_words: str
    idle: Number  # seconds that each rank idles within the makespan
    peak_words: str
    peak: Callable[[Case, int], int]  # rank -> most microbatches in flight, over its stages
    span: Number | None = None  # seconds that rank 0 idles between its first and last action
    holds: Callable[[Case], bool] = lambda case: True


def _fill_and_drain(c: Case) -> float:
    return (c.K - 1) * (c.f + c.i + c.w)


FORMULAS = {
    "sequential": Formula(
        "(K−1)·v·M·(F+I+W)", lambda c: (c.K - 1) * c.busy, "v", lambda c, rank: c.v
    ),
    "gpipe": Formula("(K−1)(F+I+W)", _fill_and_drain, "M", lambda c, rank: c.M),
    "1f1b": Formula(
        "(K−1)(F+I+W)", _fill_and_drain, "min(M, K−d)", lambda c, rank: min(c.M, c.K - rank)
    ),
    "pipedream": Formula(
        "(K−1)(F+I+W)", _fill_and_drain, "min(M, K−d)", lambda c, rank: min(c.M, c.K - rank)
    ),
    "interleaved_1f1b": Formula(
        "(K−1)(F+I+W)",
        _fill_and_drain,
        "min(v·M, 2(K−d−1)+(v−1)K+1)",
        lambda c, rank: min(c.v * c.M, 2 * (c.K - rank - 1) + (c.v - 1) * c.K + 1),
    ),
    "looped_bfs": Formula(
        "(K−1)(F+I+W)",
        _fill_and_drain,
        "v·M",
        lambda c, rank: c.v * c.M,
        holds=lambda c: c.M >= c.K,
    ),
    "zb_h1": Formula(
        "(K−1)(F+I−W)",
        lambda c: (c.K - 1) * (c.f + c.i - c.w),
        "min(M, K)",
        lambda c, rank: min(c.M, c.K),
        holds=lambda c: c.M >= c.K and c.w <= c.f,
    ),
    "zb_h2": Formula(
        "(K−1)·max(F, F+I−2W)",
        lambda c: (c.K - 1) * max(c.f, c.f + c.i - 2 * c.w),
        "min(M, 2K−1)",
        lambda c, rank: min(c.M, 2 * c.K - 1),
        span=lambda c: (c.K - 1) * max(0.0, c.f + c.i - 2 * c.w),
        holds=lambda c: c.M >= 2 * c.K - 1 and c.w <= min(c.f, c.i),
    ),
    "interleaved_zero_bubble": Formula(
        "(K−1)(F+I−W)",
        lambda c: (c.K - 1) * (c.f + c.i - c.w),
        "v·K",
        lambda c, rank: c.v * c.K,
        holds=lambda c: c.M >= 2 * c.K and c.w <= min(c.f, c.i),
    ),
    "dualpipe_v": Formula(
        "(K−1)(F+I−W)",
        lambda c: (c.K - 1) * (c.f + c.i - c.w),
        "2K+1",
        lambda c, rank: 2 * c.K + 1,
        # Measured on the grid: a longer I holds up the forwards beside it, in each of K - 1 turns.
        holds=lambda c: (
            c.M >= 2 * c.K
            and c.w <= min(c.f, c.i)
            and c.f - c.w <= c.i
            and (c.K - 1) * (c.i - c.f) <= c.f
        ),
    ),
    "zbv": Formula(
        "(K−1)·F",
        lambda c: (c.K - 1) * c.f,
        "2K",
        lambda c, rank: 2 * c.K,
        span=lambda c: 0.0,
        holds=lambda c: c.M >= 2 * c.K and c.f == c.i == c.w,
    ),
}


def idle_formula(name: str, case: Case) -> float | None:
    """Return the seconds that each rank idles within the makespan; None: no formula.

    ``name``: "sequential" to "zbv".
    """
    formula = _applicable(name, case)
    return None if formula is None else formula.idle(case)


def bubble_formula(name: str, case: Case) -> float | None:
    """Return the idle share of the makespan: (K-1)/(M+K-1) for GPipe and 1F1B, 1-1/K for
    sequential.
    """
    idle = idle_formula(name, case)
    return None if idle is None else idle / (idle + case.busy)


def span_idle_formula(name: str, case: Case) -> float | None:
    """Return the seconds that rank 0 idles between its first and last action (ZB's papers)."""
    formula = _applicable(name, case)
    return None if formula is None else (formula.span or formula.idle)(case)


def peak_formula(name: str, case: Case) -> tuple[int, ...] | None:
    """Return the most microbatches in flight on each rank, over its stages; None: no formula."""
    formula = FORMULAS.get(name)
    few = case.M < 2 * case.K and name in ("zbv", "dualpipe_v", "interleaved_zero_bubble")
    if formula is None or few:
        return None
    return tuple(formula.peak(case, rank) for rank in range(case.K))


def _applicable(name: str, case: Case) -> Formula | None:
    formula = FORMULAS.get(name)
    return formula if formula and formula.holds(case) else None
