"""The papers' formulas for pipelines with equal stages: idle time and microbatches in flight.

``theory.py`` follows a schedule action by action; the formulas give the expected result, and None
where they do not hold. A file of ``schedules/`` has its own, as ``FORMULA``, beside its paper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from workbench.user_code import source


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
    holds: Callable[[Case], bool] = lambda case: True  # of the idle time
    peak_holds: Callable[[Case], bool] = lambda case: True


def fill_and_drain(c: Case) -> float:
    """Return the seconds from the first microbatch into the pipeline until the last has left it,
    beyond those in which a rank computes.
    """
    return (c.K - 1) * (c.f + c.i + c.w)


class _Formulas(Mapping[str, Formula]):
    """Name -> formula, of the schedules that have one: ``FORMULA`` of a file of ``schedules/``."""

    def __getitem__(self, name: str) -> Formula:
        if name not in source.available("schedules"):
            raise KeyError(name)
        formula = getattr(source.load_module("schedules", name), "FORMULA", None)
        if not isinstance(formula, Formula):
            raise KeyError(name)
        return formula

    def __iter__(self) -> Iterator[str]:
        return (name for name in source.available("schedules") if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


FORMULAS = _Formulas()


def idle_formula(name: str, case: Case) -> float | None:
    """Return the seconds that each rank idles within the makespan; None: no formula.

    ``name``: of a file of ``schedules/``.
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
    if formula is None or not formula.peak_holds(case):
        return None
    return tuple(formula.peak(case, rank) for rank in range(case.K))


def _applicable(name: str, case: Case) -> Formula | None:
    formula = FORMULAS.get(name)
    return formula if formula and formula.holds(case) else None
