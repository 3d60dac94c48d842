"""What a notebook must not keep: outputs that say the wrong thing to a reader without a kernel.

    faults(notebook)   one sentence for each output that must not be stored, [] if all is well

* The sentence of a page without anywidget is for a reader who sits before that page.
* A study that found the machine busy asks to be measured again.
* The still of a run whose network, computing or ranks are slowed on purpose says *emulated*.

Which runs those are is read from the cells' text: a name is emulated if its value mentions a pad,
a network or a slow rank, or another such name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from tests.stale_chapters import MAGIC
from workbench.studies.speed_up.words import DISTURBED
from workbench.views.pages.widget import ABSENT

STILL = "image/svg+xml"
OPTIONS = {"network", "pad_compute", "pad_environment", "pad_update"}  # of an experiment
CALLS = {"Freeze", "Jitter", "Link", "Network", "Slow"}
SHOWN = ("wb.run", "wb.side_by_side")
WORD = "emulated"


def faults(notebook: dict[str, Any]) -> list[str]:
    """Return a sentence for each stored output that must not be there."""
    return [*_said(notebook), *_silent(notebook)]


def _said(notebook: dict[str, Any]) -> Iterator[str]:
    for at, _, output in _outputs(notebook):
        text = _text(output.get("text", "")) + "".join(map(_text, output.get("data", {}).values()))
        if ABSENT in text:
            yield f"cell {at} keeps the sentence of a page without anywidget"
        if DISTURBED in text:
            yield f"cell {at} keeps a study that found the machine busy: record it again"


def _silent(notebook: dict[str, Any]) -> Iterator[str]:
    shown = dict(emulated_stills(notebook))
    for at, _, output in _outputs(notebook):
        still = _text(output.get("data", {}).get(STILL, ""))
        if at in shown and still and WORD not in still:
            yield f"cell {at} shows {shown[at]}, which is {WORD}, and its picture does not say so"


def emulated_stills(notebook: dict[str, Any]) -> Iterator[tuple[int, str]]:
    """Yield each cell that shows a run with something emulated, and the text that shows it."""
    emulated: set[str] = set()
    runs: set[str] = set()
    for at, cell in enumerate(notebook["cells"]):
        source = _text(cell["source"])
        if cell["cell_type"] != "code" or source.lstrip().startswith("%%"):
            continue
        body = ast.parse(MAGIC.sub("", source)).body
        for statement in body:
            _follow(statement, emulated, runs)
        shown = body and isinstance(body[-1], ast.Expr) and _run_shown(body[-1].value, runs)
        if shown and _is_emulated(shown, emulated):
            yield at, ast.unparse(shown)


def _follow(statement: ast.stmt, emulated: set[str], runs: set[str]) -> None:
    """Keep the names of emulated experiments, and those of runs, as a statement changes them."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.For):
            targets, value = [node.target], node.iter
        elif isinstance(node, ast.FunctionDef):
            targets, value = [ast.Name(node.name)], node
        else:
            continue
        for target in targets:
            for names, holds in ((emulated, _is_emulated(value, emulated)), (runs, _is_run(value))):
                if holds:
                    names.add(_base(target))
                elif isinstance(target, ast.Name):  # an item of several says nothing of the others
                    names.discard(target.id)


def _is_run(value: ast.AST) -> bool:
    calls = (node for node in ast.walk(value) if isinstance(node, ast.Call))
    return any(ast.unparse(call.func) in SHOWN for call in calls)


def _run_shown(value: ast.expr, runs: set[str]) -> ast.expr | None:
    """Return the run that an expression shows as a picture: ``run``, ``run.view("server")``."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr == "view":
            return value.func.value
        return value if ast.unparse(value.func) in SHOWN else None
    return value if _base(value) in runs and not isinstance(value, ast.Attribute) else None


def _is_emulated(value: ast.AST, emulated: set[str]) -> bool:
    return any(_names_one(node, emulated) for node in ast.walk(value))


def _names_one(node: ast.AST, emulated: set[str]) -> bool:
    match node:
        case ast.keyword(value=ast.Constant(value=None)):
            return False
        case ast.keyword(arg=option):
            return option in OPTIONS
        case ast.Dict(keys=keys):
            return any(isinstance(key, ast.Constant) and key.value in OPTIONS for key in keys)
        case ast.Call(func=called):
            return ast.unparse(called).removeprefix("wb.") in CALLS
        case ast.Name(id=name):
            return name in emulated
    return False


def _base(target: ast.expr) -> str:
    """Return the name that a target begins with: ``runs`` of ``runs[name]``."""
    while isinstance(target, ast.Subscript | ast.Attribute):
        target = target.value
    return target.id if isinstance(target, ast.Name) else ""


def _outputs(notebook: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any], dict[str, Any]]]:
    for at, cell in enumerate(notebook["cells"]):
        for output in cell.get("outputs", ()):
            yield at, cell, output


def _text(data: Any) -> str:
    if isinstance(data, list):
        return "".join(map(_text, data))
    return data if isinstance(data, str) else ""
