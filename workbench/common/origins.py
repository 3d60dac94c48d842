"""The origin of code: a library, which ranks import too, or the user, whose source must travel.

Ranks run the same Python: they find the standard library, installed packages, the workbench, what
PYTHONPATH names and what `pip install -e` made known. They do not find ``__main__`` or a file that
merely lies next to the caller's script or notebook.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import os
import site
import sys
import sysconfig
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def is_users_own(value: object) -> bool:
    """Return whether ranks could not import this function or class."""
    if not isinstance(value, type):
        if not callable(value) or not isinstance(_unwrap(value), types.FunctionType):
            return False
        value = _unwrap(value)
    module = sys.modules.get(str(getattr(value, "__module__", "")))
    if module is None or not is_installed(module):
        return True
    # made inside of a function of a project that is importable, but no library (`pip install -e`)
    local = "<locals>" in getattr(value, "__qualname__", "")
    return local and not _lies_in(_files(module), _library_folders())


def is_installed(module: types.ModuleType) -> bool:
    """Return whether ranks can import it: standard library, installed package or the workbench."""
    top = module.__name__.partition(".")[0]
    if top == "__main__":
        return False
    if top == "workbench" or top in sys.builtin_module_names:
        return True
    package = sys.modules.get(top, module)
    files = _files(package)
    if not files:
        return getattr(getattr(package, "__spec__", None), "origin", None) in ("built-in", "frozen")
    if _lies_in(files, _library_folders()):
        return True
    stems = [root / top for root in _searched_folders()]
    importable = [{stem, stem / "__init__.py", stem.with_suffix(".py")} for stem in stems]
    return any(file in places for file in files for places in importable)


def _files(module: types.ModuleType) -> list[Path]:
    """Return the file of a module, and the folders of a package."""
    places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
    return [Path(place).resolve() for place in places if isinstance(place, str)]


def _lies_in(files: list[Path], folders: frozenset[Path]) -> bool:
    return any(file.is_relative_to(folder) for file in files for folder in folders)


@functools.cache
def _library_folders() -> frozenset[Path]:
    """Return the standard library's folders and those of installed packages."""
    paths = sysconfig.get_paths()
    folders = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders |= {*site.getsitepackages(), site.getusersitepackages()}
    return frozenset(Path(folder).resolve() for folder in folders)


@functools.cache
def _searched_folders() -> frozenset[Path]:
    """Return other folders that every Python here searches: PYTHONPATH, and those of .pth files."""
    folders = {Path(one) for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one}
    for library in _library_folders():
        for pth in library.glob("*.pth"):
            lines = pth.read_text(errors="replace", encoding="utf-8").splitlines()
            folders |= {library / line for line in lines if line and (library / line).is_dir()}
    return frozenset(folder.resolve() for folder in folders)


def is_own_file(name: str) -> bool:
    module = sys.modules.get(name)
    if module is not None:
        return not is_installed(module)
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    return spec is not None and not is_installed(importlib.util.module_from_spec(spec))


def import_of(value: object, name: str) -> tuple[str, str] | None:
    """Return the library module and name from which ranks can import ``value``, if there is one."""
    if isinstance(value, types.FunctionType | type) and is_users_own(value):
        return None
    home, title = str(getattr(value, "__module__", "")), str(getattr(value, "__name__", ""))
    if home == "builtins":
        return None
    places = [(home, title)] if _offers(sys.modules.get(home), title, value) else []
    if not places or "._" in f".{home}":  # nothing, or a private module: is there a public one?
        places += _search(
            lambda entries: (key for key in (title, name) if entries.get(key) is value)
        )
    if not places:  # under another name, as in `from torch import float32 as DTYPE`
        places = _search(lambda entries: (key for key, one in entries.items() if one is value))
    return min(places, key=_obscurity, default=None)


def _search(matches: Callable[[dict[str, Any]], Iterable[Any]]) -> list[tuple[str, str]]:
    result = []
    for path, module in sys.modules.copy().items():  # other threads import meanwhile
        entries = getattr(module, "__dict__", None)
        for key in list(matches(dict(entries))) if isinstance(entries, dict) else ():
            if module.__name__ == path and is_installed(module):
                result.append((path, key))
    return result


def _offers(module: types.ModuleType | None, name: str, value: object) -> bool:
    return module is not None and is_installed(module) and vars(module).get(name) is value


def _obscurity(place: tuple[str, str]) -> tuple[bool, int, int, str]:
    path = f".{place[0]}.{place[1]}"
    return "._" in path, path.count("."), len(path), path


def submodule(module: types.ModuleType) -> Callable[[tuple[str, ...]], str | None]:
    """Return the deepest submodule that an attribute chain of ``module`` needs imported."""

    def deepest(chain: tuple[str, ...]) -> str | None:
        current, result = module, None
        for attribute in chain:
            path = f"{current.__name__}.{attribute}"
            if (
                path not in sys.modules
                or getattr(current, attribute, None) is not sys.modules[path]
            ):
                break
            current, result = sys.modules[path], path
        return result

    return deepest


def _unwrap(value: Any) -> object:
    wrapper = isinstance(value, types.FunctionType | functools._lru_cache_wrapper)
    return inspect.unwrap(value) if wrapper else value
