"""An environment of gymnasium, by its id: any with discrete actions, CartPole-v1 left to itself.

The network is a multilayer perceptron on the flat observation: of a Discrete space zeros and a one,
of a Tuple or Dict all of its parts in one array. For images write a task of your
own, with a network that fits: ``environment()`` and ``model()`` are all that it needs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from torch import nn

from workbench.common.errors import short
from workbench.tasks._environments import Game, check_spaces, make

CARTPOLE = "CartPole-v1"


class Task:
    """The metric is the mean return of episodes played without exploration.

    id      of the environment, as ``gymnasium.make`` takes it
    hidden  width of each hidden layer
    """

    def __init__(self, id: str = CARTPOLE, hidden: Sequence[int] = (64, 64)) -> None:
        _check_widths(hidden)
        self.id, self.hidden = id, tuple(hidden)

    def environment(self) -> Any:
        """Return the environment."""
        return make(self.id)

    def model(self) -> nn.Module:
        """Return a network of the values of all actions."""
        game = Game(self.environment(), 0)
        game.close()
        widths = [math.prod(game.shape), *self.hidden, game.actions]
        layers: list[nn.Module] = [nn.Flatten()]
        for inputs, outputs in pairwise(widths):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        return nn.Sequential(*layers[:-1])


def check(id: str = CARTPOLE, hidden: Sequence[int] = (64, 64)) -> None:
    """Check that there is such an environment, with discrete actions. Raises SpecError or
    ValueError.
    """
    _check_widths(hidden)
    environment = make(id)
    check_spaces(environment)
    environment.close()


def _check_widths(hidden: Sequence[int]) -> None:
    if any(not isinstance(width, int) or width < 1 for width in hidden):
        raise ValueError(f"hidden = {short(list(hidden))}: the width of each layer, 1 or more")
