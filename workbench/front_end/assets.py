"""The front end's own files: beside the package in a wheel, in ``assets/`` of a checkout; and the
scenes of the user's own (extensions.py), whose files stand as if they were among ours.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from workbench.common import extensions
from workbench.front_end.javascript import Bundle, bundle, needed
from workbench.front_end.smaller_javascript import smaller

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

    @property
    def walk(self) -> dict[str, Any]:
        """Return the marks and the steps of the scene's guided walk, walk.json; {} without one."""
        return _walk(self.folder / "walk.json")


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


@cache
def _walk(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else {}


def _packed(walk: dict[str, Any]) -> str:
    """Return a walk as JavaScript; "null" for none."""
    return json.dumps(walk or None, separators=(",", ":"), ensure_ascii=False)


# ---- modules
#
# Ours are sent without comments and spaces; the user's own stay as a debugger should show them.


def modules(*entries: str) -> dict[str, str]:
    """Return the texts of ``entries`` and of every file that they need, each after those that it
    imports. Raises ImportError where they could not be joined.
    """
    return needed(entries, lambda name: asset(name).read_text(encoding="utf-8"))


@cache
def joined(entry: str) -> str:
    """Return ``entry`` and all its imports as one ES module. Raises ImportError as ``modules``."""
    return _joined(entry).exporting(entry)


def _joined(*entries: str) -> Bundle:
    return bundle(
        modules(*entries), entries, lambda name, text: smaller(text) if _is_ours(name) else text
    )


def _is_ours(name: str) -> bool:
    """Return whether an asset is one of ours, not a file of the user's scenes."""
    return not any(asset(name).is_relative_to(root) for root in extensions.roots())


def stage_module() -> str:
    """Return the view with all scenes as one ES module with the default export ``{render}``.

    Raises ImportError as ``joined`` does, and where a scene.js does not export its scene.
    """
    manifests = [one for one in scene_manifests() if (one.folder / "scene.js").is_file()]
    named = tuple((one.name, one.label, one.order, _packed(one.walk)) for one in manifests)
    own = [file for root in extensions.roots() for file in sorted(root.glob("scenes/*/*.js"))]
    return _stage_module(named, tuple((str(file), file.stat().st_mtime_ns) for file in own))


@cache
def _stage_module(scenes: tuple[tuple[str, str, float, str], ...], _own: Any) -> str:
    """Return the module of these scenes (name, label, order, walk). ``_own``: the user's files
    and when they were written, by which another module is made once they have changed.
    """
    all_joined = _joined(STAGE, *(scene_file(name) for name, *_ in scenes))
    rows = []
    for name, label, order, walk in scenes:
        file = scene_file(name)
        if f"{name}Scene" not in all_joined.offers[file]:
            raise ImportError(f"{asset(file)} has to export {name}Scene: an object with build()")
        own = f"...{all_joined.ids[file]}.{name}Scene, name: {json.dumps(name)}"
        rows.append(f"  {{ {own}, label: {json.dumps(label)}, order: {order:g}, walk: {walk} }}")
    host = f"{all_joined.ids[STAGE]}.hostOf"
    return all_joined.text + f"export default {host}([\n" + ",\n".join(rows) + ",\n]);\n"


def scene_file(name: str) -> str:
    """Return the asset that draws a scene."""
    return f"scenes/{name}/scene.js"


_COMMENT = re.compile(r"\s*/\*.*?\*/", re.DOTALL)
_BLANK = re.compile(r"\s*([{};,>])\s*|(?<=:)\s+|\s{2,}")


@cache
def theme() -> str:
    """Return the view's style sheet, without comments and most blanks: each widget has it."""
    return _BLANK.sub(
        lambda blank: blank[1] or ("" if blank.string[blank.start() - 1] == ":" else " "),
        _COMMENT.sub("", asset("chrome/theme.css").read_text(encoding="utf-8")),
    )
