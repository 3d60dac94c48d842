"""The driver's look at a task that plays, before any rank starts."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any

from torch import nn

from workbench.common.errors import SpecError
from workbench.experiment.environment_checks import has_environment
from workbench.experiment.spec import Experiment
from workbench.tasks._blueprint import look_at_model
from workbench.tasks._environments import Game, check_network, plays
from workbench.training.reinforcement.roles import Roles
from workbench.training.reinforcement.transitions import layout_of
from workbench.user_code import source


def is_played(exp: Experiment) -> bool:
    """Return whether the task has an environment; its class is loaded if its source does not say,
    because it comes from a module.
    """
    known = has_environment(exp)
    if known is not None:
        return known
    try:
        return plays(source.load("tasks", exp.task, "Task"))
    except Exception:  # a rank says what is wrong with it
        return False


@dataclass(frozen=True)
class Sizes:
    """The sizes of what a task plays and learns."""

    elements: int  # parameters that are trained
    parameters: int  # bytes of them
    transition: int  # bytes of one
    actions: int


def facts(exp: Experiment, roles: Roles, sizes: Sizes, options: Any) -> dict[str, str]:
    """Return what is stored with a run of several roles: their ranks, what their messages hold."""
    named = {one.name: getattr(options, one.name) for one in fields(options)}
    contents = {**roles.facts(), **asdict(sizes), "batch": exp.batch_size, "options": named}
    return {"roles": json.dumps(contents)}


def check_task(exp: Experiment) -> Sizes:
    """Build the environment of a task, look at its network, and check that they fit.

    Returns how large they are. Raises SpecError.
    """
    shown = source.shown(exp.task)
    task = _task_of(exp, shown)
    if not plays(task):
        raise SpecError.at(
            "task",
            f"{shown} has no environment(), and strategy {source.shown(exp.strategy)} plays one: "
            "take task='catch', or give the task a method environment() that returns a "
            "gymnasium.Env",
        )
    try:
        environment = task.environment()
    except SpecError:
        raise
    except Exception as error:
        raise SpecError.at("task", f"{shown}: its environment cannot be made: {error}") from None
    game = Game(environment, exp.seed)
    elements = look_at_model(task, lambda model: _elements(model, game, shown))
    game.close()
    width = 8 if exp.dtype == "float64" else 4
    transition = layout_of(game.dtype, game.shape).itemsize
    return Sizes(elements, elements * width, transition, game.actions)


def _elements(model: nn.Module, game: Game, shown: str) -> int:
    """Return how many parameters a network trains that fits the game. Raises SpecError."""
    if not any(one.is_meta for one in model.parameters()):  # of ours, a blueprint: those fit
        check_network(model, game, shown)
    return sum(one.numel() for one in model.parameters() if one.requires_grad)


def _task_of(exp: Experiment, shown: str) -> Any:
    try:
        return source.load("tasks", exp.task, "Task")(**exp.task_options)
    except SpecError:
        raise
    except ImportError as error:
        from workbench.tasks._environments import INSTALL

        words = f"{shown} cannot be loaded ({error})"
        remedy = f": {INSTALL}" if error.name == "gymnasium" else ""
        raise SpecError.at("task", words + remedy) from None
    except (TypeError, ValueError) as error:
        raise SpecError.at("task_options", str(error), dict(exp.task_options)) from None
