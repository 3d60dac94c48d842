"""Kinds of answers: what an exercise takes, and how that is said in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from workbench.common.arguments import Unfit, a_function
from workbench.experiment.spec import Experiment


@dataclass(frozen=True)
class Kind:
    """A kind of answer.

    words    what fits, as in "must be a number of bytes".
    take     gives the answer as a judge wants it; raises Unfit.
    example  how the call of ``wb.grade`` goes on after the exercise's name.
    """

    words: str
    take: Callable[[Any], Any]
    example: str


def number(unit: str, example: str = "...") -> Kind:
    """Return the kind for a finite number, such as ``number("bytes")``."""
    words = f"a number ({unit})"
    return Kind(words, lambda value: _finite(value, words), example)


def numbers(*names: str) -> Kind:
    """Return the kind for several numbers by name: a dictionary, or a tuple in this order."""
    order = ", ".join(names)
    words = f"{len(names)} numbers: a dictionary with the keys {order}, or a tuple in that order"

    def take(value: Any) -> dict[str, float]:
        if isinstance(value, Mapping):
            if set(value) != set(names):
                raise Unfit(words)
            numbers = [value[name] for name in names]
        elif isinstance(value, list | tuple) and len(value) == len(names):
            numbers = [*value]
        else:
            raise Unfit(words)
        return {name: _finite(one, words) for name, one in zip(names, numbers, strict=True)}

    return Kind(words, take, "{" + ", ".join(f'"{name}": ...' for name in names) + "}")


def pair(first: Kind, second: Kind) -> Kind:
    """Return the kind for two answers in a tuple, such as a function and a number."""
    words = f"a pair: {first.words}, and {second.words}"

    def take(value: Any) -> tuple[Any, Any]:
        if not isinstance(value, list | tuple) or len(value) != 2:
            raise Unfit(words)
        return first.take(value[0]), second.take(value[1])

    return Kind(words, take, f"({first.example}, {second.example})")


def choice(*options: str) -> Kind:
    """Return the kind for one of some texts."""
    words = "one of " + ", ".join(map(repr, options))

    def take(value: Any) -> str:
        if not isinstance(value, str) or value not in options:
            raise Unfit(words)
        return value

    return Kind(words, take, " or ".join(map(repr, options)))


def choices(names: Iterable[str], *options: str) -> Kind:
    """Return the kind for a dictionary from each of ``names`` to one of the options."""
    names = tuple(names)
    words = f"a dictionary from {', '.join(names)} to one of {', '.join(map(repr, options))}"

    def take(value: Any) -> dict[str, str]:
        if not isinstance(value, Mapping) or set(value) != set(names):
            raise Unfit(words)
        if any(not isinstance(one, str) or one not in options for one in value.values()):
            raise Unfit(words)
        return {name: value[name] for name in names}

    return Kind(words, take, "{" + ", ".join(f'"{name}": ...' for name in names) + "}")


def function(signature: str) -> Kind:
    """Return the kind for a function of the reader's, such as ``function("mine(comm, x)")``."""
    return Kind(f"a function: {signature}", a_function.take, signature.partition("(")[0])


def experiment(words: str = "an experiment: wb.Experiment(...)") -> Kind:
    """Return the kind for a ``wb.Experiment``."""

    def take(value: Any) -> Experiment:
        if not isinstance(value, Experiment):
            raise Unfit(words)
        return value

    return Kind(words, take, "wb.Experiment(...)")


def names(words: str, example: str) -> Kind:
    """Return the kind for a list of texts; ``words`` say what they name."""

    def take(value: Any) -> list[str]:
        if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
            raise Unfit(words)
        return [*value]

    return Kind(words, take, example)


def _finite(value: Any, words: str) -> float:
    if isinstance(value, bool | str | bytes):
        raise Unfit(words)
    try:
        number = float(value)
    except Exception:  # also of a tensor with many elements
        raise Unfit(words) from None
    if not math.isfinite(number):
        raise Unfit(words)
    return value if isinstance(value, int) else number
