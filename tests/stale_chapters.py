"""Which chapters are older than the code that they show.

    python -m tests.notebooks --stale

When a chapter is executed, its metadata keep a digest of each thing that its outputs follow from:
its own cells; the modules of the workbench that its cells import; the strategies, algorithms,
schedules, policies and tasks that they name; and what draws its stored pictures. A digest is of the
syntax tree without docstrings, so that no comment, word or line break makes a chapter old.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
NAMED = ("collectives", "consistency", "recovery", "schedules", "strategies", "tasks")
KEY, CELLS, DRAWN = "workbench", "its cells", "image/svg+xml"
MAGIC = re.compile(r"^\s*[%!].*$", re.M)


def digests(notebook: dict[str, Any], root: Path = ROOT) -> dict[str, str]:
    """Return a digest of each thing that the notebook's outputs follow from, by its name: "its
    cells", or a path in the repository.
    """
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    trees = [_parsed("".join(cell["source"])) for cell in cells]
    result = {CELLS: _short("\n".join(map(_bare, trees)))}
    kinds = {kind for cell in cells for out in cell["outputs"] for kind in out.get("data", ())}
    paths = {*_imported(trees, root), *_named(trees, root)}
    if DRAWN in kinds:
        paths |= {*(root / "workbench/views/stills").glob("*.py")}
    for path in sorted(paths):
        result[path.relative_to(root).as_posix()] = _digest(path)
    return result


def stale(folder: Path, root: Path = ROOT) -> dict[str, list[str]]:
    """Return the names of what has changed since each notebook was executed; a notebook that was
    executed before digests were kept has [].
    """
    result = {}
    for path in sorted(folder.glob("*.ipynb")):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        kept = notebook["metadata"].get(KEY, {}).get("code")
        if kept is None:
            result[path.name] = []
        elif changed := _changed(kept, digests(notebook, root)):
            result[path.name] = changed
    return result


def report(folder: Path, root: Path = ROOT) -> str:
    """Return the same as lines."""
    lines = [
        f"{name}: {', '.join(changed) if changed else 'not known'}"
        for name, changed in stale(folder, root).items()
    ]
    if not lines:
        return "Every chapter is as new as the code that it shows."
    head = "Chapters that are older than their code, and what has changed since they were executed:"
    return "\n".join([head, *(f"  {line}" for line in lines), "make notebooks runs them again."])


def _changed(kept: dict[str, str], now: dict[str, str]) -> list[str]:
    return [name for name in sorted({*kept, *now}) if kept.get(name) != now.get(name)]


def _imported(trees: Iterable[ast.AST], root: Path) -> Iterator[Path]:
    for node in (node for tree in trees for node in ast.walk(tree)):
        if not isinstance(node, ast.ImportFrom) or node.level:
            continue
        parts = (node.module or "").split(".")
        if parts[0] == "workbench":
            place = root.joinpath(*parts)
            inner = [place / f"{one.name}.py" for one in node.names]
            yield from filter(Path.is_file, [*inner, place.with_suffix(".py")])


def _named(trees: Iterable[ast.AST], root: Path) -> Iterator[Path]:
    texts = {
        node.value
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    for folder in NAMED:
        for path in (root / "workbench" / folder).glob("*.py"):
            if path.stem in texts or path.stem.removeprefix("all_reduce_") in texts:
                yield path


@cache
def _digest(path: Path) -> str:
    return _short(_bare(_parsed(path.read_text(encoding="utf-8"))))


def _parsed(text: str) -> ast.AST:
    """Return the syntax tree of a cell or file; a cell magic's own text is one constant."""
    if text.lstrip().startswith("%%"):
        return ast.parse(f"magic = {text!r}")
    return ast.parse(MAGIC.sub("", text))


def _bare(tree: ast.AST) -> str:
    """Return the tree as text, without docstrings."""
    holders = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if not isinstance(node, holders) or not node.body:
            continue
        first = node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.dump(tree)


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
