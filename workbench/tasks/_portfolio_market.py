"""A market with one share: its price has five levels, and comes back to the middle one."""

from __future__ import annotations

from typing import Any

import gymnasium

LEVELS, DAYS, FEE = 5, 30, 0.25
UP = (0.9, 0.7, 0.5, 0.3, 0.1)  # the probability by level that the price rises; else it falls
SELL, KEEP, BUY = range(3)


class Market(gymnasium.Env):
    """An investor holds the share or does not, and decides each day before the price moves.

    State    2 · level + 1 if the share is held: ten of them.
    Actions  0 sell, 1 keep things as they are, 2 buy. Selling or buying costs FEE, but for what is
             so already.
    Reward   what the share gains that day if it is held, less the fee.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (gymnasium's own type)

    def __init__(self) -> None:
        self.action_space = gymnasium.spaces.Discrete(3)
        self.observation_space = gymnasium.spaces.Discrete(2 * LEVELS)
        self._level = self._held = self._day = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self._level, self._held, self._day = int(self.np_random.integers(LEVELS)), 0, 0
        return 2 * self._level, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        held, fee = after(self._held, int(action))
        rises = self.np_random.random() < UP[self._level]
        level = moved(self._level, rises=bool(rises))
        reward = held * (level - self._level) - fee
        self._level, self._held, self._day = level, held, self._day + 1
        return 2 * level + held, reward, False, self._day == DAYS, {}


def after(held: int, action: int) -> tuple[int, float]:
    """Return whether the share is held after an action, and what the action costs."""
    now = {SELL: 0, KEEP: held, BUY: 1}[action]
    return now, FEE if now != held else 0.0


def moved(level: int, *, rises: bool) -> int:
    """Return the price's next level; at an end it stays."""
    return min(max(level + (1 if rises else -1), 0), LEVELS - 1)
