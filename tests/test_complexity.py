"""The complexity of functions, counted strictly: branches of expressions too, unlike in ruff."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.test_architecture import PACKAGE, packages

HIGHEST = 15  # of a function: C901 of ruff has the same number, and counts less
# Packages with functions that are above it, and the highest there: to become fewer and lower.
ABOVE = {
    "auditing": 33,
    "messaging": 30,
    "training": 25,
    "studies": 23,
    "views": 22,
    "analysis": 21,
    "interface": 21,
    "store": 20,
    "cells": 18,
    "formats": 18,
    "user_code": 18,
    "experiment": 16,
    "shared_memory": 16,
    "strategies": 16,
}


PARAMETERS = 8  # of a function, besides its object: more are a value that has no name yet
# Of a command each is an option; of a row each is a column, and rows are written in hot loops; a
# function that stands for one of torch's has what that has.
MANY = {"cli", "recording.lane.write", "recording.lane._time", "auditing.ranks.forks._forked"}


def functions(package: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield the functions of a package, each with where it is."""
    for path in sorted((PACKAGE / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}", node


def complexity(function: ast.AST) -> int:
    """Return 1 and the branches of a function: statements, conditions joined by and or or, loops
    and conditions of comprehensions. A function inside it counts for itself.
    """
    branches, nodes = 1, [*ast.iter_child_nodes(function)]
    while nodes:
        match node := nodes.pop():
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                continue
            case ast.BoolOp():
                branches += len(node.values) - 1
            case ast.comprehension():
                branches += 1 + len(node.ifs)
            case ast.If() | ast.For() | ast.AsyncFor() | ast.While() | ast.IfExp():
                branches += 1
            case ast.ExceptHandler() | ast.Assert() | ast.match_case():
                branches += 1
        nodes += ast.iter_child_nodes(node)
    return branches


@pytest.mark.parametrize("package", packages())
def test_no_function_has_too_many_branches(package: str) -> None:
    counts = {name: complexity(function) for name, function in functions(package)}
    limit = ABOVE.get(package, HIGHEST)
    assert {name: count for name, count in counts.items() if count > limit} == {}
    if package in ABOVE:
        assert max(counts.values()) > HIGHEST, "no function is above it: drop the package here"


def test_expressions_count_as_branches() -> None:
    text = "def f(x):\n if x and x.y or x.z:\n  return [a for a in x if a]\n return 1 if x else 2"
    assert complexity(ast.parse(text).body[0]) == 1 + 1 + 2 + 2 + 1


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of parameters that can be given by place."""
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def test_no_function_has_too_many_parameters() -> None:
    modules = [path for path in PACKAGE.rglob("*.py") if path.stem not in MANY]
    bad = {}
    for path in modules:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                name = ".".join((*path.relative_to(PACKAGE).with_suffix("").parts, node.name))
                if (count := parameters(node)) > PARAMETERS and name not in MANY:
                    bad[name] = count
    assert bad == {}


def test_parameters_that_have_a_place_are_counted() -> None:
    (method,) = ast.parse("def f(self, a, b=1, *c, d, **e): ...").body
    assert isinstance(method, ast.FunctionDef) and parameters(method) == 2
