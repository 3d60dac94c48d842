"""An investor and a market: rewards are what the books say, and a network learns to invest."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from tests.live import lenet
from workbench.tasks._portfolio_market import BUY, DAYS, FEE, KEEP, LEVELS, SELL, UP, Market
from workbench.tasks.portfolio import Task


@pytest.mark.parametrize("seed", range(5))
def test_rewards_are_gains_less_fees(seed: int) -> None:
    market, draw = Market(), np.random.default_rng(seed)
    state, _ = market.reset(seed=seed)
    assert state % 2 == 0, "no share at first"
    money, shares, wealth, days, cut = 0.0, 0, 0.0, 0, False
    while not cut:
        action = int(draw.integers(3))
        price = state // 2
        wants = {SELL: 0, KEEP: shares, BUY: 1}[action]
        money -= (wants - shares) * price + FEE * (wants != shares)
        shares = wants
        state, reward, over, cut, _ = market.step(action)
        wealth, days = wealth + reward, days + 1
        assert abs(state // 2 - price) <= 1 and state % 2 == shares and not over
        assert wealth == pytest.approx(money + shares * (state // 2))
    assert days == DAYS


def test_prices_come_back_to_the_middle() -> None:
    market, rises, seen = Market(), np.zeros(LEVELS), np.zeros(LEVELS)
    state, _ = market.reset(seed=0)
    for _ in range(20_000):
        before = state // 2
        state, *_, cut, _ = market.step(KEEP)
        seen[before] += 1
        rises[before] += state // 2 > before
        if cut:
            state, _ = market.reset()
    inner = slice(0, LEVELS - 1)  # at the top, a rise does not show
    assert np.abs(rises / seen - UP)[inner].max() < 0.03


def test_a_network_learns_to_invest() -> None:
    exp = lenet(
        task="portfolio",
        strategy="sequential",
        ranks=1,
        iterations=700,
        batch_size=32,
        optimizer="adam",
        lr=3e-3,
        options={"discount": 0.95, "n_step": 1, "epsilon_frames": 2000},
    )
    result = wb.run(exp).wait(timeout=120)
    assert result.metrics["return"] > 0.06 * DAYS, "the best policy gains 0.13 per day"
    assert sum(x.numel() for x in Task().model().parameters()) == 11 * 32 + 33 * 3


def test_a_network_without_width_is_refused() -> None:
    with pytest.raises(wb.SpecError, match="1 or more"):
        wb.run(lenet(task="portfolio", strategy="sequential", ranks=1, task_options={"hidden": 0}))
