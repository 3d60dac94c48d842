"""Every public function that takes an argument shows an example, which a newcomer can paste."""

from __future__ import annotations

import ast
import inspect
from doctest import DocTestParser
from typing import Any

import pytest

import workbench as wb

# What starts ranks, reads a user's folder, or keeps something on this machine is looked at
# and not run: its arguments must be those of the function.
LOOKED_AT = {
    "audit",
    "calibrate",
    "check",
    "compare",
    "drift",
    "grade",
    "guess",
    "interval",
    "lab",
    "load",
    "ranks",
    "run",
    "speed_up",
    "watch",
}
FUNCTIONS = [
    name
    for name in wb.__all__
    if inspect.isfunction(one := getattr(wb, name)) and inspect.signature(one).parameters
]


def example(name: str) -> str:
    text = inspect.getdoc(getattr(wb, name)) or ""
    return "".join(one.source for one in DocTestParser().get_examples(text))


def bind(call: ast.Call) -> None:
    """Raise TypeError where a call of a public name has arguments that this does not take."""
    match call.func:
        case ast.Attribute(value=ast.Name(id="wb"), attr=attr):
            keywords = {one.arg: one.value for one in call.keywords if one.arg is not None}
            public: Any = getattr(wb, attr)
            inspect.signature(public).bind(*call.args, **keywords)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_example_is_shown_and_is_right(name: str) -> None:
    code = example(name)
    assert f"wb.{name}(" in code, f"wb.{name} shows no example: >>> wb.{name}(...)"
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            bind(node)
    if name not in LOOKED_AT:
        exec(code, {"wb": wb})
