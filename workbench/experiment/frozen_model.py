"""The ground under experiment/spec.py: frozen records whose errors name field, value and what is
allowed.

A FrozenModel is a pydantic model that raises one SpecError with a line for every field that is
wrong. The field types take values as people write them, in Python or in YAML, and keep them.
"""

from __future__ import annotations

import math
import numbers
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from inspect import Parameter, Signature
from typing import Annotated, Any, NoReturn, Self, get_args

from annotated_types import Ge, Gt
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)

from workbench.common import units
from workbench.common.errors import Problem, SpecError, short
from workbench.common.names import listed, nearest
from workbench.user_code.source import Source, capture


class FrozenModel(BaseModel):
    """A frozen piece of an Experiment. Unknown fields are refused; every error is a SpecError."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    def __init__(self, /, *unnamed: object, **values: Any) -> None:
        if unnamed:
            arguments, first = ", ".join(map(short, unnamed)), next(iter(type(self).model_fields))
            raise SpecError(
                f"{type(self).__name__}({arguments}): fields are given by name, such as "
                f"{type(self).__name__}({first}={short(unnamed[0])}). It has: "
                f"{listed(type(self).model_fields)}"
            )
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise explain(type(self), error) from None

    def __setattr__(self, name: str, value: object) -> None:
        self._refuse(name, f"{name}={short(value)}")

    def __delattr__(self, name: str) -> None:
        self._refuse(name, f"{name}=...")

    def _refuse(self, name: str, change: str) -> NoReturn:
        """Raise SpecError for a change, which says how to have it made."""
        kind = type(self).__name__
        if name not in type(self).model_fields:
            near = nearest(name, type(self).model_fields)
            raise SpecError(
                f"{kind} has no field {name!r}{near}. It has: {listed(type(self).model_fields)}"
            )
        how = f"{self._maker}({change})"
        raise SpecError(f"{kind} is frozen: make a new one with {how}, {name} does not change")

    @property
    def _maker(self) -> str:
        """Return the expression that makes one that differs."""
        return f"wb.{type(self).__name__}"

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Write the docstring that ``wb.Experiment?`` shows: fields, defaults, meanings."""
        facts = {
            name: Parameter.empty
            if field.is_required()
            else field.get_default(call_default_factory=True)
            for name, field in cls.model_fields.items()
        }
        lines = [
            name
            + ("" if facts[name] is Parameter.empty else f" = {facts[name]!r}")
            + (f": {field.description}" if field.description else "")
            for name, field in cls.model_fields.items()
        ]
        cls.__doc__ = "\n    ".join([(cls.__doc__ or "").rstrip(), "", *lines])
        cls.__signature__ = Signature(
            [  # without the types, which fill a page with how they check
                Parameter(name, Parameter.KEYWORD_ONLY, default=value)
                for name, value in facts.items()
            ]
        )

    @classmethod
    def model_validate(cls, obj: Any, **how: Any) -> Self:
        """Validate a mapping ``obj`` as pydantic does, with options ``how``. Raises SpecError."""
        if not isinstance(obj, Mapping | cls):
            raise SpecError(
                f"{cls.__name__}.model_validate: obj = {short(obj)}: must be a dict of its fields, "
                f"name -> value. It has: {listed(cls.model_fields)}"
            )
        try:
            return super().model_validate(obj, **how)
        except ValidationError as error:
            raise explain(cls, error) from None


class Fixed(dict[Any, Any]):
    """A dict that refuses to be changed, for the fields of a frozen record."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("an Experiment does not change: make a new one with exp.replace(...)")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[type, tuple[dict[Any, Any]]]:
        return Fixed, (dict(self),)


MOST = 50  # problems that an error names: each costs a search for the nearest name


def explain(record: type[BaseModel], error: ValidationError) -> SpecError:
    """Return pydantic's findings as one SpecError, with a problem for each of the first."""
    errors = error.errors(include_url=False)
    result = [one for about in errors[:MOST] for one in _problems(record, dict(about))]
    if len(result) == 1:
        return SpecError(problems=result)
    lines = "\n  ".join(map(str, result))
    if len(errors) > MOST:
        lines += f"\n  and {len(errors) - MOST:,} more"
    return SpecError(f"this {record.__name__} cannot be:\n  {lines}", problems=result)


def _problems(record: type[BaseModel], error: dict[str, Any]) -> list[Problem]:
    """Return what is wrong with one field, or with the whole where a check of ours raised."""
    name, path = record.__name__, tuple(part for part in error["loc"] if part != "[key]")
    cause = error.get("ctx", {}).get("error")
    value = "" if isinstance(error["input"], dict) or not path else short(error["input"])
    if isinstance(cause, SpecError):
        inner = cause.within(name, *path).problems
        return [replace(one, value=value) if one.path == path else one for one in inner]
    if isinstance(cause, Exception) or not path:
        return [Problem(str(cause or error["msg"]), path, value, record=name)]
    if error["type"] == "extra_forbidden":
        fields = tuple(record.model_fields)
        near = nearest(str(path[-1]), fields)
        words = f"{name} has no field {path[-1]!r}{near}. It has: {listed(fields)}"
        return [Problem(words, allowed=fields, record=name)]
    if error["type"] == "missing":
        return [Problem("this field is required", path, record=name)]
    words, allowed = _allowed(record, error)
    return [Problem(words, path, value, allowed, record=name)]


_OURS = {
    "Input should be": "must be",
    "a valid boolean": "true or false",
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid tuple": "a list",
    "a valid string": "a text",
    "a valid dictionary": "a mapping of names to values",
    "or instance of": "or a",
}


def plain(message: str) -> str:
    """Return a message of pydantic in our words, without how its parser failed."""
    words = re.sub(r", (unable to|got) .*| or object to extract fields from", "", message)
    for theirs, ours in _OURS.items():
        words = words.replace(theirs, ours)
    return words


def _allowed(record: type[BaseModel], error: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Return what would have been right, for pydantic's own kinds of errors: as a sentence, and as
    the values that are possible, where they can be listed.
    """
    field, context = record.model_fields.get(str(error["loc"][0])), error.get("ctx", {})
    if error["type"] == "string_pattern_mismatch" and field is not None:
        return f"must be {field.description}", ()
    if error["type"].startswith("union_tag"):
        key = context["discriminator"].strip("'")
        choices = _kinds(field.annotation if field else None, key)
        near = nearest(str(context.get("tag", "")), choices)
        return f"say which it is with `{key}`{near}: {listed(map(repr, choices))}", choices
    words = plain(error["msg"])
    choices = tuple(re.findall(r"'([^']*)'", str(context.get("expected", ""))))
    return words + nearest(short(error["input"]).strip("'"), choices), choices


def _kinds(annotation: object, key: str) -> tuple[str, ...]:
    """Return the values of the field ``key`` that tell the members of a union apart."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return get_args(annotation.model_fields[key].annotation)
    return tuple(kind for part in get_args(annotation) for kind in _kinds(part, key))


# Numbers: strict about what they are (True is not a number of ranks), lenient about types (numpy)


def _whole(value: object) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise SpecError("must be a whole number")
    try:
        number = operator.index(value)
    except Exception:  # a tensor of several elements has the method, and words of its own
        raise SpecError("must be a whole number") from None
    if not -(2**63) <= number < 2**63:
        raise SpecError("must be a whole number that 64 bits hold")
    return number


def _real(value: object) -> float:
    try:
        if isinstance(value, bool):
            raise TypeError
        number = float(value)  # type: ignore[arg-type]  # a text too: YAML 1.1 reads 1e-3 as one
    except OverflowError:
        raise SpecError("must be a number that a computer holds: this one is too large") from None
    except (TypeError, ValueError):
        raise SpecError("must be a number") from None
    if not math.isfinite(number):
        raise SpecError("must be a finite number")
    return number


Int = Annotated[int, BeforeValidator(_whole)]
Float = Annotated[float, BeforeValidator(_real)]
Rank = Annotated[int, Ge(0), BeforeValidator(_whole)]
Count = Annotated[int, Ge(1), BeforeValidator(_whole)]
Positive = Annotated[float, Gt(0), BeforeValidator(_real)]


# Quantities with a unit: kept as written, so that the YAML reads as its author wrote it


def as_quantity(value: object, parse: Callable[[object], float]) -> str:
    parse(value)
    return str(value).strip()


def as_duration(value: object) -> str:
    return as_quantity(value, units.duration_ns)


def _quantity(parse: Callable[[object], float]) -> BeforeValidator:
    return BeforeValidator(lambda value: as_quantity(value, parse))


Duration = Annotated[str, BeforeValidator(as_duration), Field(examples=["5 ms", "20 µs", "30 s"])]
Bandwidth = Annotated[
    str, _quantity(units.bytes_per_second), Field(examples=["100 Mbit/s", "10 MB/s", "unlimited"])
]
Size = Annotated[str, _quantity(units.size_bytes), Field(examples=["200 MB", "64 KiB"])]


# Code, and options


def as_code(value: object) -> str | Source:
    """Return a name or path unchanged; a function or class as its source."""
    if isinstance(value, str | Source):
        return value
    if isinstance(value, Mapping) and set(value) == {"name", "code"}:
        return Source(name=str(value["name"]), code=str(value["code"]))
    if callable(value):
        return capture(value)
    raise SpecError("write a name, a path such as 'my_task.py:MyTask', or pass a function or class")


def as_plain(value: Any, *where: str | int) -> Any:
    """Return ``value`` as YAML gives it back: lists for tuples, Python's numbers for numpy's, and
    Source as it is. ``where``: its path. Raises SpecError for anything else.
    """
    match value:
        case None | bool() | Source():
            return value
        case str():
            return str(value)
        case numbers.Integral() if -(2**63) <= int(value) < 2**63:
            return int(value)
        case numbers.Real() if not isinstance(value, numbers.Integral) and _in_64_bits(value):
            return float(value)
        case list() | tuple():
            return [as_plain(one, *where, index) for index, one in enumerate(value)]
        case Mapping() if set(value) == {"name", "code"}:
            return as_code(value)
        case Mapping() if all(isinstance(key, str) for key in value):
            return Fixed({str(key): as_plain(one, *where, key) for key, one in value.items()})
    if isinstance(value, type) or callable(value):
        return capture(value)
    raise SpecError.at(
        where,
        f"is not plain ({type(value).__name__}): write numbers (of 64 bits), texts, booleans, "
        "None, lists and dicts with text keys, or a function or class",
        value,
    )


def _in_64_bits(value: numbers.Real) -> bool:
    """Return whether the value fits a 64-bit float and is not NaN."""
    try:
        return not math.isnan(value)
    except OverflowError:  # of a fraction
        return False


def _options(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {key: as_plain(one, str(key)) for key, one in value.items()}


Options = Annotated[dict[str, Any], BeforeValidator(_options), AfterValidator(Fixed)]


def walk(value: object) -> Iterable[object]:
    """Yield ``value`` and everything in it."""
    yield value
    if isinstance(value, Mapping) and set(value) != {"name", "code"}:
        for one in value.values():
            yield from walk(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from walk(one)
