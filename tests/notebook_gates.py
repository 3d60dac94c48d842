"""What a notebook must not keep: outputs that say the wrong thing to a reader without a kernel.

    faults(notebook)   one sentence for each output that must not be stored, [] if all is well

* The sentence of a page without anywidget is for a reader who sits before that page.
* A study that found the machine busy asks to be measured again.
* A warning is for the person who runs the cell, and names a file of that machine.
* The still of a run whose links are emulated, whose computing is padded, or whose ranks are slowed
  on purpose says so, in these words.

Which runs those are is read from the cells' text: a name is of such a run if its value mentions a
network, a pad or a slow rank, or another such name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from tests.stale_chapters import MAGIC
from workbench.studies.speed_up.words import DISTURBED
from workbench.views.pages.widget import ABSENT

STILL = "image/svg+xml"
WARNING = "Warning: "
WORDS = {  # by an option or a call in a cell -> the word in the still
    "network": "emulated",
    "Network": "emulated",
    "Link": "emulated",
    "pad_compute": "padded",
    "Slow": "slowed",
    "Jitter": "slowed",
}
OnPurpose = dict[str, set[str]]  # name -> words
SHOWN = ("wb.run", "wb.side_by_side")


def faults(notebook: dict[str, Any]) -> list[str]:
    """Return a sentence for each stored output that must not be there."""
    return [*_sentences(notebook), *_silent(notebook)]


def _sentences(notebook: dict[str, Any]) -> Iterator[str]:
    for at, _, output in _outputs(notebook):
        text = _text(output.get("text", "")) + "".join(map(_text, output.get("data", {}).values()))
        if ABSENT in text:
            yield f"cell {at} keeps the sentence of a page without anywidget"
        if WARNING in text:
            yield f"cell {at} keeps a warning, with a path of this machine: mend the cell"
        if DISTURBED in text:
            yield f"cell {at} keeps a study that found the machine busy: record it again"


def _silent(notebook: dict[str, Any]) -> Iterator[str]:
    shown = dict(slowed_stills(notebook))
    for at, _, output in _outputs(notebook):
        still = _text(output.get("data", {}).get(STILL, ""))
        for word in sorted(shown.get(at, ())) if still else ():
            if word not in still:
                yield f"cell {at} shows a run that is {word}, and its picture does not say so"


def slowed_stills(notebook: dict[str, Any]) -> Iterator[tuple[int, set[str]]]:
    """Yield each cell that shows a run that was slowed on purpose, and what its still must say."""
    causes: OnPurpose = {}
    runs: set[str] = set()
    for at, cell in enumerate(notebook["cells"]):
        source = _text(cell["source"])
        if cell["cell_type"] != "code" or source.lstrip().startswith("%%"):
            continue
        body = ast.parse(MAGIC.sub("", source)).body
        for statement in body:
            _follow(statement, causes, runs)
        shown = body and isinstance(body[-1], ast.Expr) and _run_shown(body[-1].value, runs)
        if shown and (words := _words(shown, causes)):
            yield at, words


def _follow(statement: ast.stmt, causes: OnPurpose, runs: set[str]) -> None:
    """Keep what slows each name's run, and which names are runs, as a statement changes it."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.For):
            targets, value = [node.target], node.iter
        elif isinstance(node, ast.FunctionDef):
            targets, value = [ast.Name(node.name)], node
        else:
            continue
        words, is_run = _words(value, causes), _is_run(value)
        for target in targets:
            name = _base(target)
            is_whole = isinstance(target, ast.Name)  # an item says nothing of the others
            causes[name] = words if is_whole else causes.get(name, set()) | words
            if is_run:
                runs.add(name)
            elif is_whole:
                runs.discard(name)


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


def _words(value: ast.AST, causes: OnPurpose) -> set[str]:
    return {word for node in ast.walk(value) for word in _of(node, causes)}


def _of(node: ast.AST, causes: OnPurpose) -> Iterator[str]:
    match node:
        case ast.keyword(arg=str(option), value=given) if not _is_none(given):
            names = [option]
        case ast.Dict(keys=keys):
            names = [str(key.value) for key in keys if isinstance(key, ast.Constant)]
        case ast.Call(func=called):
            names = [ast.unparse(called).removeprefix("wb.")]
        case ast.Name(id=name):
            yield from causes.get(name, ())
            return
        case _:
            return
    yield from (WORDS[name] for name in names if name in WORDS)


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


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
