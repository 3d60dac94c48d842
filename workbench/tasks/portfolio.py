"""An investor and a market: the smallest world in which an agent learns from rewards alone.

Ten states (five prices, share held or not) and three actions (sell, keep, buy): few enough for a
table with a value for each, and the best policy can be computed. There is no label that says what
was right on a day, and buying pays days later, if at all.

Source  Sutton & Barto, "Reinforcement Learning: An Introduction", 2nd edition, 2018, chapter 6.
Return  of an episode of 30 days; the best policy gains 0.13 per day, chance loses 0.08.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from workbench.tasks._environments import gymnasium

STATES, ACTIONS = 10, 3


class Task:
    """The metric is the mean return of episodes played without exploration.

    hidden  width of the layer between state and values
    """

    def __init__(self, hidden: int = 32) -> None:
        check(hidden)
        self.hidden = hidden

    def environment(self) -> Any:
        """Return the market, a ``gymnasium.Env``."""
        from workbench.tasks._portfolio_market import Market

        return Market()

    def model(self) -> nn.Module:
        """Return a network of the values of sell, keep and buy."""
        return nn.Sequential(
            nn.Linear(STATES, self.hidden), nn.ReLU(), nn.Linear(self.hidden, ACTIONS)
        )


def check(hidden: int = 32) -> None:
    """Check that there is gymnasium. Raises SpecError or ValueError."""
    gymnasium()
    if hidden < 1:
        raise ValueError(f"hidden = {hidden}: 1 or more")


def size(hidden: int = 32) -> int:
    """Return how many values the network holds, without making it."""
    return (STATES + 1) * hidden + (hidden + 1) * ACTIONS
