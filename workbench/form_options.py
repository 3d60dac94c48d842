"""The options of every strategy, for a form: read from its ``Config``, which is not run.

    consistency: str | Source = "bsp"  # when a worker may go on
    name         what it may be  default # what it means

A ``Literal`` is a choice, and so is an option that names a file of a folder.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from workbench import source
from workbench.spec_checks import POLICIES

_KINDS = {"int": "int", "float": "float", "bool": "bool"}


@dataclass(frozen=True)
class Option:
    """One field of a Config. ``kind``: int | float | bool | choice | text."""

    name: str
    kind: str
    default: Any
    help: str
    choices: tuple[str, ...] = ()
    folder: str = ""  # that the choices are files of


@cache
def options_of(strategy: str) -> Mapping[str, Option]:
    """By name; none where the strategy takes none."""
    code = source.text_of("strategies", strategy)
    comments = _comments(code)
    for node in ast.parse(code).body:
        if isinstance(node, ast.ClassDef) and node.name == "Config":
            found = [_option(one, comments) for one in node.body if isinstance(one, ast.AnnAssign)]
            return {one.name: one for one in found if one is not None}
    return {}


@cache
def strategies_with(option: str) -> tuple[str, ...]:
    """The strategies that have an option of this name."""
    names = source.available("strategies")
    return tuple(name for name in names if option in options_of(name))


def all_options() -> dict[str, Option]:
    """Of all strategies, by name; of the first strategy where several have one of that name."""
    found: dict[str, Option] = {}
    for strategy in source.available("strategies"):
        found = {**options_of(strategy), **found}
    return found


def _option(node: ast.AnnAssign, comments: Mapping[int, str]) -> Option | None:
    """None for what has no plain default: a form has nothing to show of it."""
    try:
        default = ast.literal_eval(node.value) if node.value is not None else None
    except ValueError:
        return None
    name, annotation = ast.unparse(node.target), ast.unparse(node.annotation)
    lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
    words = " ".join(comments[line] for line in lines if line in comments)
    if name in POLICIES:
        folder = POLICIES[name]
        return Option(name, "choice", default, words, tuple(source.available(folder)), folder)
    match node.annotation:
        case ast.Subscript(value=ast.Name(id="Literal"), slice=inside):
            each = inside.elts if isinstance(inside, ast.Tuple) else [inside]
            names = tuple(str(ast.literal_eval(one)) for one in each)
            return Option(name, "choice", default, words, names)
    return Option(name, _KINDS.get(annotation, "text"), default, words)


def _comments(code: str) -> dict[int, str]:
    """Line -> the comment on it."""
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    return {
        token.start[0]: token.string.lstrip("# ") for token in tokens
        if token.type == tokenize.COMMENT
    }  # fmt: skip


def shown(value: Any) -> Any:
    """A value as a field shows it: a list of shares as "0.7, 0.3"."""
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return value


def read(option: Option, text: str) -> Any:
    """What a text of a field means; what is not understood stays a text, to be refused later."""
    if option.kind == "float":
        try:
            return float(text)
        except ValueError:
            return text
    if option.kind != "text":
        return text
    try:
        return yaml.safe_load(f"[{text}]" if "," in text and "[" not in text else text)
    except yaml.YAMLError:
        return text
