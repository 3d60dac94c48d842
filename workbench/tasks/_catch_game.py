"""A pixel game: a ball falls, and a paddle at the bottom is to catch it."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

ROWS, COLUMNS = 10, 5
LEFT, STAY, RIGHT = range(3)


class Catch(gymnasium.Env):
    """A board of pixels, 1 where the ball or the paddle is. The ball falls a row a frame.

    Reward   1 if the paddle is under the ball when it comes to the lowest row, else -1; 0 before.
    Actions  0 left, 1 stay, 2 right, by one column.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (gymnasium's own type)

    def __init__(self, rows: int = ROWS, columns: int = COLUMNS) -> None:
        self.rows, self.columns = rows, columns
        self.action_space = gymnasium.spaces.Discrete(3)
        self.observation_space = gymnasium.spaces.Box(0, 1, (1, rows, columns), np.uint8)
        self._row = self._column = self._paddle = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._row, self._paddle = 0, self.columns // 2
        self._column = int(self.np_random.integers(self.columns))
        return self._board(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._paddle = min(max(self._paddle + int(action) - STAY, 0), self.columns - 1)
        self._row += 1
        over = self._row == self.rows - 1
        reward = (1.0 if self._paddle == self._column else -1.0) if over else 0.0
        return self._board(), reward, over, False, {}

    def _board(self) -> np.ndarray:
        board = np.zeros((1, self.rows, self.columns), np.uint8)
        board[0, self.rows - 1, self._paddle] = 1
        board[0, self._row, self._column] = 1
        return board
