"""The map of the sources' items: each is there once, and what is named exists."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

import workbench as wb
from tests.test_chapters import FOLDER, headings
from workbench.cli import app
from workbench.exercises.catalogue import exercises
from workbench.experiment.fields import Fields
from workbench.presets.catalogue import presets

ROOT = Path(__file__).parents[2]
MAP = ROOT / "docs" / "sources.md"
ITEMS = 205
# Items that nothing shows yet; of others the note says what is missing.
NOWHERE = set[int]()
CITED = {48, 96, 168}  # background: a sentence with its citation
ROWS = [
    [cell.strip() for cell in re.split(r" \| |^\| | \|$", line)[1:-1]]
    for line in MAP.read_text(encoding="utf-8").splitlines()
    if re.match(r"\| \d+ \| ", line)
]
SEEN = [row for row in ROWS if int(row[0]) not in NOWHERE | CITED]


def test_each_item_is_there_once_and_in_order() -> None:
    assert [int(row[0]) for row in ROWS] == [*range(1, ITEMS + 1)]
    assert all(len(row) == 4 for row in ROWS)


def test_what_is_seen_nowhere_says_why() -> None:
    assert {int(row[0]) for row in ROWS if row[2] == "–"} == NOWHERE
    assert {int(row[0]) for row in ROWS if row[2] == "here"} == CITED
    assert all(row[3] for row in ROWS if int(row[0]) in NOWHERE | CITED)


def unknown(where: str) -> list[str]:
    """Return the links, sections, presets, exercises and calls of a cell that do not exist."""
    bad, named = [], 0
    for link, section in re.findall(r"\]\(([^)]+)\)(?:, \*([^*]+)\*)?", where):
        path, named = (MAP.parent / link).resolve(), named + 1
        if not path.is_file():
            bad.append(link)
        elif section and not any(one.startswith(section) for one in headings(path)):
            bad.append(f"{link}: {section}")
    for text in re.findall(r"presets? (\*[^*]+\*(?: and \*[^*]+\*)*)", where):
        names = re.findall(r"\*([^*]+)\*", text)
        named += len(names)
        bad += [name for name in names if name not in presets()]
    for text in re.findall(r"exercise ([\d., ]*\d)", where):
        named += 1
        bad += [name for name in text.split(", ") if name not in exercises()]
    for code in re.findall(r"`([^`]+)`", where):
        named += 1
        if not _exists(code):
            bad.append(code)
    if "SageMaker's words" in where:
        named += "## SageMaker's words beside ours" in MAP.read_text(encoding="utf-8")
    return bad if named else [f"nothing is named: {where}"]


def _exists(code: str) -> bool:
    """Return whether a call is one of ours: of the command line, of Python, or an option."""
    if code.startswith("workbench "):
        commands = {one.name or one.callback.__name__ for one in app.registered_commands}  # type: ignore[union-attr]
        return code.split()[1] in commands
    if code.startswith("workbench."):
        module, _, name = code.rpartition(".")
        return hasattr(importlib.import_module(module), name)
    expression = ast.parse(code, mode="eval").body
    if isinstance(expression, ast.Call) and ast.unparse(expression.func) == "Experiment":
        return all(_is_field(one) for one in expression.keywords)
    head, _, name = code.removesuffix("()").split("(")[0].partition(".")
    return hasattr({"wb": wb, "run": wb.Run}[head], name.split(".")[0])


def _is_field(keyword: ast.keyword) -> bool:
    folders = {"strategy": "strategies", "task": "tasks", "launcher": "launchers"}
    if keyword.arg not in Fields.model_fields:
        return False
    folder = folders.get(keyword.arg or "")
    file = f"{ast.literal_eval(keyword.value)}.py" if folder else ""
    return not folder or (ROOT / "workbench" / folder / file).is_file()


@pytest.mark.parametrize("number", [24, 77, 137, 140, 199, 203])
def test_what_some_items_name_exists(number: int) -> None:
    assert unknown(ROWS[number - 1][2]) == []


def test_what_every_item_names_exists() -> None:
    bad = {row[0]: wrong for row in SEEN if (wrong := unknown(row[2]))}
    assert bad == {}


@pytest.mark.parametrize(
    "where",
    [
        "[99](../notebooks/99_nowhere.ipynb)",
        "[1](../notebooks/01_ring_all_reduce.ipynb), *No such section*",
        "the preset *No such preset*",
        "exercise 99.9",
        "`wb.nothing`",
        '`Experiment(strategy="no_such_strategy")`',
        "`Experiment(nothing=1)`",
        "`workbench nothing`",
        "a chapter",
    ],
)
def test_what_does_not_exist_is_found(where: str) -> None:
    assert unknown(where)


def test_every_chapter_is_in_the_map() -> None:
    text = MAP.read_text(encoding="utf-8")
    start = "00_start_here.ipynb"
    chapters = {path.name for path in FOLDER.glob("*.ipynb")} - {start}
    assert {name for name in chapters if f"notebooks/{name})" not in text} <= {
        "22_a_wrong_update_without_an_error.ipynb",  # beyond the sources, as the others are
        "08c_bugs_that_still_learn.ipynb",
        "06c_a_pipeline_that_never_drains.ipynb",
        "07_write_your_own_schedule.ipynb",
    }
