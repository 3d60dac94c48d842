"""Arguments are checked where a public function is called, by its annotations."""

from __future__ import annotations

import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, ParamSpec, TypeVar

from workbench.common.arguments.checks import NOUNS, Check, Take, Unfit, is_a, is_of
from workbench.common.errors import SpecError
from workbench.common.public_names import LATER

P = ParamSpec("P")
R = TypeVar("R")


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Check a public function's or method's arguments by its annotations (a decorator)."""

    @functools.wraps(function)
    def checked_call(*args: P.args, **keywords: P.kwargs) -> R:
        try:
            bound = signature().bind(*args, **keywords)
        except TypeError as error:
            raise TypeError(f"{_public(function)}(): {error}") from None
        for name, take in takes().items():
            if name not in bound.arguments:
                continue
            value = bound.arguments[name]
            try:
                bound.arguments[name] = take(value)
            except Unfit as error:
                owner = bound.arguments.get("self", bound.arguments.get("cls"))
                raise SpecError(_words(function, name, value, error, owner)) from None
        try:
            return function(*bound.args, **bound.kwargs)
        except KeyboardInterrupt as stop:
            if stop.__suppress_context__:  # it says itself how far it came: not our lines as well
                raise stop.with_traceback(None) from None
            raise

    signature = functools.cache(lambda: inspect.signature(function))
    takes = functools.cache(lambda: dict(_takes(function)))
    return checked_call


def _words(
    function: Callable[..., Any], name: str, value: object, error: Unfit, owner: object
) -> str:
    from workbench.common.errors import short

    words, default = str(error), inspect.signature(function).parameters[name].default
    if "such as" not in words and default not in (None, inspect.Parameter.empty, True, False):
        words += f", such as {default!r}"
    return f"{_public(function, owner)}: {name} = {short(value)}: must be {words}"


def _public(function: Callable[..., Any], owner: object = None) -> str:
    """Return its name for users: wb.schedule, Run.wait. ``owner``: the class of a method."""
    if owner is not None:
        kind = owner if isinstance(owner, type) else type(owner)
        return f"{kind.__name__}.{function.__name__}".removesuffix(".__init__")
    first, _, method = function.__qualname__.removesuffix(".__init__").partition(".")
    place = function.__module__.removeprefix("workbench."), first
    name = next((name for name, module in LATER.items() if module == place), first)
    return f"{name}.{method}" if method else f"wb.{name}"


def _takes(function: Callable[..., Any]) -> Iterable[tuple[str, Take]]:
    names = vars(sys.modules[function.__module__])
    for name, parameter in inspect.signature(function).parameters.items():
        hint = parameter.annotation
        if hint is parameter.empty:  # self
            continue
        if isinstance(hint, str):
            hint = eval(hint, names)
        if (take := take_of(hint)) is not None:
            several = parameter.kind is parameter.VAR_POSITIONAL
            yield name, _all(take) if several else take


def _all(take: Take) -> Take:
    return lambda values: tuple(take(one) for one in values)


def take_of(hint: Any) -> Take | None:
    """Return the check that an annotation asks for; None if it asks for none."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        members = [one for one in typing.get_args(hint) if one is not types.NoneType]
        inner = take_of(members[0]) if len(members) == 1 else _one_of_classes(members)
        several = len(members) < len(typing.get_args(hint))
        return _or_none(inner) if inner is not None and several else inner
    if typing.get_origin(hint) is Annotated:
        return next((one.take for one in hint.__metadata__ if isinstance(one, Check)), None)
    return is_a(hint).take if isinstance(hint, type) and hint is not Any else None


def _one_of_classes(members: Sequence[Any]) -> Take | None:
    if any(not isinstance(one, type) or getattr(one, "_is_protocol", False) for one in members):
        return None
    words = " or ".join(NOUNS.get(one.__name__, one.__name__) for one in members)
    return is_of(tuple(members), words)


def _or_none(take: Take) -> Take:
    def take_or_none(value: Any) -> Any:
        try:
            return None if value is None else take(value)
        except Unfit as error:
            raise Unfit(f"{error}, or None") from None

    return take_or_none
