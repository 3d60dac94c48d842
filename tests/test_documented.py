"""What is public is documented: every argument named, every error said, every variable listed."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from pydantic import BaseModel

import workbench as wb
from workbench.cells.magics import RanksMagic
from workbench.cli import app
from workbench.common import errors
from workbench.store.event_store import Store

ROOT = Path(__file__).parents[1]
PUBLIC = {name: getattr(wb, name) for name in wb.__all__}
RETURNED = {"Store": Store}  # what people are handed beside
ERRORS = {name for name in dir(errors) if inspect.isclass(getattr(errors, name))}


def routines() -> Iterator[tuple[str, Any, str]]:
    """Public functions and methods: name, function, and the words that stand for its arguments."""
    for name, one in PUBLIC.items():
        if inspect.isfunction(one):
            yield name, one, inspect.getdoc(one) or ""
    for name, one in {**PUBLIC, **RETURNED}.items():
        if not inspect.isclass(one):
            continue
        words = one.__dict__.get("__doc__") or ""
        for method, function in members(one):
            if isinstance(function, property | cached_property):
                continue
            yield f"{name}.{method}", function, f"{inspect.getdoc(function) or ''}\n{words}"


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """Of our classes alone, what is public: functions and properties."""
    for base in kind.__mro__:
        if base.__module__.startswith("workbench"):
            for name, one in vars(base).items():
                one = getattr(one, "__func__", one)
                if not name.startswith("_") and (
                    inspect.isfunction(one) or isinstance(one, property | cached_property)
                ):
                    yield name, one


ROUTINES = {name: (function, words) for name, function, words in routines()}


def test_everything_public_says_what_it_is() -> None:
    silent = []
    for name, one in {**PUBLIC, **RETURNED}.items():
        docstring = one.__dict__.get("__doc__") if inspect.isclass(one) else one.__doc__
        if not docstring or docstring.startswith(f"{name}("):  # what dataclass writes
            silent.append(name)
        if inspect.isclass(one):
            silent += [f"{name}.{member}" for member, f in members(one) if not _words(f)]
    assert sorted(set(silent)) == []


def _words(one: Any) -> str:
    return (one.fget if isinstance(one, property) else one).__doc__ or ""


def test_every_argument_is_spoken_of() -> None:
    missing = []
    for name, (function, words) in ROUTINES.items():
        for argument in {*inspect.signature(function).parameters} - {"self", "cls"}:
            if not re.search(rf"\b{argument}\b", words):
                missing.append(f"{name}: {argument}")
    assert sorted(set(missing)) == []


def test_every_field_has_its_meaning() -> None:
    """A record's in its description, a dataclass's in a comment beside it or in the docstring."""
    silent = []
    for name, one in PUBLIC.items():
        if inspect.isclass(one) and issubclass(one, BaseModel):
            meanings = {
                f: field.description for f, field in one.model_fields.items() if f != "fault"
            }
            assert all(f"{field}" in (one.__doc__ or "") for field in meanings)
            silent += [f"{name}.{field}" for field, words in meanings.items() if not words]
        elif inspect.isclass(one) and dataclasses.is_dataclass(one):
            beside = commented(one)
            silent += [
                f"{name}.{field.name}"
                for field in dataclasses.fields(one)
                if not field.name.startswith("_")
                and field.name not in beside
                and not re.search(rf"\b{field.name}\b", one.__doc__ or "")
            ]
    assert silent == []


def commented(kind: type) -> set[str]:
    """Fields of a class with a comment on their line, or that stand under one."""
    fields, under = set[str](), False
    for base in filter(dataclasses.is_dataclass, kind.__mro__):
        for line in inspect.getsource(base).splitlines():
            field = re.match(r"    (\w+): ", line)
            if field and (under or "  # " in line):
                fields.add(field[1])
            under = line.startswith("    # ") or bool(under and field and "  # " not in line)
    return fields


def test_errors_that_are_raised_are_named() -> None:
    """What a public function, or a private one of its module that it calls, raises of ours."""
    silent = []
    for name, (function, words) in ROUTINES.items():
        unsaid = {error for error in raised(function) if error not in words}
        silent += [f"{name}: {error}" for error in unsaid]
    assert sorted(set(silent)) == []


def raised(function: Any) -> set[str]:
    module = inspect.getmodule(function)
    assert module is not None
    bodies = _bodies(module)
    exceptions, looked, waiting = set[str](), set[str](), [function.__qualname__]
    while waiting:
        name = waiting.pop()
        if name in looked or name not in bodies:
            continue
        looked.add(name)
        owner = name.rpartition(".")[0]
        for node in ast.walk(bodies[name]):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                exceptions.add(ast.unparse(node.exc.func))
            elif isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                callee = f"{owner}.{called[5:]}" if called.startswith("self.") else called
                if callee.rpartition(".")[2].startswith("_"):  # others speak for themselves
                    waiting.append(callee)
    return exceptions & (ERRORS | {"ValueError"})


def _bodies(module: ModuleType) -> dict[str, ast.AST]:
    """The functions of a module, by qualified name."""
    bodies: dict[str, ast.AST] = {}
    for node in ast.parse(textwrap.dedent(inspect.getsource(module))).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            bodies[node.name] = node
        elif isinstance(node, ast.ClassDef):
            bodies |= {
                f"{node.name}.{one.name}": one
                for one in node.body
                if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return bodies


def test_errors_that_are_named_exist() -> None:
    known = ERRORS | {"ValueError", "SyntaxError", "RuntimeError"}
    for name, (_, words) in ROUTINES.items():
        mentions = set(re.findall(r"\b([A-Z]\w*Error)\b", words))
        assert mentions <= known, f"{name} speaks of {mentions - known}"


COMMANDS = typer.main.get_command(app).commands


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_option_of_a_command_says_what_it_does(name: str) -> None:
    command = COMMANDS[name]
    assert command.help
    assert [one.name for one in command.params if not getattr(one, "help", "")] == []


def test_every_word_of_the_magic_is_explained() -> None:
    from workbench.cells import magics

    usage, words = (set(re.findall(r"--[a-z-]+", it)) for it in (magics._USAGE, magics.__doc__))
    assert usage == words >= {"--bare", "--end"}
    assert RanksMagic.ranks.__doc__
