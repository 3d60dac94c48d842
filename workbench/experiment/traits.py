"""Traits: what a strategy says of itself, once. No other module knows where it stands.

    TRAITS = Traits(title="Local SGD", replicas="rounds", recovers="any", skips="together")

stands at the top of a strategy's file. Above a function of a notebook it is a decorator:

    @wb.Traits(replicas="equal", recovers="any")
    def train(job, config): ...

The driver reads traits from the text: no code of the user's runs for them, so values are literals.
Beside its traits, a strategy's file may define functions that the driver calls (``hook``):

    check(exp, config)                    raises SpecError for options that do not fit
    prepare(exp, config)                  what is worked out before any rank starts
    check_survivors(config, same_ranks)   raises SpecError for options that need every rank
    missing_role(config, ranks, members)  the role that none of these ranks plays, or ""
    holds(config)                         how ranks hold the model: a Rule of formulas/memory.py

A function of such a name that has other parameters is the file's own, and is not called.
"""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationError

from workbench.common.errors import SpecError
from workbench.experiment.frozen_model import FrozenModel
from workbench.user_code import source
from workbench.user_code.source import Source, split_path

Train = TypeVar("Train", bound=Callable[..., Any])
_PARAMETERS = {
    "check": ("exp", "config"),
    "prepare": ("exp", "config"),
    "check_survivors": ("config", "same_ranks"),
    "missing_role": ("config", "ranks", "members"),
    "holds": ("config",),
}


class Traits(FrozenModel):
    """Properties of a strategy that all its runs have, whatever their options."""

    title: str = Field(default="", description="as people write it; left out: made from the name")
    replicas: Literal["equal", "rounds", "own", "divided", "served"] = Field(
        default="own",
        description="the parameters of the ranks: the same bits; the same at the end of each "
        "round; each rank its own; parts of one model; on servers",
    )
    recovers: Literal["no", "replaced", "any"] = Field(
        default="no",
        description="survivors go on from memory: never; with new ranks in the places of the lost "
        "ones; also with fewer ranks",
    )
    update: Literal["", "whole", "rounds", "compressed", "asynchronous"] = Field(
        default="",
        description="what an update is made of: the gradient of the whole minibatch; a rank's own "
        "between averages of parameters; what is left of a gradient that is compressed; gradients "
        'of parameters that others have changed since; "": not said',
    )
    update_by: tuple[tuple[str, tuple[str | bool | None, ...], str], ...] = Field(
        default=(),
        description="an option, values of it, and what an update is made of instead beside these",
    )
    whole_minibatch: bool = Field(
        default=False, description="each rank takes all samples of a minibatch"
    )
    skips: Literal["no", "together", "own share"] = Field(
        default="no",
        description="a minibatch with a bad sample is left out: never; by all ranks; a rank leaves "
        "out its own share (rank/attempts.py)",
    )
    plays: Literal["no", "too", "only"] = Field(
        default="no", description="tasks with an environment, beside others or no others"
    )
    messages: Literal["all_reduce", "collectives", "neighbors", "servers", "stages", "roles"] = (
        Field(
            default="all_reduce",
            description="how ranks communicate: all-reduces; other collectives; with neighbors; "
            "with servers; with the stages before and after; as actors and learners",
        )
    )
    serves: Literal["", "parameters", "examples"] = Field(
        default="",
        description='what servers have for the others, where ranks communicate with "servers"',
    )
    way: tuple[str, ...] = Field(
        default=(),
        description="the options that say how ranks combine, where no all-reduce does: a run is "
        "named after their values",
    )
    rows: str = Field(
        default="", description="the option with the rows that a launcher divides among ranks"
    )
    plans_tensors: bool = Field(
        default=False,
        description="before a run it is planned how each tensor of the model is divided, which "
        "takes time with each",
    )
    scene: str = Field(
        default="", description="the scene in which its runs open; left out: one that fits all"
    )
    together: str = Field(
        default="",
        description="what its ranks do, in a sentence for the overview; {share} is what each of "
        'them takes, "half" or "1/16", {averages} "a ring averages", and {all} "both" or "all 16"',
    )
    idle: tuple[tuple[str, str, tuple[str | bool | None, ...]], ...] = Field(
        default=(),
        description="an option, another option or field of the experiment, and the values of that "
        "beside which the first has no effect",
    )

    def __call__(self, train: Train) -> Train:
        """Return the function as it is: as its decorator, traits are read from its text."""
        return train


def traits_of(strategy: str | Source) -> Traits:
    """Return a strategy's traits, without running its code. Raises SpecError where its source is
    gone, or says something else than traits.
    """
    code, function = source.module_of("strategies", strategy), _function(strategy)
    if Traits.__name__ not in code:
        return Traits()
    return _read(code, function, source.shown(strategy))


def title_of(strategy: str) -> str:
    """Return the name of a strategy's file as people write it."""
    return known_traits(strategy).title or strategy.replace("_", " ").capitalize()


def known_traits(strategy: str | Source) -> Traits:
    """Return a strategy's traits; the defaults where its source is gone, as that of a saved run."""
    try:
        return traits_of(strategy)
    except SpecError:
        return Traits()


def stored_traits(strategy: Any) -> Traits:
    """Return the traits of a strategy as an experiment is stored: a name, a path, or a Source's
    fields.
    """
    return known_traits(stored_strategy(strategy))


def stored_strategy(strategy: Any) -> str | Source:
    """Return the same as a value of an experiment; "" for what is none."""
    if isinstance(strategy, str | Source):
        return strategy
    try:
        return Source.model_validate(strategy)
    except ValidationError:
        return ""


def with_traits(fits: Callable[[Traits], bool]) -> list[str]:
    """Return the names of strategies whose traits fit."""
    return [name for name in source.available("strategies") if fits(traits_of(name))]


def is_by_name(strategy: str | Source) -> bool:
    """Return whether a strategy is a file of the folder, whose code the driver may run."""
    return isinstance(strategy, str) and split_path(strategy) is None


def hook(strategy: str | Source, name: str) -> Any:
    """Return a function or class of the strategy's file; None where it has none. Runs the file,
    once as long as its text stays.
    """
    code = source.text_of("strategies", strategy)
    if name not in code or name not in source.names_defined(code, source.shown(strategy)):
        return None
    result = getattr(_module(strategy, code, Path.cwd()), name)
    parameters = _PARAMETERS.get(name)
    return result if parameters in (None, tuple(inspect.signature(result).parameters)) else None


@lru_cache(8)
def _module(strategy: str | Source, code: str, folder: Path) -> types.ModuleType:
    """Return the module of a strategy. ``folder``: where relative paths start."""
    return source.load_module("strategies", strategy)


def _function(strategy: str | Source) -> str:
    if isinstance(strategy, Source):
        return strategy.name
    place = split_path(strategy)
    return place[1] if place else "train"


@lru_cache(64)
def _read(code: str, function: str, where: str) -> Traits:
    call: ast.Call | None = None
    for node in source.parsed(code, where).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="TRAITS")], value=ast.Call() as value):
                call = value if _is_traits(value) and call is None else call
            case ast.FunctionDef(name=name, decorator_list=decorators) if name == function:
                own = [one for one in decorators if isinstance(one, ast.Call) and _is_traits(one)]
                call = own[0] if own else call
    if call is None:
        return Traits()
    try:
        values = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
    except ValueError:
        why = f"{where}: traits are read, not run: write plain values, such as title='Mine'"
        raise SpecError.at("strategy", why) from None
    return Traits(**values)


def _is_traits(call: ast.Call) -> bool:
    return ast.unparse(call.func).rpartition(".")[2] == Traits.__name__
