"""The architecture that ARCHITECTURE.md draws: layers of packages, and no circle of imports."""

from __future__ import annotations

import ast
import functools
import posixpath
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "workbench"
ASSETS = ROOT / "assets"
FACE = {"__init__", "cli", "_on_torch", "_autoload"}  # modules that are in no package


def packages(number: int = 0) -> list[str]:
    """Return the packages that a list in ARCHITECTURE.md names, lowest first: Python's, or the
    front end's folders.
    """
    block = (ROOT / "ARCHITECTURE.md").read_text().split("```text\n")[number + 1].split("```")[0]
    return re.findall(r"^(\w+)/", block, re.M)


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_of(path): path for path in PACKAGE.rglob("*.py")}


def imports(text: str) -> Iterator[str]:
    """Yield the modules of the package that ``text`` imports: anywhere in it, for types too."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            whole = [f"{node.module}.{name.name}" for name in node.names]
            yield from (name if name in MODULES else node.module for name in whole)


@functools.cache
def graph() -> dict[str, set[str]]:
    """Return what each module of the package imports."""
    return {
        module: {name for name in imports(path.read_text()) if name != module}
        for module, path in MODULES.items()
    }


def upward(graph: dict[str, set[str]]) -> list[str]:
    """Return the imports that lead from a package to a higher one."""
    order = {package: floor for floor, package in enumerate(packages())}
    package = {module: module.split(".")[1] for module in graph if "." in module}
    return [
        f"{module} -> {name}"
        for module, names in graph.items()
        for name in names
        if package.get(module) in order
        and order[package[module]] < order.get(package.get(name, ""), len(order))
    ]


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Return the modules of a circle; [] where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_every_folder_is_a_package_and_only_the_face_stays_flat() -> None:
    assert sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py")) == sorted(packages())
    assert {path.stem for path in PACKAGE.glob("*.py")} == FACE


def test_packages_import_lower_packages_only() -> None:
    assert upward(graph()) == []


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    assert circle(graph()) == []


def test_an_upward_import_and_a_circle_are_found() -> None:
    bad = graph() | {"workbench.common.errors": {"workbench.store.table"}}
    assert upward(bad) == ["workbench.common.errors -> workbench.store.table"]
    assert circle(bad)


@pytest.mark.parametrize("package", packages())
def test_every_package_says_what_it_is(package: str) -> None:
    text = ast.get_docstring(ast.parse((PACKAGE / package / "__init__.py").read_text()))
    assert text and text != "To be described."


# ---- sizes: where a module or a function grows past these, there is another idea in it

LONGEST_MODULE, LONGEST_FUNCTION, MEDIAN_MODULE = 400, 60, 120  # lines


def overlong(texts: dict[str, str]) -> list[str]:
    """Return the modules and functions that are too long, with their lines."""
    bad = []
    for module, text in texts.items():
        if (lines := text.count("\n")) > LONGEST_MODULE:
            bad.append(f"{module}: {lines} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > LONGEST_FUNCTION:
                    bad.append(f"{module}.{node.name}: {lines} lines")
    return bad


def test_modules_and_functions_are_of_one_idea() -> None:
    texts = {module: path.read_text() for module, path in MODULES.items()}
    assert overlong(texts) == []
    assert median(text.count("\n") for text in texts.values()) <= MEDIAN_MODULE


def test_what_is_too_long_is_found() -> None:
    function = "def long() -> None:\n" + "    pass\n" * LONGEST_FUNCTION
    texts = {"a": "x = 1\n" * (LONGEST_MODULE + 1), "b": f"class Long:\n    x = 1\n\n\n{function}"}
    assert overlong(texts) == ["a: 401 lines", "b.long: 61 lines"]
    assert (
        overlong({"a": "x = 1\n" * LONGEST_MODULE, "b": function.removesuffix("    pass\n")}) == []
    )


# ---- the front end

TWO_OF = ("scenes/pair/scene.js", "scenes/collectives/scene.js")  # side by side: two views of one


def front_end() -> dict[str, str]:
    return {path.relative_to(ASSETS).as_posix(): path.read_text() for path in ASSETS.rglob("*.js")}


def js_imports(file: str, text: str) -> set[str]:
    """Return the files that one imports, for types too."""
    named = re.findall(r"""(?:\bfrom |\bimport\()["'](\.[^"']+)["']""", text)
    return {posixpath.normpath(posixpath.join(file, "..", name)) for name in named}


def misplaced(texts: dict[str, str]) -> list[str]:
    """Return the imports of the front end that lead up, from scene to scene, or out of widgets."""
    floors, bad = packages(1), []
    for file, text in texts.items():
        for needed in js_imports(file, text):
            ours, theirs = file.split("/"), needed.split("/")
            own = ours[:-1] == theirs[:-1]
            lower = floors.index(theirs[0]) < floors.index(ours[0]) and ours[0] != "widgets"
            if not (own or lower or (file, needed) == TWO_OF):
                bad.append(f"{file} -> {needed}")
    return bad


def test_the_front_end_has_layers_and_its_scenes_stand_alone() -> None:
    texts = front_end()
    assert sorted({file.split("/")[0] for file in texts}) == sorted(packages(1))
    assert misplaced(texts) == []
    graph = {file: js_imports(file, text) for file, text in texts.items()}
    assert not [name for names in graph.values() for name in names if name not in texts]


def test_an_import_to_a_higher_layer_or_another_scene_is_found() -> None:
    texts = {
        "engine/player.js": '@typedef {import("../scenes/server/frame.js").Rule} Rule',
        "scenes/peers/draw.js": 'import {\n  a,\n} from "../server/index.js";',
        "scenes/model/draw.js": 'import { a } from "../../engine/table.js";',
        "widgets/chart.js": 'import { a } from "../engine/table.js";',
    }
    assert misplaced(texts) == [
        "engine/player.js -> scenes/server/frame.js",
        "scenes/peers/draw.js -> scenes/server/index.js",
        "widgets/chart.js -> engine/table.js",
    ]


LINES = 400  # of a module at most: longer, it holds another idea


def long_modules(texts: dict[str, str]) -> dict[str, int]:
    """Return the modules of the front end that are too long, with their lines; not what others
    wrote.
    """
    lines = {file: text.count("\n") for file, text in texts.items()}
    return {
        file: many
        for file, many in lines.items()
        if many > LINES and not file.startswith("vendor/")
    }


def test_no_module_of_the_front_end_is_long() -> None:
    tests = {path.name: path.read_text() for path in (ROOT / "tests" / "js").glob("*.*js")}
    assert len(tests) > 50
    assert long_modules(front_end() | tests) == {}


def test_a_long_module_is_found() -> None:
    texts = {"scenes/peers/draw.js": "\n" * 401, "scenes/peers/index.js": "\n" * 400}
    assert long_modules(texts | {"vendor/dagre.js": "\n" * 9000}) == {"scenes/peers/draw.js": 401}
