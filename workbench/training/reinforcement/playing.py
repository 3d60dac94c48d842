"""A player: one environment, played with a network, and the transitions that come of it.

The same code plays in one process (``sequential``), in an actor's and in a bundle's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from workbench.rank.padding import sleep_exactly
from workbench.recording.events import now
from workbench.tasks._environments import Game, values_of
from workbench.training.reinforcement.exploring import Exploration
from workbench.training.reinforcement.transitions import NSteps, layout_of

ACTING, PLAYING = 1, 2  # what random numbers are for: actions, the game


class Player:
    """One actor's game.

    ``actor``: its number, from 0. ``pad_ns``: least duration of a step of the environment.
    ``life``: 0; a process that replaces a lost actor has another number, so it plays other games.
    ``first``: the number of its first transition.
    """

    def __init__(
        self,
        environment: Any,
        model: torch.nn.Module,
        exploration: Exploration,
        *,
        seed: int,
        actor: int,
        steps: int,
        discount: float,
        pad_ns: int = 0,
        life: int = 0,
        first: int = 0,
    ) -> None:
        again = [life] if life else []
        self._game = Game(environment, _seed_of_game([seed, PLAYING, actor, *again]))
        self._model, self._exploration, self._pad_ns = model, exploration, pad_ns
        self._dtype = next(model.parameters()).dtype
        self._random = np.random.default_rng([seed, ACTING, actor, *again])
        self.layout = layout_of(self._game.dtype, self._game.shape)
        self._steps = NSteps(self.layout, actor, steps, discount, first)
        self._observation = self._game.reset()
        self._whole: list[np.ndarray] = []  # transitions that are in no block yet
        self._return = 0.0
        self.frames = 0
        self.shown_ns = 0  # when pages were told what it sees
        self.returns: list[float] = []  # of episodes that ended in the latest block

    def plays_by(self, model: torch.nn.Module) -> None:
        """Play by this network from now on."""
        self._model = model

    @property
    def epsilon(self) -> float:
        """The probability of a random action in the next frame."""
        return self._exploration.at(self.frames)

    @property
    def observation(self) -> np.ndarray:
        """The newest observation."""
        return self._observation

    def block(self, count: int, version: int) -> np.ndarray:
        """Play until there are ``count`` transitions more, and return them as records.

        ``version``: of the network's parameters.
        """
        self.returns = []
        values = values_of(self._model, self._observation, self._dtype)  # they may have changed
        while len(self._whole) < count:
            values = self._frame(values, version)
        block, self._whole = self._whole[:count], self._whole[count:]
        return np.array(block, self.layout)

    def close(self) -> None:
        self._game.close()

    def _frame(self, values: np.ndarray, version: int) -> np.ndarray:
        """Play one frame, given the values of the actions. Returns those of the next frame."""
        explores = self._random.random() < self.epsilon
        action = int(self._random.integers(self._game.actions) if explores else values.argmax())
        start = now()
        after, reward, ended, cut = self._game.step(action)
        if self._pad_ns:
            sleep_exactly(start + self._pad_ns)
        following = values_of(self._model, after, self._dtype)
        self._whole += self._steps.add(
            self._observation,
            action,
            float(values[action]),
            reward,
            after,
            float(following.max()),
            ended=ended,
            cut=cut,
            version=version,
        )
        self.frames += 1
        self._return += reward
        self._observation = after
        if ended or cut:
            self.returns.append(self._return)
            self._return, self._observation = 0.0, self._game.reset()
            following = values_of(self._model, self._observation, self._dtype)
        return following


def _seed_of_game(words: list[int]) -> int:
    return int(np.random.SeedSequence(words).generate_state(1)[0])
