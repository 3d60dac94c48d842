"""The update rules: torch's own, each with what else a run needs to know of it."""

from __future__ import annotations

from typing import Literal, NamedTuple

Name = Literal["sgd", "adam", "adamw", "adagrad"]


class Rule(NamedTuple):
    """One update rule. ``states``: tensors of a parameter's size that it keeps for each one."""

    title: str
    rate: float  # learning rate, where the experiment gives none
    states: int


RULES: dict[str, Rule] = {  # by Name
    "sgd": Rule("plain SGD", 0.1, 0),
    "adam": Rule("Adam", 1e-3, 2),
    "adamw": Rule("AdamW", 1e-3, 2),
    "adagrad": Rule("Adagrad", 1e-2, 1),
}


def states(optimizer: str, momentum: float) -> int:
    """Return how many tensors of a parameter's size this optimizer keeps for each."""
    return RULES[optimizer].states + (momentum != 0)
