"""Code by name, by path, or as text: the values of `task`, `strategy`, `all_reduce` and policies.

    "lenet_digits"            a file of the folder: workbench/tasks/lenet_digits.py
    "my_task.py:MyTask"       a file of the user's own, and the name of a definition in it
    Source(name, code)        the text of a function or class with all that it names
                              (user_code/capture.py)

``available`` lists names, ``load`` gives the function or class in all three cases. The functions
that validate a spec (``defined``, ``keywords``) only read: no code of the user's runs for them.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import linecache
import re
import sys
import types
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from workbench.common import extensions, syntax
from workbench.common.errors import SpecError
from workbench.common.names import listed, nearest

FOLDERS = Path(__file__).parents[1]
_PATH = re.compile(r"(?P<file>.+\.py):(?P<name>[^\W\d]\w*)")
KEPT = 256  # answers about a text; the start page makes an experiment of every preset, a form one
# for every key that is typed, and parsing the files that they name would be most of their time
_WITHOUT_INIT = ("object", "Protocol", "typing.Protocol", "ABC", "abc.ABC")


class Source(BaseModel):
    """A function or class of the user's own as text: ``code`` leaves it under ``name``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(description="the function or class that is meant", min_length=1)
    code: str = Field(description="its source, with every import, function and constant it names")

    def module(self) -> types.ModuleType:
        """Run the code in a new module. Tracebacks show its lines; each call gives a fresh one, in
        the place of one of the same code, so that no number of calls leaves more than one.
        """
        unique = f"workbench_source_{_digest(self.code)}_{self.name}"
        file = f"<source of {self.name}, {unique}>"
        linecache.cache[file] = (len(self.code), None, self.code.splitlines(keepends=True), file)
        module = types.ModuleType(unique)
        module.__file__ = file
        return extensions.run(module, lambda: exec(self._compiled(file), vars(module)))

    def _compiled(self, file: str) -> types.CodeType:
        # dont_inherit: our own `from __future__` lines are not the user's
        return compile(self.code, file, "exec", dont_inherit=True)

    def load(self) -> Any:
        """Return the function or class itself. Raises SpecError if the code does not define it."""
        return _attribute(self.module(), self.name, f"the source of {self.name}")


def capture(obj: object) -> Source:
    """Return a function or class defined in a cell, script or module, as Source.

    Raises SpecError, which names a global that cannot travel, its type, and the remedy.
    """
    from workbench.user_code.capture import write_out

    name, code = write_out(obj)
    return Source(name=name, code=code)


def available(folder: str, prefix: str = "") -> list[str]:
    """Return the names of a folder: available("collectives", "all_reduce_") is [..., "ring"]."""
    stems = extensions.files(folder, f"{prefix}*.py")
    return sorted(stem.removeprefix(prefix) for stem in stems)


def load(folder: str, value: str | Source, attribute: str, prefix: str = "") -> Any:
    """Return the function or class that ``value`` means.

    A name means ``attribute`` of the file ``<folder>/<prefix><name>.py``; a path or Source names
    its own attribute. Raises SpecError.
    """
    module = load_module(folder, value, prefix)
    if isinstance(value, Source):
        attribute = value.name
    elif place := split_path(value):
        attribute = place[1]
    return _attribute(module, attribute, f"{folder}: {shown(value)}")


def load_module(folder: str, value: str | Source, prefix: str = "") -> types.ModuleType:
    """Return the module in which ``load`` finds it; a strategy's ``Config`` is beside its
    ``train``.
    """
    if isinstance(value, Source):
        return value.module()
    if place := split_path(value):
        return _load_file(place[0])
    names = available(folder, prefix)
    if value not in names:
        near = nearest(value, names)
        raise SpecError(f"{folder} has no {value!r}{near}. There is: {listed(names)}")
    return extensions.load(folder, f"{prefix}{value}")


def load_path(text: str) -> Any:
    """Return the object of "my_task.py:MyTask"; relative paths start at the current directory."""
    place = split_path(text)
    if place is None:
        raise SpecError(
            f"{text!r} is not a path to code: write file.py:Name, as in 'my_task.py:MyTask'"
        )
    return _attribute(_load_file(place[0]), place[1], text)


def split_path(text: str) -> tuple[Path, str] | None:
    """Return file and name of "my_task.py:MyTask"; None for a plain name."""
    match = _PATH.fullmatch(text)
    return (Path(match["file"]).expanduser(), match["name"]) if match else None


def is_code(value: object) -> bool:
    """Return whether this is code of the user's or a path to it, not a name or a plain value."""
    return isinstance(value, Source) or (isinstance(value, str) and split_path(value) is not None)


def text_of(folder: str, value: str | Source, prefix: str = "") -> str:
    """Return the source text in which ``value`` is defined, without running it."""
    if isinstance(value, Source):
        return value.code
    place = split_path(value)
    try:
        file = place[0] if place else extensions.file_of(folder, f"{prefix}{value}")
        return importlib.util.decode_source(file.read_bytes())
    except (ImportError, OSError, SyntaxError, UnicodeDecodeError) as error:
        raise SpecError(f"{value!r} cannot be read: {error}") from None


def module_text(name: str) -> str:
    """Return the source of a module that can be imported, without importing it or its packages; ""
    where there is none.
    """
    for folder in sys.path:
        place = Path(folder or ".", *name.split("."))
        for file in (place.parent / f"{place.name}.py", place / "__init__.py"):
            try:
                return importlib.util.decode_source(file.read_bytes())
            except (OSError, SyntaxError, UnicodeDecodeError):
                continue
    return ""


def module_of(folder: str, value: str | Source) -> str:
    """Return the source of the module in which ``value`` is defined, without running it: of a
    function that ranks import, that module's.
    """
    code = text_of(folder, value)
    if isinstance(value, Source) and (name := imported_from(code, value.name)):
        return module_text(name)
    return code


def imported_from(code: str, name: str) -> str:
    """Return the module from which ``code`` imports ``name``; "" where it does not."""
    if name not in code or "import" not in code:
        return ""
    try:
        nodes = syntax.parse(code).body
    except SyntaxError:
        return ""
    for node in nodes:
        match node:
            case ast.ImportFrom(module=str(module), names=aliases, level=0):
                if name in [one.asname or one.name for one in aliases]:
                    return module
    return ""


@lru_cache(KEPT)
def names_defined(code: str, where: str) -> tuple[str, ...]:
    """Return the names that ``code`` binds at its top level. Raises SpecError for bad syntax."""
    names: list[str] = []
    for node in parsed(code, where).body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.append(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names += [one.asname or one.name.partition(".")[0] for one in aliases]
            case ast.Assign(targets=targets):
                names += [one.id for one in targets if isinstance(one, ast.Name)]
    return tuple(names)


@lru_cache(KEPT)
def keywords(code: str, name: str, where: str) -> tuple[str, ...] | None:
    """Return the keywords that class ``name`` in ``code`` accepts; None if they cannot be read.

    A dataclass has its fields, another class the parameters of its ``__init__``. ``**kwargs``, or a
    base class from elsewhere, can take anything.
    """
    classes = {one.name: one for one in parsed(code, where).body if isinstance(one, ast.ClassDef)}
    known = _keywords(classes[name], classes) if name in classes else None
    return None if known is None else tuple(known)


def _keywords(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> list[str] | None:
    methods = {one.name: one for one in node.body if isinstance(one, ast.FunctionDef)}
    if "__init__" in methods:
        arguments = methods["__init__"].args
        named = [*arguments.posonlyargs, *arguments.args][1:] + arguments.kwonlyargs
        return None if arguments.kwarg else [one.arg for one in named]
    result: list[str] = []
    for base in node.bases:
        above = classes.get(ast.unparse(base))
        inherited = _keywords(above, classes) if above else None
        if inherited is None and ast.unparse(base) not in _WITHOUT_INIT:
            return None
        result += inherited or []
    decorators = " ".join(ast.unparse(one) for one in node.decorator_list)
    if "dataclass" in decorators:
        for one in node.body:
            if isinstance(one, ast.AnnAssign) and "ClassVar" not in ast.unparse(one.annotation):
                result.append(ast.unparse(one.target))
    return result


@lru_cache(KEPT)
def methods(code: str, name: str) -> frozenset[str] | None:
    """Return the methods of class ``name`` in ``code``, inherited ones too; None if they cannot be
    read: it is not a class, or has a base class from elsewhere. Raises SpecError for bad syntax.
    """
    classes = {one.name: one for one in parsed(code, name).body if isinstance(one, ast.ClassDef)}
    names: set[str] = set()
    pending = [name]
    while pending:
        node = classes.get(pending.pop())
        if node is None:
            return None
        names |= {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
        bases = [ast.unparse(base) for base in node.bases]
        pending += [base for base in bases if base not in _WITHOUT_INIT]
    return frozenset(names)


@lru_cache(KEPT)
def constant(code: str, name: str, where: str) -> Any:
    """Return a constant that ``code`` binds at its top level; None where there is none. Raises
    SpecError for bad syntax, and for what is not a literal.
    """
    for node in parsed(code, where).body if name in code else ():
        match node:
            case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                try:
                    return ast.literal_eval(value)
                except ValueError:
                    raise SpecError(f"{where}: {name} is read, not run: write its value") from None
    return None


def places_of(task: Any) -> tuple[str, ...]:
    """Return the options of a built-in task that name folders or files.

    They are the task's ``PLACES``, which is read, not run.
    """
    if not isinstance(task, str) or task not in available("tasks"):
        return ()
    return tuple(map(str, constant(text_of("tasks", task), "PLACES", task) or ()))


def shown(value: str | Source) -> str:
    return f"the source of {value.name}" if isinstance(value, Source) else repr(value)


def _load_file(file: Path) -> types.ModuleType:
    """Run a file of the user's own as a module; files beside it can be imported by it."""
    file = file.resolve()
    spec = importlib.util.spec_from_file_location(
        f"workbench_file_{_digest(str(file))}_{file.stem}", file
    )
    if not file.is_file() or spec is None or spec.loader is None:
        raise SpecError(f"there is no file {file}")
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    module = importlib.util.module_from_spec(spec)
    loader = spec.loader
    return extensions.run(module, lambda: loader.exec_module(module))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _attribute(module: types.ModuleType, name: str, where: str) -> Any:
    if not hasattr(module, name):
        names = [one for one in vars(module) if not one.startswith("_")]
        raise SpecError(f"{where} defines no {name}{nearest(name, names)}. It has: {listed(names)}")
    return getattr(module, name)


def parsed(code: str, where: str) -> ast.Module:
    """Return the syntax tree of ``code``. Raises SpecError for bad syntax."""
    try:
        return syntax.parse(code)
    except SyntaxError as error:
        raise SpecError(f"{where}, line {error.lineno}: {error.msg}") from None
