"""Code by name, by path, or as text: what `task`, `strategy`, `all_reduce` and policies may be.

    "lenet_digits"            a file of the folder: workbench/tasks/lenet_digits.py
    "my_task.py:MyTask"       a file of the user's own, and the name of what is meant in it
    Source(name, code)        the text of a function or class with all that it names (capture.py)

``available`` lists names, ``load`` gives the function or class whichever way it was said. What a
spec is validated with (``defined``, ``keywords``) only reads: no code of the user's runs for it.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import itertools
import linecache
import re
import sys
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from workbench.errors import SpecError

FOLDERS = Path(__file__).parent
_PATH = re.compile(r"(?P<file>.+\.py):(?P<name>[^\W\d]\w*)")
_WITHOUT_INIT = ("object", "Protocol", "typing.Protocol", "ABC", "abc.ABC")
_numbers = itertools.count(1)


class Source(BaseModel):
    """A function or class of the user's own as text: ``code`` leaves it under ``name``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(description="the function or class that is meant", min_length=1)
    code: str = Field(description="its source, with every import, function and constant it names")

    def module(self) -> types.ModuleType:
        """Run the code in a new module. Tracebacks show its lines; each call gives a fresh one."""
        unique = f"workbench_source_{next(_numbers)}_{self.name}"
        file = f"<source of {self.name}, {unique}>"
        linecache.cache[file] = (len(self.code), None, self.code.splitlines(keepends=True), file)
        module = types.ModuleType(unique)
        module.__file__ = file
        return _run(module, lambda: exec(self._compiled(file), vars(module)))

    def _compiled(self, file: str) -> types.CodeType:
        # dont_inherit: our own `from __future__` lines are not the user's
        return compile(self.code, file, "exec", dont_inherit=True)

    def load(self) -> Any:
        """The function or class itself. Raises SpecError where the code does not define it."""
        return _attribute(self.module(), self.name, f"the source of {self.name}")


def capture(obj: object) -> Source:
    """A function or class defined in a cell, script or module, as Source.

    Raises SpecError naming a global that cannot travel, its type, and what to do.
    """
    from workbench.capture import write_out

    name, code = write_out(obj)
    return Source(name=name, code=code)


def available(folder: str, prefix: str = "") -> list[str]:
    """Names of a folder: available("collectives", "all_reduce_") is [..., "ring"]."""
    files = (FOLDERS / folder).glob(f"{prefix}*.py")
    return sorted(file.stem.removeprefix(prefix) for file in files if not file.stem.startswith("_"))


def load(folder: str, value: str | Source, attribute: str, prefix: str = "") -> Any:
    """The function or class that ``value`` means.

    A name means ``attribute`` of the file ``<folder>/<prefix><name>.py``; a path or Source says
    itself what it means. Raises SpecError.
    """
    module = load_module(folder, value, prefix)
    if isinstance(value, Source):
        attribute = value.name
    elif place := split_path(value):
        attribute = place[1]
    return _attribute(module, attribute, f"{folder}: {shown(value)}")


def load_module(folder: str, value: str | Source, prefix: str = "") -> types.ModuleType:
    """The module in which ``load`` finds it: a strategy's ``Config`` lies beside its ``train``."""
    if isinstance(value, Source):
        return value.module()
    if place := split_path(value):
        return _load_file(place[0])
    names = available(folder, prefix)
    if value not in names:
        near = nearest(value, names)
        raise SpecError(f"{folder} has no {value!r}{near}. There is: {listed(names)}")
    return importlib.import_module(f"workbench.{folder}.{prefix}{value}")


def load_path(text: str) -> Any:
    """What "my_task.py:MyTask" means; relative paths start at the current directory."""
    place = split_path(text)
    if place is None:
        raise SpecError(
            f"{text!r} is no path to code: write file.py:Name, as in 'my_task.py:MyTask'"
        )
    return _attribute(_load_file(place[0]), place[1], text)


def split_path(text: str) -> tuple[Path, str] | None:
    """File and name of "my_task.py:MyTask"; None for a plain name."""
    found = _PATH.fullmatch(text)
    return (Path(found["file"]).expanduser(), found["name"]) if found else None


def text_of(folder: str, value: str | Source, prefix: str = "") -> str:
    """The source text in which ``value`` is defined, without running it."""
    if isinstance(value, Source):
        return value.code
    place = split_path(value)
    file = place[0] if place else FOLDERS / folder / f"{prefix}{value}.py"
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{value!r}: {file} cannot be read: {error}") from None


def defined(code: str, where: str) -> list[str]:
    """Names that ``code`` binds at its top level. Raises SpecError if it does not parse."""
    names: list[str] = []
    for node in _parse(code, where).body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.append(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names += [one.asname or one.name.partition(".")[0] for one in aliases]
            case ast.Assign(targets=targets):
                names += [one.id for one in targets if isinstance(one, ast.Name)]
    return names


def keywords(code: str, name: str, where: str) -> list[str] | None:
    """Keywords that class ``name`` in ``code`` is made with; None if reading cannot tell.

    A dataclass has its fields, another class the parameters of its ``__init__``. ``**kwargs``, or a
    base class from elsewhere, can take anything.
    """
    classes = {one.name: one for one in _parse(code, where).body if isinstance(one, ast.ClassDef)}
    return _keywords(classes[name], classes) if name in classes else None


def _keywords(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> list[str] | None:
    methods = {one.name: one for one in node.body if isinstance(one, ast.FunctionDef)}
    if "__init__" in methods:
        arguments = methods["__init__"].args
        named = [*arguments.posonlyargs, *arguments.args][1:] + arguments.kwonlyargs
        return None if arguments.kwarg else [one.arg for one in named]
    found: list[str] = []
    for base in node.bases:
        above = classes.get(ast.unparse(base))
        inherited = _keywords(above, classes) if above else None
        if inherited is None and ast.unparse(base) not in _WITHOUT_INIT:
            return None
        found += inherited or []
    decorators = " ".join(ast.unparse(one) for one in node.decorator_list)
    if "dataclass" in decorators:
        for one in node.body:
            if isinstance(one, ast.AnnAssign) and "ClassVar" not in ast.unparse(one.annotation):
                found.append(ast.unparse(one.target))
    return found


def nearest(word: str, names: Iterable[str]) -> str:
    """ " (did you mean 'ring'?)" or "": for the messages of unknown names."""
    by_lower = {name.lower(): name for name in names}
    close = difflib.get_close_matches(word.lower(), by_lower, n=2, cutoff=0.6)
    return f" (did you mean {' or '.join(repr(by_lower[one]) for one in close)}?)" if close else ""


def listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def shown(value: str | Source) -> str:
    return f"the source of {value.name}" if isinstance(value, Source) else repr(value)


def _load_file(file: Path) -> types.ModuleType:
    """Run a file of the user's own as a module; files beside it can be imported by it."""
    file = file.resolve()
    spec = importlib.util.spec_from_file_location(
        f"workbench_file_{next(_numbers)}_{file.stem}", file
    )
    if not file.is_file() or spec is None or spec.loader is None:
        raise SpecError(f"there is no file {file}")
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    module = importlib.util.module_from_spec(spec)
    loader = spec.loader
    return _run(module, lambda: loader.exec_module(module))


def _run(module: types.ModuleType, execute: Callable[[], None]) -> types.ModuleType:
    sys.modules[module.__name__] = module  # dataclasses and get_type_hints look there
    try:
        execute()
    except BaseException:
        del sys.modules[module.__name__]
        raise
    return module


def _attribute(module: types.ModuleType, name: str, where: str) -> Any:
    if not hasattr(module, name):
        names = [one for one in vars(module) if not one.startswith("_")]
        raise SpecError(f"{where} defines no {name}{nearest(name, names)}. It has: {listed(names)}")
    return getattr(module, name)


def _parse(code: str, where: str) -> ast.Module:
    try:
        return ast.parse(code)
    except SyntaxError as error:
        raise SpecError(f"{where}, line {error.lineno}: {error.msg}") from None
