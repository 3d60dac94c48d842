"""Values as source: plain constants, and objects of dataclasses that their fields alone make."""

from __future__ import annotations

import dataclasses
import math
import types
from typing import Any

from workbench.common.errors import SpecError


def fields_of(value: Any, name: str, by: str) -> dict[str, Any]:
    """Return the fields of a dataclass's object with which an equal one can be made.

    Raises SpecError where none can: of other values than its fields, or of fields that
    ``__post_init__`` changes.
    """
    fields = dataclasses.fields(value)
    values = {one.name: getattr(value, one.name, None) for one in fields if one.init}
    named = {one.name for one in fields}
    beside = [one for one in getattr(value, "__dict__", ()) if one not in named]
    try:
        again = type(value)(**values)
        same = all(_equal(getattr(again, one), getattr(value, one)) for one in named)
        same = same and all(hasattr(type(value), one) for one in beside)  # a cached property
    except Exception:
        same = False
    if not same:
        raise SpecError(
            f"{by} uses {name}, a {kind_of(value)} with more state than its fields: ranks make it "
            f"again from its fields, and would get another object. Make it inside {by}, or pass it "
            "as an option"
        )
    return values


def _equal(one: object, other: object) -> bool:
    return one is other or repr(one) == repr(other) or bool(one == other)


def literal(value: object) -> str | None:
    """Return a plain constant as source, or None.

    Only exact types: an IntEnum member is not a plain int.
    """
    if type(value) is float and not math.isfinite(value):
        return f"float({str(value)!r})"
    plain = (int, float, complex, str, bytes, bool, type(None), type(...))
    return repr(value) if type(value) in plain else None


def is_plain(value: object) -> bool:
    containers = (tuple, list, dict, set, frozenset, types.GenericAlias, types.UnionType)
    return literal(value) is not None or isinstance(value, containers)


def same_constant(one: object, other: object) -> bool:
    return one is other or (literal(one) is not None and literal(one) == literal(other))


def kind_of(value: object) -> str:
    kind = type(value)
    home = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
    return home + kind.__qualname__


def short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
