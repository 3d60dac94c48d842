"""The front end's own files: beside the package in a wheel, in ``assets/`` of a checkout; and the
scenes of the user's own (extensions.py), whose files stand as if they were among ours.
"""

from __future__ import annotations

import json
import posixpath
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from workbench.common import extensions
from workbench.common.javascript import clashes, declared, imported, without_imports
from workbench.common.smaller_javascript import smaller

STAGE = "chrome/stage.js"


def asset(name: str) -> Path:
    """Return the path of one file, named by its place in ``assets/``: ``engine/table.js``.

    Raises FileNotFoundError with the folders that were searched.
    """
    package = Path(__file__).resolve().parents[1]
    folders = (package / "_assets", package.parent / "assets", *extensions.roots())
    for folder in folders:
        if (path := folder / name).is_file():
            return path
    raise FileNotFoundError(
        f"{name} is in none of {', '.join(map(str, folders))}: reinstall the package, or mend the "
        "import in a scene of your own"
    )


# ---- scenes


@dataclass(frozen=True)
class Manifest:
    """The content of a scene's scene.json. ``facts``: key -> flags (views/scenes). ``opens``: the
    strategies whose runs open in this scene, "*" all others of several ranks.
    """

    folder: Path
    label: str
    order: float
    facts: dict[str, dict[str, bool]]
    opens: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.folder.name


def scene_manifests() -> list[Manifest]:
    """Return the manifests of all scenes in the order of their tabs; of two scenes of one name ours
    counts. Raises ValueError, which says what a manifest lacks.
    """
    ours = asset("scenes/overview/scene.json").parents[1]
    parents = [ours, *extensions.folders("scenes")[1:]]
    files = [file for parent in parents for file in sorted(parent.glob("*/scene.json"))]
    manifests: dict[str, Manifest] = {}
    for file in files:
        manifests.setdefault(file.parent.name, _manifest(file))
    return sorted(manifests.values(), key=lambda one: (one.order, one.name))


def _manifest(file: Path) -> Manifest:
    """Return the manifest in a file. Raises ValueError, which says what it lacks."""
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        facts = dict(values.get("facts", {}))
        opens = tuple(map(str, values.get("opens", ())))
        return Manifest(file.parent, str(values["label"]), float(values["order"]), facts, opens)
    except KeyError as error:
        raise ValueError(f"{file} is not the manifest of a scene: it lacks {error}") from None
    except (AttributeError, OSError, TypeError, ValueError) as error:
        raise ValueError(f"{file} is not the manifest of a scene: {error}") from None


# ---- modules
#
# A host imports one module that has nothing beside it (anywidget's comes from a Blob URL), so the
# files follow each other, their imports of each other left out. Every top-level name is there once.
# Ours are sent without comments and spaces; the user's own stay as a debugger should show them.


def modules(*entries: str) -> tuple[str, ...]:
    """Return ``entries`` and every file that they need, each after those that it imports."""
    order: list[str] = []

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            raise ImportError(
                f"assets import each other in a circle: {' -> '.join(path)} -> {name}"
            )
        if name not in order:
            for needed in _imports(name):
                visit(needed, (*path, name))
            order.append(name)

    for entry in entries:
        visit(entry, ())
    return tuple(order)


def _imports(name: str) -> list[str]:
    """Return the assets that one imports. Raises ImportError where they could not be joined."""
    try:
        files = imported(asset(name).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ImportError(f"{asset(name)}: {error}") from None
    return [posixpath.normpath(posixpath.join(name, "..", file)) for file in files]


@cache
def joined(*entries: str) -> str:
    """Return ``entries`` and all their imports as one ES module.

    Raises ImportError if two files declare the same name: a browser would refuse the module
    without a visible error.
    """
    return _joined(modules(*entries))


def _joined(names: tuple[str, ...]) -> str:
    texts = {name: asset(name).read_text(encoding="utf-8") for name in names}
    for name, files in clashes(texts).items():
        raise ImportError(
            f"assets: {name} is declared in {' and in '.join(str(asset(file)) for file in files)}; "
            "rename one"
        )
    own = {name for name in names if not _is_ours(name)}
    parts = {name: without_imports(text) for name, text in texts.items()}
    return "".join(part if name in own else smaller(part) for name, part in parts.items())


def _is_ours(name: str) -> bool:
    """Return whether an asset is one of ours, not a file of the user's scenes."""
    return not any(asset(name).is_relative_to(root) for root in extensions.roots())


def stage_module() -> str:
    """Return the view with all scenes as one ES module with the default export ``{render}``.

    Raises ImportError as ``joined`` does, and where a scene.js does not export its scene.
    """
    manifests = [one for one in scene_manifests() if (one.folder / "scene.js").is_file()]
    named = tuple((one.name, one.label, one.order) for one in manifests)
    own = [file for root in extensions.roots() for file in sorted(root.glob("scenes/*/*.js"))]
    return _stage_module(named, tuple((str(file), file.stat().st_mtime_ns) for file in own))


@cache
def _stage_module(scenes: tuple[tuple[str, str, float], ...], _own: Any) -> str:
    """Return the module of these scenes (name, label, order). ``_own``: the user's files and when
    they were written, by which another module is made once they have changed.
    """
    files = {name: scene_file(name) for name, _, _ in scenes}
    for name, file in files.items():
        if f"{name}Scene" not in declared(asset(file).read_text(encoding="utf-8")):
            raise ImportError(f"{asset(file)} has to export {name}Scene: an object with build()")
    return _joined(modules(STAGE, *files.values())) + _registry(scenes)


def scene_file(name: str) -> str:
    """Return the asset that draws a scene."""
    return f"scenes/{name}/scene.js"


def _registry(scenes: tuple[tuple[str, str, float], ...]) -> str:
    """Return the end of the view's module: its scenes, and what a host renders."""
    rows = [
        f"  {{ ...{name}Scene, name: {json.dumps(name)}, label: {json.dumps(label)}, "
        f"order: {order:g} }}"
        for name, label, order in scenes
    ]
    return "export default hostOf([\n" + ",\n".join(rows) + ",\n]);\n"


_COMMENT = re.compile(r"\s*/\*.*?\*/", re.DOTALL)
_BLANK = re.compile(r"\s*([{};])\s*|\s{2,}")


@cache
def theme() -> str:
    """Return the view's style sheet, without comments and most blanks: each widget has it."""
    return _BLANK.sub(
        lambda blank: blank[1] or " ",
        _COMMENT.sub("", asset("chrome/theme.css").read_text(encoding="utf-8")),
    )
