"""The front end's own files: beside the package in a wheel, in ``assets/`` of a checkout."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

# A host imports one module that has nothing beside it (anywidget's comes from a Blob URL), so the
# files follow each other, their imports of each other left out. Every top-level name is there once.
ENTRY = "stage.js"
_DECLARES = re.compile(
    r"^(?:export )?(?:default )?(?:(?:async )?(?:function\*?|class) (?P<name>[\w$]+)"
    r"|(?:const|let|var) (?P<list>.*))",
    re.MULTILINE,
)
# A string, a comment, an arrow or a single character.
_PIECES = re.compile(
    r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`(?:\\.|[^`\\])*`|/\*.*?\*/|//.*|=>|."""
)
_DECLARATOR = re.compile(r"(?:^|,)\s*([A-Za-z_$][\w$]*)\s*(?==|$|;|,)")
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


def declared(text: str) -> list[str]:
    """The names that a file declares at its top level, in their order; its lines begin with them,
    as ours do.
    """
    names: list[str] = []
    for line in _DECLARES.finditer(text):
        names += [line["name"]] if line["name"] else _declared_in(line["list"])
    return names


def _declared_in(line: str) -> list[str]:
    """The names of ``a = 1, b = [2, 3]``: each begins the line, or follows a comma that lies in no
    bracket and no string.
    """
    depth, bare = 0, ""
    for part in _PIECES.findall(line):
        depth += (part in "([{") - (part in ")]}")
        bare += part if depth == 0 and len(part) == 1 else " "
    return _DECLARATOR.findall(bare)


def clashes(texts: Mapping[str, str]) -> dict[str, list[str]]:
    """Names that more than one of the files declares at its top level, and which."""
    found: dict[str, list[str]] = {}
    for name, text in texts.items():
        for one in declared(text):
            found.setdefault(one, []).append(name)
    return {one: names for one, names in found.items() if len(names) > 1}


@cache
def stage_module() -> str:
    """The stage as one self-contained ES module with the default export ``{render}``.

    Raises ImportError where two files declare the same name: a browser would refuse the module
    without a word on the page.
    """
    for one, files in clashes({name: asset(name).read_text() for name in modules()}).items():
        raise ImportError(f"assets: {one} is declared in {' and in '.join(files)}; rename one")
    return "".join(_IMPORT.sub("", asset(name).read_text()) for name in modules())


@cache
def theme() -> str:
    """The stage's style sheet."""
    return asset("theme.css").read_text()
