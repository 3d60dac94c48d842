"""Young's and Daly's intervals against the optima of the costs that they are derived from."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from workbench.formulas.checkpoint_interval import daly, exact, first_order, young

COST_AND_MTBF = [(c, m) for c in (1e-3, 0.2, 5.0) for m in (0.5, 20.0, 3600.0, 1e6)]
RARE = [(c, m) for c, m in COST_AND_MTBF if c < m / 10]


def optimum(of: Callable[[float], float], near: float) -> float:
    """Return where a cost is least, on a fine grid around ``near``."""
    grid = near * np.geomspace(0.05, 20, 40_001)
    return float(grid[np.argmin([of(one) for one in grid])])


@pytest.mark.parametrize("restart", [0.0, 3.0])
@pytest.mark.parametrize(("cost", "mtbf"), COST_AND_MTBF[::2])
def test_young_is_the_optimum_of_the_first_order_cost(
    cost: float, mtbf: float, restart: float
) -> None:
    best = optimum(lambda one: first_order(one, cost, mtbf, restart), young(cost, mtbf))
    assert young(cost, mtbf) == pytest.approx(best, rel=1e-3)


@pytest.mark.parametrize(("cost", "mtbf"), COST_AND_MTBF)
def test_at_youngs_interval_checkpoints_cost_as_much_as_lost_work(cost: float, mtbf: float) -> None:
    best = young(cost, mtbf)
    assert cost / best == pytest.approx(best / 2 / mtbf, rel=1e-12)
    assert first_order(best, cost, mtbf) == pytest.approx(1 + math.sqrt(2 * cost / mtbf))


@pytest.mark.parametrize("restart", [0.0, 0.3])
@pytest.mark.parametrize(("cost", "mtbf"), [(0.1, 10.0), (0.5, 10.0), (2.0, 10.0), (4.0, 10.0)])
def test_daly_is_nearer_to_the_exact_optimum_than_young(
    cost: float, mtbf: float, restart: float
) -> None:
    best = optimum(lambda one: exact(one, cost, mtbf, restart), young(cost, mtbf))
    assert abs(daly(cost, mtbf) - best) < 0.2 * abs(young(cost, mtbf) - best)
    assert daly(cost, mtbf) == pytest.approx(best, rel=0.02)


def test_daly_becomes_young_as_checkpoints_become_cheap() -> None:
    apart = [abs(daly(1.0, mtbf) / young(1.0, mtbf) - 1) for mtbf in (1e2, 1e4, 1e6, 1e10)]
    assert apart == sorted(apart, reverse=True) and apart[-1] < 1e-5


@pytest.mark.parametrize("mtbf", [0.5, 3.0])
def test_a_checkpoint_that_costs_more_than_two_failures_is_written_once_in_between(
    mtbf: float,
) -> None:
    assert daly(2 * mtbf, mtbf) == daly(100 * mtbf, mtbf) == mtbf
    assert daly(1.999 * mtbf, mtbf) == pytest.approx(mtbf, rel=0.15)


@pytest.mark.parametrize(("cost", "mtbf"), RARE)
def test_the_exact_cost_becomes_the_first_order_one_where_failures_are_rare(
    cost: float, mtbf: float
) -> None:
    best, far = young(cost, mtbf), 1e6
    extra = first_order(best, cost, mtbf * far, cost) - 1
    assert exact(best, cost, mtbf * far, cost) - 1 == pytest.approx(extra, rel=1e-3)


def test_the_exact_cost_of_never_writing_one_is_infinite() -> None:
    assert exact(1e9, 1.0, 1.0) == math.inf
