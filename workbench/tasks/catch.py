"""A pixel game to learn by playing: a ball falls over a board of 10 x 5, a paddle catches it.

A small convolution learns it within a minute on one core. The return of an episode is 1 if the
ball is caught and -1 if it is not; nine frames an episode.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from workbench.tasks._environments import gymnasium

ROWS, COLUMNS, ACTIONS = 10, 5, 3
MOST = 64  # rows, columns


class Task:
    """The metric is the mean return of episodes played without exploration.

    channels  of the convolution
    hidden    width of the layer after it
    """

    def __init__(
        self, rows: int = ROWS, columns: int = COLUMNS, channels: int = 8, hidden: int = 64
    ) -> None:
        check(rows, columns, channels, hidden)
        self.rows, self.columns, self.channels, self.hidden = rows, columns, channels, hidden

    def environment(self) -> Any:
        """Return the game, a ``gymnasium.Env``."""
        from workbench.tasks._catch_game import Catch

        return Catch(self.rows, self.columns)

    def model(self) -> nn.Module:
        """Return a network of the values of left, stay and right."""
        return nn.Sequential(
            nn.Conv2d(1, self.channels, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(self.channels * self.rows * self.columns, self.hidden),
            nn.ReLU(),
            nn.Linear(self.hidden, ACTIONS),
        )


def check(rows: int = ROWS, columns: int = COLUMNS, channels: int = 8, hidden: int = 64) -> None:
    """Check that there is a game of this size, and gymnasium. Raises SpecError or ValueError."""
    gymnasium()
    if not (3 <= rows <= MOST and 2 <= columns <= MOST):
        raise ValueError(f"rows = {rows}, columns = {columns}: 3 and 2 at least, {MOST} at most")
    if min(channels, hidden) < 1:
        raise ValueError(f"channels = {channels}, hidden = {hidden}: 1 or more")


def size(rows: int = ROWS, columns: int = COLUMNS, channels: int = 8, hidden: int = 64) -> int:
    """Return how many values the network holds, without making it."""
    return 10 * channels + (channels * rows * columns + 1) * hidden + (hidden + 1) * ACTIONS
