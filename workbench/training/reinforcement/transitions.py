"""Transitions: n steps of a game as one record, and what of them travels in messages.

A transition is what DQN learns from: an observation, the action, the discounted sum of the next n
rewards, and the observation after them with the discount of its value: γⁿ, or 0 where the game
ended before. It names the actor that made it, its number there, and the version of the parameters
by which the action was chosen.

Paper  Sutton & Barto, "Reinforcement Learning", 2018, chapter 7 (n-step returns).
Walk   n = 3, rewards r0 r1 r2 r3, the game ends after r3: R = r0 + γ r1 + γ² r2 with γ³; then
       r1 + γ r2 + γ² r3 with 0; r2 + γ r3 with 0; r3 with 0. Each frame begins one transition.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

BESIDE = 36  # bytes of a transition beside its two observations


def layout_of(dtype: np.dtype, shape: tuple[int, ...]) -> np.dtype:
    """Return the record of a transition, without gaps: what travels and what replay holds."""
    return np.dtype(
        [
            ("observation", dtype, shape),
            ("next_observation", dtype, shape),
            ("action", "i4"),
            ("reward", "f4"),
            ("discount", "f4"),
            ("priority", "f4"),  # as the actor sees it: its |TD error|
            ("actor", "i4"),
            ("number", "i8"),
            ("version", "i8"),
        ]
    )


@dataclass
class _Begun:
    """A transition whose n steps are not over."""

    observation: np.ndarray
    action: int
    value: float  # of the action, by the network that chose it
    number: int
    version: int


class NSteps:
    """Turns the frames of one actor into transitions of n steps. ``first``: the number of the first
    one.
    """

    def __init__(
        self, layout: np.dtype, actor: int, steps: int, discount: float, first: int = 0
    ) -> None:
        self._layout, self._actor = layout, actor
        self._steps, self._discount = steps, discount
        self._begun: deque[_Begun] = deque()
        self._rewards: deque[float] = deque()
        self._number = first

    def add(
        self,
        observation: np.ndarray,
        action: int,
        value: float,
        reward: float,
        after: np.ndarray,
        best: float,
        *,
        ended: bool,
        cut: bool,
        version: int,
    ) -> list[np.ndarray]:
        """Take one frame; return the transitions that are whole by it, as records.

        ``value``: of the action; ``best``: of the best action in the observation ``after`` it;
        ``ended``: that is the end of the game; ``cut``: the episode is cut off, the game is not.
        """
        self._begun.append(_Begun(observation, action, value, self._number, version))
        self._rewards.append(reward)
        self._number += 1
        whole = []
        while self._begun and (len(self._begun) == self._steps or ended or cut):
            whole.append(self._whole(after, best, ended))
        return whole

    def _whole(self, after: np.ndarray, best: float, ended: bool) -> np.ndarray:
        """Return the oldest transition that was begun, now whole, and forget its first reward."""
        begun = self._begun.popleft()
        reward = sum(self._discount**k * one for k, one in enumerate(self._rewards))
        discount = 0.0 if ended else self._discount ** len(self._rewards)
        self._rewards.popleft()
        record = np.zeros((), self._layout)
        record["observation"], record["next_observation"] = begun.observation, after
        record["action"], record["reward"], record["discount"] = begun.action, reward, discount
        record["priority"] = abs(reward + discount * best - begun.value)
        record["actor"], record["number"] = self._actor, begun.number
        record["version"] = begun.version
        return record
