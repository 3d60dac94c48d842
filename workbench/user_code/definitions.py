"""The definition of a function or class: its text, and the names in scope there.

Python keeps the file and the first line of a function, but of a class (before 3.13) only the
module; and a notebook's ``__main__`` has no file. So a class is looked for where its methods lie,
then in its module's file, then in the cells, newest first.
"""

from __future__ import annotations
import __future__

import ast
import inspect
import linecache
import sys
import textwrap
import types
from collections import ChainMap
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from workbench.common import syntax
from workbench.common.errors import SpecError

_Node = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_POSTPONED = __future__.annotations.compiler_flag


@dataclass(frozen=True)
class Definition:
    """A ``def`` or ``class`` statement: its text flush left, and what its free names stand for."""

    name: str
    text: str
    scope: Mapping[str, object]  # variables of enclosing functions, then globals; not builtins
    postponed: bool  # written under `from __future__ import annotations`


def find(value: Any) -> Definition:
    """Return the definition of a function or class. Raises SpecError if it cannot be found."""
    if isinstance(value, type):
        return _find_class(value)
    return _find_function(value)


def _find_function(value: Any) -> Definition:
    function = inspect.unwrap(value)
    code = function.__code__
    name = code.co_name
    if name == "<lambda>":
        raise SpecError(
            f"{value.__name__} is a lambda: write it with def, so that it can travel to the ranks"
        )
    lines = _lines(code.co_filename, function.__globals__)
    nodes = [node for _, node in _statements(lines) if _first_line(node) == code.co_firstlineno]
    if not nodes or nodes[0].name != name:
        raise _no_source(value, "function")
    node = nodes[0]
    _refuse_method(function.__qualname__)
    if function is not value and not node.decorator_list:
        raise SpecError(
            f"{name} was wrapped outside of its definition: write the wrapper as a decorator (@) "
            "above its def, so that it travels too"
        )
    scope = ChainMap(_closure(function), function.__globals__)
    return Definition(name, _text(lines, node), scope, bool(code.co_flags & _POSTPONED))


def _find_class(cls: type) -> Definition:
    methods = list(_methods(cls))
    module = sys.modules.get(cls.__module__)
    lines, node = _class_statement(cls, methods, vars(module) if module else {})
    _refuse_method(cls.__qualname__)
    closures: MutableMapping[str, object] = {}
    for method in methods:
        closures.update(_closure(method))
    names = methods[0].__globals__ if methods else vars(module) if module else {}
    annotations = vars(cls).get("__annotations__", {}).values()
    postponed = any(method.__code__.co_flags & _POSTPONED for method in methods) or (
        bool(annotations) and all(isinstance(one, str) for one in annotations)
    )
    return Definition(cls.__name__, _text(lines, node), ChainMap(closures, names), postponed)


def _class_statement(
    cls: type, methods: list[types.FunctionType], module: Mapping[str, Any]
) -> tuple[list[str], _Node]:
    for method in methods:
        lines, first = _lines(method.__code__.co_filename, {}), method.__code__.co_firstlineno
        for node in _classes(lines, cls):
            if _first_line(node) <= first <= (node.end_lineno or 0):
                return lines, node
    lines = _lines(module.get("__file__") or "", dict(module))
    nodes = list(_classes(lines, cls))
    fitting = [node for node in nodes if _fits(node, cls)] or nodes
    if fitting:
        return lines, fitting[-1]
    for lines in _cells(module):
        for node in _classes(lines, cls):
            if _fits(node, cls):
                return lines, node
    raise _no_source(cls, "class")


def _methods(cls: type) -> Iterator[types.FunctionType]:
    """Yield the functions written in the body of ``cls`` (not generated, not inherited)."""
    for value in vars(cls).values():
        inner = value
        for attribute in ("__func__", "fget", "func"):  # static, class; property; cached property
            inner = getattr(value, attribute, None) or inner
        if isinstance(inner, types.FunctionType):
            inner = inspect.unwrap(inner)
            is_method = getattr(inner, "__qualname__", "").startswith(f"{cls.__qualname__}.")
            if is_method and _lines(inner.__code__.co_filename, inner.__globals__):
                yield inner


def _classes(lines: list[str], cls: type) -> Iterator[_Node]:
    for qualname, node in _statements(lines):
        if qualname == cls.__qualname__ and isinstance(node, ast.ClassDef):
            yield node


def _fits(node: _Node, cls: type) -> bool:
    """Return whether this statement may have defined ``cls``: it binds only names of the class."""
    bound: set[str] = set()
    for statement in node.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name)):
                bound.add(name)
            case ast.Assign(targets=targets):
                bound |= {one.id for one in targets if isinstance(one, ast.Name)}
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                bound.add(name)
    annotated = set(vars(cls).get("__annotations__", {}))
    return bound <= set(vars(cls)) | annotated and annotated <= bound


def _cells(module: Mapping[str, Any]) -> Iterator[list[str]]:
    """Yield sources typed into this session, newest first: ``In``, then linecache's."""
    history = module.get("In")
    for cell in reversed(history) if isinstance(history, list) else ():
        yield str(cell).splitlines(keepends=True)
    for file in reversed(list(linecache.cache)):
        if "ipython-input" in file or "ipykernel_" in file or file.startswith("<"):
            yield linecache.getlines(file)


def _statements(lines: list[str]) -> Iterator[tuple[str, _Node]]:
    """Yield every def and class of a source, with its qualified name."""
    try:
        tree = syntax.parse("".join(lines))
    except SyntaxError:  # a cell that never ran
        return

    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, _Node]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, _Node):
                yield prefix + child.name, child
                inside = "." if isinstance(child, ast.ClassDef) else ".<locals>."
                yield from walk(child, prefix + child.name + inside)
            else:
                yield from walk(child, prefix)

    yield from walk(tree, "")


def _lines(file: str, names: dict[str, Any]) -> list[str]:
    linecache.checkcache(file)
    return linecache.getlines(file, names)


def _first_line(node: _Node) -> int:
    return node.decorator_list[0].lineno if node.decorator_list else node.lineno


def _text(lines: list[str], node: _Node) -> str:
    """Return the statement dedented, without trailing blanks unless a string in it would change."""
    text = "".join(lines[_first_line(node) - 1 : node.end_lineno])
    if text[:1].isspace():
        meaning = f"if True:\n{text}"
        flush = textwrap.dedent(text)
        block = syntax.parse(meaning).body[0]
        text = flush if isinstance(block, ast.If) and _equal(flush, block.body[0]) else meaning
    trimmed = "\n".join(line.rstrip() for line in text.splitlines())
    return trimmed if _equal(trimmed, *syntax.parse(text).body) else text.rstrip("\n")


def _equal(text: str, node: ast.AST) -> bool:
    try:
        return ast.dump(syntax.parse(text).body[0]) == ast.dump(node)
    except SyntaxError:
        return False


def _closure(function: types.FunctionType) -> dict[str, object]:
    """Return variables of enclosing functions that ``function`` uses and that have a value."""
    result: dict[str, object] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            result[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    result.pop("__class__", None)  # super() makes it again
    return result


def _refuse_method(qualname: str) -> None:
    outer = qualname.rpartition(".<locals>.")[2]
    if "." in outer:
        raise SpecError(
            f"{qualname} is defined inside of a class: define {outer.rpartition('.')[2]} at the "
            "top of the cell or file, so that it can travel to the ranks"
        )


def _no_source(value: Any, what: str) -> SpecError:
    return SpecError(
        f"the source of {value.__name__} is not to be found (looked for its {what} statement in "
        f"{value.__module__}): write it in a notebook cell or a file"
    )
