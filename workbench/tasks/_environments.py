"""Environments of tasks: gymnasium's interface, what training needs of it, and how to play.

A task that names an environment has ``environment()``, which returns a ``gymnasium.Env``, and
``model()``, which returns a network: a batch of observations in, a value for each action out.
gymnasium is an extra: nothing here is imported before such a task is used.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import torch

from workbench.common.errors import SpecError

INSTALL = 'pip install "distributed-training-workbench[rl]"'
EPISODES = 20  # that a trained network plays at the end of a run
MOST_FRAMES = 20_000  # of them together, where a game has no end


def gymnasium() -> Any:
    """Return the module ``gymnasium``. Raises SpecError, with what to install, without it."""
    try:
        return importlib.import_module("gymnasium")
    except ImportError as error:
        raise SpecError.at(
            "task",
            f"plays an environment, and gymnasium cannot be imported ({error}): {INSTALL}",
        ) from None


def plays(task: Any) -> bool:
    """Return whether a task names an environment, and not samples."""
    return callable(getattr(task, "environment", None))


def make(name: str) -> Any:
    """Return the environment of a gymnasium id; nested observations, such as a Tuple, as one flat
    array. Raises SpecError if there is none.
    """
    library = gymnasium()
    if ":" in name:  # gymnasium would import the module before the colon
        raise SpecError.at(
            "task_options.id",
            "names a module to import: write a class with environment() and model() for it",
            name,
        )
    try:
        environment = library.make(name)
        if isinstance(environment.observation_space, _plain(library.spaces)):
            return environment
        return importlib.import_module("gymnasium.wrappers").FlattenObservation(environment)
    except Exception as error:
        raise SpecError.at("task_options.id", f"gymnasium cannot make it: {error}", name) from None


class Game:
    """One environment, played by number of action, its observations as arrays.

    ``dtype``, ``shape``: of an observation; a discrete one is written as zeros and a one.
    """

    def __init__(self, environment: Any, seed: int) -> None:
        self._environment, self._seed = environment, seed
        check_spaces(environment)
        space = environment.observation_space
        self._states = int(space.n) if hasattr(space, "n") else 0
        self._first = int(getattr(space, "start", 0))
        self.dtype = np.dtype(np.uint8) if self._states else np.dtype(space.dtype)
        self.shape: tuple[int, ...] = (self._states,) if self._states else tuple(space.shape)
        self.actions = int(environment.action_space.n)
        self._start = int(environment.action_space.start)

    def reset(self) -> np.ndarray:
        """Begin an episode; the first one from the seed."""
        seed, self._seed = self._seed, -1
        observation, _ = self._environment.reset(seed=seed if seed >= 0 else None)
        return self._array(observation)

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool]:
        """Take an action. Returns the observation, the reward, whether that is the end of the game,
        and whether the episode is cut off here.
        """
        observation, reward, ended, cut, _ = self._environment.step(self._start + action)
        return self._array(observation), float(reward), bool(ended), bool(cut)

    def close(self) -> None:
        self._environment.close()

    def _array(self, observation: Any) -> np.ndarray:
        if self._states:
            result = np.zeros(self.shape, self.dtype)
            result[int(observation) - self._first] = 1
            return result
        return np.array(observation, self.dtype)  # a copy: games may reuse their own


def check_spaces(environment: Any) -> None:
    """Raise SpecError unless actions are discrete, and observations arrays or discrete."""
    spaces, name = gymnasium().spaces, _name(environment)
    if not isinstance(environment.action_space, spaces.Discrete):
        raise SpecError.at(
            "task",
            f"{name} takes actions {environment.action_space}: a network that values each action "
            "needs discrete ones. Take an environment whose action_space is gymnasium.spaces."
            "Discrete, such as 'CartPole-v1', or wrap this one so that it has a few actions",
        )
    if not isinstance(environment.observation_space, _plain(spaces)):
        raise SpecError.at(
            "task",
            f"{name} has observations {environment.observation_space}: expected a Box or Discrete. "
            "gymnasium.wrappers.FlattenObservation makes a Box of nested ones",
        )


def check_network(model: Any, game: Game, name: str) -> None:
    """Raise SpecError unless the network gives one value for each action."""
    observation = torch.from_numpy(np.zeros((1, *game.shape), game.dtype)).float()
    try:
        with torch.no_grad():
            values = model.float()(observation)
    except Exception as error:
        raise SpecError.at(
            "task",
            f"{name}: its network does not take a batch of observations of shape {game.shape}: "
            f"{error}",
        ) from None
    shape = tuple(values.shape) if isinstance(values, torch.Tensor) else type(values).__name__
    if shape != (1, game.actions):
        raise SpecError.at(
            "task",
            f"{name}: its network makes {shape} of one observation, and (1, {game.actions}) was "
            f"expected, a value for each of the {game.actions} actions",
        )


def values_of(model: Any, observation: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """Return the network's values of all actions for one observation."""
    with torch.no_grad():
        x = torch.from_numpy(observation[None]).to(dtype)
        result: np.ndarray = model(x)[0].numpy()
    return result


def evaluate(task: Any, model: Any, seed: int) -> dict[str, float]:
    """Return the mean return of some episodes played without exploration, from a seed that no actor
    has.
    """
    dtype = next(model.parameters()).dtype
    game = Game(task.environment(), seed)
    returns, frames = list[float](), 0
    while len(returns) < EPISODES and frames < MOST_FRAMES:
        observation, over, total = game.reset(), False, 0.0
        while not over and frames < MOST_FRAMES:
            action = int(values_of(model, observation, dtype).argmax())
            observation, reward, ended, cut = game.step(action)
            over, total, frames = ended or cut, total + reward, frames + 1
        returns.append(total)
    game.close()
    return {"return": float(np.mean(returns))}


def _plain(spaces: Any) -> tuple[type, ...]:
    """Return the spaces whose observations are one array."""
    return spaces.Box, spaces.Discrete


def _name(environment: Any) -> str:
    spec = getattr(environment, "spec", None)
    return str(spec.id if spec is not None else type(environment.unwrapped).__name__)
