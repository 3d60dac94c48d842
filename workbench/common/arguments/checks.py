"""The type of an argument check, and general checks: numbers, several values, classes."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

LARGEST = 2**62  # bytes
Take = Callable[[Any], Any]  # gives the value as the function wants it; raises Unfit


class Unfit(Exception):
    """A value that does not fit. The words follow "must be"."""


@dataclass(frozen=True)
class Check:
    """Marks an annotation as a check: Annotated[int, Check(...)]."""

    take: Take


def whole(least: int, most: int = LARGEST) -> Check:
    """Return the check for a whole number from ``least`` to ``most``; numpy's are taken too."""
    most_words = f"from {least:,} to {most:,}" if most < LARGEST else f"of at least {least:,}"

    def take(value: Any) -> int:
        try:
            if isinstance(value, bool):
                raise TypeError
            number = operator.index(value)
        except Exception:  # also of a tensor with many elements, which has words of its own
            raise Unfit(f"a whole number {most_words}") from None
        if not least <= number <= most:
            raise Unfit(f"a whole number {most_words}")
        return number

    return Check(take)


def real(least: float, most: float, words: str) -> Check:
    """Return the check for a finite number from ``least`` to ``most``; ``words`` say that."""

    def take(value: Any) -> float:
        if isinstance(value, bool | str | bytes):
            raise Unfit(words)
        try:
            number = float(value)
        except Exception:
            raise Unfit(words) from None
        if not (math.isfinite(number) and least <= number <= most):
            raise Unfit(words)
        return value if isinstance(value, int | float) else number

    return Check(take)


def each(
    check: Check, words: str, least: int = 1, most: int = 10_000, alone: bool = False
) -> Check:
    """Return the check for ``least`` values or more, each of which passes ``check``; as a tuple.
    ``alone``: a single value is taken as well.
    """

    def take(value: Any) -> tuple[Any, ...]:
        if alone and (not isinstance(value, Iterable) or isinstance(value, str)):
            value = (value,)
        if isinstance(value, str | bytes | bytearray | Mapping) or not isinstance(value, Iterable):
            raise Unfit(words)
        try:
            result = tuple(check.take(one) for one in islice(value, most + 1))
        except Exception:
            raise Unfit(words) from None
        if not least <= len(result) <= most:
            raise Unfit(words if len(result) < least else f"{words}, {most:,} at most")
        return result

    return Check(take)


def one_of(*names: str) -> Check:
    """Return the check for one of these texts."""
    words = " or ".join(map(repr, names))

    def take(value: Any) -> str:
        if not isinstance(value, str) or value not in names:
            raise Unfit(words)
        return value

    return Check(take)


NOUNS = {  # a type's name -> the words for a value of it, and how to get one
    "str": "a text",
    "bool": "True or False",
    "Experiment": "an Experiment: wb.Experiment(ranks=2); wb.Experiment(**fields) from a dict; "
    "wb.Experiment.from_yaml(path) from a file",
    "Network": "a Network, such as wb.Network(latency='1 ms')",
}


def is_a(kind: type) -> Check:
    """Return the check for an object of a class; 0 and 1 are truth values, as in Python."""
    if kind is bool:
        return Check(_flag)
    return Check(is_of(kind, NOUNS.get(kind.__name__, f"an object of class {kind.__name__}")))


def _flag(value: Any) -> bool:
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    raise Unfit(NOUNS["bool"])


def is_of(kinds: type | tuple[type, ...], words: str) -> Take:
    def take(value: Any) -> Any:
        if not isinstance(value, kinds):
            raise Unfit(words)
        return value

    return take
