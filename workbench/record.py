"""The ground under spec.py: frozen records whose errors name field, value and what is allowed.

A Record is a pydantic model that raises SpecError, and in one piece: every field that is wrong has
its line. The field types take values as people write them, in Python or in YAML, and keep them.
"""

from __future__ import annotations

import math
import numbers
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter, Signature
from typing import Annotated, Any, NoReturn, Self

from annotated_types import Ge, Gt
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)

from workbench import units
from workbench.errors import SpecError
from workbench.source import Source, capture, listed, nearest


class Record(BaseModel):
    """A frozen piece of an Experiment. Unknown fields are refused; every error is a SpecError."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    def __init__(self, /, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise SpecError(explain(type(self), error)) from None

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """What ``wb.Experiment?`` shows: each field, its default, its meaning."""
        told = {
            name: Parameter.empty if field.is_required()
            else field.get_default(call_default_factory=True)
            for name, field in cls.model_fields.items()
        }  # fmt: skip
        lines = [
            name + ("" if told[name] is Parameter.empty else f" = {told[name]!r}")
            + (f": {field.description}" if field.description else "")
            for name, field in cls.model_fields.items()
        ]  # fmt: skip
        cls.__doc__ = "\n    ".join([(cls.__doc__ or "").rstrip(), "", *lines])
        cls.__signature__ = Signature([  # without the types, which fill a page with how they check
            Parameter(name, Parameter.KEYWORD_ONLY, default=value)
            for name, value in told.items()
        ])  # fmt: skip

    @classmethod
    def model_validate(cls, obj: Any, **how: Any) -> Self:
        """Of a mapping ``obj``, as pydantic has it, and ``how``; raises SpecError."""
        try:
            return super().model_validate(obj, **how)
        except ValidationError as error:
            raise SpecError(explain(cls, error)) from None


class Fixed(dict[Any, Any]):
    """A dict that refuses to be changed, for the fields of a frozen record."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("an Experiment does not change: make a new one with exp.replace(...)")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[type, tuple[dict[Any, Any]]]:
        return Fixed, (dict(self),)


def explain(record: type[BaseModel], error: ValidationError) -> str:
    """pydantic's findings as sentences, one a line: field, what was given, what is allowed."""
    lines = [_sentence(record, dict(one)) for one in error.errors(include_url=False)]
    if len(lines) == 1:
        return lines[0]
    return f"this {record.__name__} cannot be:\n  " + "\n  ".join(lines)


def _sentence(record: type[BaseModel], found: dict[str, Any]) -> str:
    context = found.get("ctx", {})
    cause = context.get("error")
    if not found["loc"]:
        return str(cause or found["msg"])
    *_, last = found["loc"]
    if found["type"] == "extra_forbidden":
        fields = list(record.model_fields)
        near = nearest(str(last), fields)
        return f"{record.__name__} has no field {last!r}{near}. It has: {listed(fields)}"
    path = record.__name__
    for part in found["loc"]:
        if part != "[key]":
            path += f"[{part}]" if isinstance(part, int) else f".{part}"
    if found["type"] == "missing":
        return f"{path} is required"
    why = str(cause) if isinstance(cause, Exception) else _allowed(record, found)
    given = found["input"]
    return f"{path}: {why}" if isinstance(given, dict) else f"{path} = {short(given)}: {why}"


def _allowed(record: type[BaseModel], found: dict[str, Any]) -> str:
    """What would have been right, for pydantic's own kinds of errors."""
    field, context = record.model_fields.get(str(found["loc"][0])), found.get("ctx", {})
    if found["type"] == "string_pattern_mismatch" and field is not None:
        return f"must be {field.description}"
    if found["type"].startswith("union_tag"):
        kinds = context.get("expected_tags", "one of its kinds")
        return f"say which it is with `{context['discriminator'].strip(chr(39))}`: {kinds}"
    allowed = re.sub(r"^Input should be", "must be", found["msg"])
    choices = re.findall(r"'([^']*)'", str(context.get("expected", "")))
    return allowed + nearest(short(found["input"]).strip("'"), choices)


def short(value: object) -> str:
    """``value`` in a sentence: the beginning of what Python writes for it."""
    try:
        text = repr(value)
    except Exception:  # a whole number of 5,000 digits, or an object whose own words fail
        text = f"({type(value).__name__})"
    return text if len(text) <= 80 else text[:77] + "..."


# Numbers: strict about what they are (True is no number of ranks), lenient about types (numpy)


def _whole(value: object) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise SpecError("must be a whole number")
    number = operator.index(value)
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


Duration = Annotated[str, BeforeValidator(as_duration), Field(examples=["5 ms", "20 us", "30 s"])]
Bandwidth = Annotated[
    str, _quantity(units.bytes_per_second), Field(examples=["100 Mbit/s", "10 MB/s", "unlimited"])
]
Size = Annotated[str, _quantity(units.size_bytes), Field(examples=["200 MB", "64 KiB"])]


# Code, and options


def as_code(value: object) -> str | Source:
    """A name or path as it is; a function or class as its source."""
    if isinstance(value, str | Source):
        return value
    if isinstance(value, Mapping) and set(value) == {"name", "code"}:
        return Source(name=str(value["name"]), code=str(value["code"]))
    if callable(value):
        return capture(value)
    raise SpecError("write a name, a path such as 'my_task.py:MyTask', or pass a function or class")


def as_plain(value: Any, where: str) -> Any:
    """``value`` as YAML gives it back: lists for tuples, Python's numbers for numpy's, Source."""
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
            return [as_plain(one, f"{where}[{index}]") for index, one in enumerate(value)]
        case Mapping() if set(value) == {"name", "code"}:
            return as_code(value)
        case Mapping() if all(isinstance(key, str) for key in value):
            return Fixed({str(key): as_plain(one, f"{where}.{key}") for key, one in value.items()})
    if isinstance(value, type) or callable(value):
        return capture(value)
    raise SpecError(
        f"{where} = {short(value)} is not plain ({type(value).__name__}): write numbers (of 64 "
        "bits), texts, booleans, None, lists and dicts with text keys, or a function or class"
    )


def _in_64_bits(value: numbers.Real) -> bool:
    """Is it a float's, and a number?"""
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
    """``value`` and everything in it."""
    yield value
    if isinstance(value, Mapping) and set(value) != {"name", "code"}:
        for one in value.values():
            yield from walk(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from walk(one)
