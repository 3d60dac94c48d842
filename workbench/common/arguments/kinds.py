"""The types of arguments: what each takes is in its words."""

from __future__ import annotations

import inspect
import math
import os
import threading
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Annotated, Any

from workbench.common import units
from workbench.common.arguments.checks import LARGEST, Check, Unfit, each, one_of, real, whole
from workbench.common.errors import SpecError

MOST_RANKS = 1024  # of a schedule, a partition, a list
MOST_WALKED = 256  # of what is planned or walked through, message by message


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise Unfit("a text")
    return value


def _seconds(value: Any) -> float:
    words = "seconds, such as 2.5 or '5 s'"
    if isinstance(value, str):
        try:
            return units.duration_ns(value) / 1e9
        except SpecError:
            raise Unfit(words) from None
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise Unfit(words)
    return min(value, threading.TIMEOUT_MAX)  # 292 years; Python's locks take no more


def _bytes(value: Any) -> int | str:
    words = "a number of bytes from 0 on, or a size such as '64 KiB'"
    try:
        nbytes = units.size_bytes(value) if isinstance(value, str) else whole(0).take(value)
    except (SpecError, Unfit):
        raise Unfit(words) from None
    if nbytes > LARGEST:
        raise Unfit(words)
    return value if isinstance(value, str) else nbytes


def _path(value: Any) -> str | os.PathLike[str]:
    words = "a path to a file or folder, such as 'run.parquet'"
    try:
        text = os.fspath(value)
    except Exception:
        raise Unfit(words) from None
    if not isinstance(text, str) or not text or "\0" in text:
        raise Unfit(words)
    return value  # type: ignore[no-any-return]  # what fspath takes


def _quantity(parse: Callable[[object], float]) -> Check:
    """Return the check for a text with a unit; its messages are those of ``parse``."""

    def take(value: Any) -> Any:
        try:
            parse(value)
        except SpecError as error:
            raise Unfit(f"a quantity: {error}") from None
        return value

    return Check(take)


def _function(value: Any) -> Any:
    if not callable(value):
        raise Unfit("a function")
    return value


def _algorithm(value: Any) -> Any:
    """Accept a name, or a function written in Python, whose source can travel and be traced."""
    words = "the name of an algorithm, or a function that you wrote with def"
    if isinstance(value, str) and value:
        return value
    written = inspect.unwrap(value) if callable(value) else None
    if not isinstance(written, types.FunctionType):
        raise Unfit(words)
    return value


def _facts(value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise Unfit("a dict, name -> value")
    return value


def _seeds(value: Any) -> Any:
    words = "how many seeds, from 1 to 10,000, or which, all different, such as (0, 1, 2)"
    try:
        if isinstance(value, Iterable):
            return each(whole(0, 2**63 - 1), words).take(value)
        return whole(1, 10_000).take(value)
    except Unfit:
        raise Unfit(words) from None


def _dtypes(value: Any) -> tuple[str, ...]:
    words = "a dtype, or several, such as ('float32', 'int64')"
    several = (value,) if isinstance(value, str) or not isinstance(value, Iterable) else value
    if isinstance(value, bytes | Mapping):
        raise Unfit(words)
    names = [str(one).removeprefix("torch.") for one in islice(several, 100)]
    if not names or any(not one.isidentifier() for one in names):
        raise Unfit(words)
    return tuple(names)


def _pair(check: Check, words: str) -> Check:
    """Return the check for a pair of values."""
    return each(check, words, least=2, most=2)


def _time_limit(value: Any) -> Any:
    try:
        if units.duration_ns(value) > 0:
            return value
    except SpecError:
        pass
    raise Unfit("a time above 0 with a unit, such as '10 min'")


def _cuts(value: Any) -> Any:
    words = "'auto', 'layers', or a list of the layers with which a new stage begins"
    if isinstance(value, set | frozenset) or (isinstance(value, str) and not value):
        raise Unfit(words)
    return value if isinstance(value, str) else each(Check(_text), words, least=0).take(value)


_RANKS = "numbers of ranks, each from 1 to 1,024, such as (1, 2, 4)"
_RANKS_OR_ONE = "a number of ranks from 1 to 64, or several, such as (1, 2, 4)"
_SIZES = "a number of elements from 0 to 67,108,864, or several of them"
_FACTOR = "a number: the factor is 1 (full speed) or more, 1,000,000,000 at most"
_FROM_TO = "two sizes, from and to, such as ('1 KiB', '16 MiB')"

Text = Annotated[str, Check(_text)]
Count = Annotated[int, whole(1, 10**9)]
Number = Annotated[int, whole(0)]
Seed = Annotated[int, whole(0, 2**63 - 1)]
Ranks = Annotated[int, whole(1, MOST_RANKS)]
Walked = Annotated[int, whole(1, MOST_WALKED)]
RealRanks = Annotated[Sequence[int], each(whole(1, MOST_RANKS), _RANKS)]
RanksOrOne = Annotated[int | Sequence[int], each(whole(1, 64), _RANKS_OR_ONE, alone=True)]
Counts = Annotated[Sequence[int], each(whole(1), "numbers from 1 on, such as [1, 2, 5]")]
Moments = Annotated[Sequence[int], each(whole(1), "numbers from 1 on, such as [1, 2, 5]", least=0)]
Numbers = Annotated[Sequence[int], each(whole(0), "numbers from 0 on, such as [0, 2]")]
Reals = Annotated[
    Sequence[float],
    each(real(-math.inf, math.inf, "numbers"), "numbers, such as [0.5, 1.5]", 0, LARGEST),
]
Names = Annotated[Sequence[str], each(Check(_text), "names, such as ['all_reduce']")]
Dtypes = Annotated[str | Sequence[Any], Check(_dtypes)]
Labels = Annotated[tuple[str, str], _pair(Check(_text), "two names, such as ('ring', 'tree')")]
Seeds = Annotated[int | Sequence[int], Check(_seeds)]
Elements = Annotated[int | Sequence[int], each(whole(0, 2**26), _SIZES, alone=True)]
AtOnce = Annotated[int, whole(1, 64)]
TeamSize = Annotated[int, whole(1, 64)]
Repeats = Annotated[int, whole(1, 1000)]
Job = Annotated[int, whole(-10_000, 10_000)]
Stages = Annotated[int, whole(1, MOST_RANKS)]
Steps = Annotated[int, whole(1, 10_000)]
Itemsize = Annotated[int, whole(1, 16)]
Rank = Annotated[int, whole(0, MOST_RANKS - 1)]
Factor = Annotated[float, real(1, 1e9, _FACTOR)]
Share = Annotated[float, real(0, 1, "a number from 0 to 1")]
Real = Annotated[float, real(-math.inf, math.inf, "a finite number")]
Seconds = Annotated[float, Check(_seconds)]
Bytes = Annotated[int | str, Check(_bytes)]
FromTo = Annotated[tuple[int | str, int | str], _pair(Check(_bytes), _FROM_TO)]
Place = Annotated[str | os.PathLike[str], Check(_path)]
Duration = Annotated[str, _quantity(units.duration_ns)]
TimeLimit = Annotated[str, Check(_time_limit)]
Bandwidth = Annotated[str, _quantity(units.bytes_per_second)]
Size = Annotated[str, _quantity(units.size_bytes)]
Facts = Annotated[Mapping[str, Any], Check(_facts)]
a_function = Check(_function)
Function = Annotated[Callable[..., Any], a_function]
Algorithm = Annotated[str | Callable[..., Any], Check(_algorithm)]
Cuts = Annotated[str | Sequence[str], Check(_cuts)]
Theme = Annotated[str, one_of("light", "dark")]
