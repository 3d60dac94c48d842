"""An Experiment as Python code to copy, laid out as black lays it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workbench.experiment.frozen_model import FrozenModel
from workbench.experiment.spec import Experiment
from workbench.user_code.source import Source

WIDTH = 88  # black's own


def as_code(exp: Experiment) -> str:
    """Return ``wb.Experiment(...)`` with only what differs from the defaults.

    It evaluates to an equal one. The user's own functions and classes appear by name.
    """
    return _laid_out(_piece(exp), 0, 0)


def as_program(exp: Experiment) -> str:
    """Return the lines of a notebook cell that runs ``exp`` and shows it."""
    result = _laid_out(_piece(exp), 0, len("exp = "))
    return f"import workbench as wb\n\nexp = {result}\nrun = wb.run(exp)\nrun"


@dataclass(frozen=True)
class _Piece:
    """Text, or a bracket with its items: ``opening`` item, item ``closing``."""

    opening: str
    items: tuple[tuple[str, _Piece], ...] = ()  # what stands before each: "ranks=", "(0, 1): "
    closing: str = ""

    @property
    def flat(self) -> str:
        inside = ", ".join(before + item.flat for before, item in self.items)
        comma = "," if self.closing == ")" and self.opening == "(" and len(self.items) == 1 else ""
        return f"{self.opening}{inside}{comma}{self.closing}"


def _piece(value: Any) -> _Piece:
    match value:
        case FrozenModel():
            items = tuple((f"{name}=", _piece(one)) for name, one in _changed_fields(value).items())
            return _Piece(f"wb.{type(value).__name__}(", items, ")")
        case Source(name=name):
            return _Piece(name)
        case Mapping():
            return _Piece("{", tuple((_text(key) + ": ", _piece(value[key])) for key in value), "}")
        case tuple():
            return _Piece("(", tuple(("", _piece(one)) for one in value), ")")
        case list():
            return _Piece("[", tuple(("", _piece(one)) for one in value), "]")
    return _Piece(_text(value))


def _changed_fields(model: FrozenModel) -> dict[str, Any]:
    """Return the fields of ``model`` that differ from their defaults."""
    changed = {}
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if field.is_required() or value != field.get_default(call_default_factory=True):
            changed[name] = value
    return changed


def _text(value: Any) -> str:
    """Return a literal with double quotes, as black has them; infinity as ``float("inf")``."""
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return f'float("{value}")'
    text = repr(value)
    if isinstance(value, str) and text.startswith("'") and '"' not in value:
        return f'"{text[1:-1]}"' if "\\'" not in text else text
    return text


def _laid_out(piece: _Piece, indent: int, used: int) -> str:
    """Return ``piece`` from column ``used`` on, in one line if it fits.

    ``indent`` is that of its line.
    """
    if not piece.items or used + len(piece.flat) <= WIDTH:
        return piece.flat
    inner = indent + 4
    body = ", ".join(before + item.flat for before, item in piece.items)
    alone = piece.opening == "(" and len(piece.items) == 1
    if inner + len(body) <= WIDTH and not alone and piece.opening.startswith("wb."):
        lines = [body]  # black: all arguments on one line of their own, if they fit there
    else:
        lines = [
            before + _laid_out(item, inner, inner + len(before) + 1) + ","
            for before, item in piece.items
        ]
    inside = "\n".join(" " * inner + line for line in lines)
    return f"{piece.opening}\n{inside}\n{' ' * indent}{piece.closing}"
