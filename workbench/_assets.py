"""The front end's own files: beside the package in a wheel, in ``assets/`` of a checkout."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

# A host imports one module that has nothing beside it (anywidget's comes from a Blob URL), so the
# files follow each other, their imports of each other left out. Every top-level name is there once.
ENTRY = "stage.js"
_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([\w.]+)";\n', re.MULTILINE)


def asset(name: str) -> Path:
    """The path of one file. Raises FileNotFoundError with the folders that were searched."""
    here = Path(__file__).resolve().parent
    folders = (here / "_assets", here.parent / "assets")
    for folder in folders:
        if (path := folder / name).is_file():
            return path
    raise FileNotFoundError(
        f"{name} is in neither {folders[0]} nor {folders[1]}: reinstall the package"
    )


@cache
def modules(entry: str = ENTRY) -> tuple[str, ...]:
    """``entry`` and every file that it needs, each after those that it imports."""
    order: list[str] = []

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            raise ImportError(
                f"assets import each other in a circle: {' -> '.join(path)} -> {name}"
            )
        if name not in order:
            for needed in _IMPORT.findall(asset(name).read_text()):
                visit(needed, (*path, name))
            order.append(name)

    visit(entry, ())
    return tuple(order)


@cache
def stage_module() -> str:
    """The stage as one self-contained ES module with the default export ``{render}``."""
    return "".join(_IMPORT.sub("", asset(name).read_text()) for name in modules())


@cache
def theme() -> str:
    """The stage's style sheet."""
    return asset("theme.css").read_text()
