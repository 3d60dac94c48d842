"""The folders of extensions: one per kind, ours and those of the user.

    WORKBENCH_EXTENSIONS=~/mine      ~/mine/collectives/all_reduce_star.py
                                     ~/mine/strategies/..., tasks/, consistency/, schedules/
                                     ~/mine/launchers/, presets/, studies/, exercises/
                                     ~/mine/scenes/heat/scene.json, ...

A file's name is the name of what it adds. Nothing is registered: the folders are listed whenever
names are asked for, in the driver and in every rank. Of two files of one name ours counts. The
variable may name several folders, with colons between them.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from workbench.common import environment

PACKAGE = __name__.partition(".")[0]
OURS = Path(str(sys.modules[PACKAGE].__file__)).resolve().parent


def roots() -> list[Path]:
    """Return the user's own folders, in the order in which the environment names them."""
    named = environment.text("WORKBENCH_EXTENSIONS").split(os.pathsep)
    return [Path(one).expanduser().resolve() for one in named if one.strip()]


def folders(kind: str) -> list[Path]:
    """Return the folders in which extensions of a kind are looked for, ours first."""
    return [OURS / kind, *(root / kind for root in roots())]


def files(kind: str, pattern: str = "*.py") -> dict[str, Path]:
    """Return stem -> file of the extensions of a kind, in the order of their names."""
    result: dict[str, Path] = {}
    for folder in folders(kind):
        for file in folder.glob(pattern):
            if not file.stem.startswith("_"):
                result.setdefault(file.stem, file)
    return dict(sorted(result.items()))


def file_of(kind: str, stem: str) -> Path:
    """Return the file of an extension. Raises ImportError, which says where it was looked for."""
    looked = folders(kind)
    for folder in looked:
        if (file := folder / f"{stem}.py").is_file():
            return file
    raise ImportError(f"there is no {stem}.py in {', '.join(map(str, looked))}")


def load(kind: str, stem: str) -> ModuleType:
    """Import the extension of that name: ours as a module of the package, the user's by its file.
    Raises ImportError where there is none.
    """
    file = file_of(kind, stem)
    if file.parent == OURS / kind:
        return importlib.import_module(f"{PACKAGE}.{kind.replace('/', '.')}.{stem}")
    return load_file(file)


def load_file(file: Path) -> ModuleType:
    """Import a file of the user's own, again once it has changed."""
    written = file.stat().st_mtime_ns
    path = hashlib.sha256(str(file).encode("utf-8", "surrogatepass")).hexdigest()[:12]
    name = f"workbench_extension_{path}_{file.stem}"
    before = sys.modules.get(name)
    if before is not None and getattr(before, "written", None) == written:
        return before
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    module.written = written  # type: ignore[attr-defined]
    return run(module, lambda loader=spec.loader: loader.exec_module(module))  # type: ignore[misc]


def run(module: ModuleType, execute: Callable[[], None]) -> ModuleType:
    """Execute a module's code with the module in its place in ``sys.modules``, where dataclasses
    and ``get_type_hints`` look; where the code raises, the place is as it was before.
    """
    before = sys.modules.get(module.__name__)
    sys.modules[module.__name__] = module
    try:
        execute()
    except BaseException:
        if before is None:
            sys.modules.pop(module.__name__, None)
        else:
            sys.modules[module.__name__] = before
        raise
    return module
