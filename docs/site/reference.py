"""The reference, from docstrings: every public name, with its signature and its methods."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import workbench as wb

HEAD = """# Reference

Every public name of `import workbench as wb`, from its docstring. In a notebook: `wb.run?`.
"""


def reference() -> str:
    """Return the page."""
    functions, classes, errors = [], [], []
    for name in wb.__all__:
        one = getattr(wb, name)
        if inspect.isclass(one) and issubclass(one, Exception):
            errors.append(_entry(name, one))
        elif inspect.isclass(one):
            classes.append("\n\n".join([_entry(name, one), *_methods(name, one)]))
        else:
            functions.append(_entry(name, one))
    parts = ["## Functions", *functions, "## Classes", *classes, "## Errors", *errors]
    return HEAD + "\n\n" + "\n\n".join(parts) + "\n"


def _entry(name: str, one: Any, level: str = "###") -> str:
    words = inspect.getdoc(one) or ""
    return f"{level} `{name}`\n\n```` {{ .text .wrap }}\n{name}{_signature(one)}\n\n{words}\n````"


def _signature(one: Any) -> str:
    if inspect.isclass(one):
        return ""
    try:
        return str(inspect.signature(one))
    except (TypeError, ValueError):
        return ""


def _methods(name: str, kind: type) -> Iterator[str]:
    for base in kind.__mro__:
        if not base.__module__.startswith("workbench"):
            continue
        for method, one in vars(base).items():
            function = getattr(one, "__func__", one)
            if inspect.isfunction(function) and not method.startswith("_") and function.__doc__:
                yield _entry(f"{name}.{method}", function, "####")
