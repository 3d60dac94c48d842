"""What a notebook must not keep, and that the stored ones keep none of it."""

from __future__ import annotations

import ast
import json
import re
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest

from tests.notebook_gates import faults
from tests.notebooks import clean
from workbench.studies.speed_up.words import DISTURBED
from workbench.views.pages.widget import ABSENT

CHAPTERS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))
JOB = "job = wb.Experiment(ranks=2{})"


def notebook(*sources: str, **data: str) -> dict[str, Any]:
    """Return a notebook of these cells, the last of which has an output of these data."""
    cells = [{"cell_type": "code", "source": source, "outputs": []} for source in sources]
    cells[-1]["outputs"] = [{"output_type": "display_data", "data": data, "metadata": {}}]
    return {"cells": cells}


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_stored_notebooks_keep_nothing_that_is_wrong(path: Path) -> None:
    kept = faults(json.loads(path.read_text(encoding="utf-8")))
    assert kept == [], f"python -m tests.notebooks {path.name}"


def absent_names(notebook: dict[str, Any]) -> list[str]:
    """Return the names of ours that cells import, or take from a module of ours, and that are not
    there: ``make test`` does not run every chapter.
    """
    modules, absent = dict[str, ModuleType](), list[str]()
    sources = ("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")
    for source in sources:
        if source.lstrip().startswith("%%"):  # code of ranks
            continue
        tree = ast.parse(re.sub(r"(?m)^(\s*)[%!].*$", r"\1pass", source))
        for node in ast.walk(tree):
            absent += _bind(node, modules)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                module = modules.get(node.value.id)
                if module is not None and not hasattr(module, node.attr):
                    absent.append(f"{module.__name__}.{node.attr}")
    return absent


def _bind(node: ast.AST, modules: dict[str, ModuleType]) -> list[str]:
    """Note the modules of ours that an import binds; return the names that are not there."""
    absent = []
    for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
        within = getattr(node, "module", None)
        whole = f"{within}.{alias.name}" if within else alias.name
        if whole.partition(".")[0] != "workbench":
            continue
        bound: Any = None
        with suppress(ImportError):
            bound = getattr(import_module(within), alias.name, None) if within else None
        with suppress(ImportError):
            bound = import_module(whole) if bound is None else bound
        if bound is None:
            absent.append(whole)
        elif isinstance(bound, ModuleType):
            modules[alias.asname or alias.name] = bound
    return absent


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_all_names_of_ours_in_a_chapter_are_there(path: Path) -> None:
    assert absent_names(json.loads(path.read_text(encoding="utf-8"))) == []


def test_a_name_that_is_not_there_is_told() -> None:
    code = "import workbench as wb\nfrom workbench.strategies import ddp\nwb.run, ddp._no_such_hook"
    assert absent_names(notebook(code)) == ["workbench.strategies.ddp._no_such_hook"]
    more = "from workbench.strategies.ddp import nothing\nfrom workbench import theory"
    assert absent_names(notebook(more)) == ["workbench.strategies.ddp.nothing"]


def test_the_sentence_of_a_page_without_anywidget_is_refused_and_dropped() -> None:
    book = notebook("run", **{"text/html": f"<p>{ABSENT}</p><img>", "image/svg+xml": "<svg/>"})
    assert "anywidget" in faults(book)[0]
    book["cells"][-1]["metadata"] = {}
    whole = nbformat.from_dict({**book, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    clean(whole)
    assert faults(whole) == [] and whole.cells[0].outputs[0].data["text/html"] == "<img>"


def test_a_warning_is_refused() -> None:
    book = notebook("wb.run(job)")
    text = "/tmp/1.py:2: UserWarning: grace has no effect"
    book["cells"][0]["outputs"] = [{"output_type": "stream", "name": "stderr", "text": [text]}]
    assert faults(book) == ["cell 0 keeps a warning, with a path of this machine: mend the cell"]


def test_a_study_that_found_the_machine_busy_is_refused() -> None:
    text = f"2 of 2 runs done\n{DISTURBED}: ranks waited for one 56% of the time."
    assert "busy" in faults(notebook("found", **{"text/plain": text}))[0]
    stream = notebook("print(found)")
    stream["cells"][0]["outputs"] = [{"output_type": "stream", "text": text.splitlines(True)}]
    assert "busy" in faults(stream)[0]


@pytest.mark.parametrize(
    ("word", "sources"),
    [
        ("padded", (JOB.format(", pad_compute='5 ms'"), "run = wb.run(job)\nrun.view('server')")),
        (
            "emulated",
            (JOB.format(""), "run = wb.run(job.replace(network=wb.Network(latency='1 ms')))\nrun"),
        ),
        ("slowed", ("job = wb.Experiment(faults=wb.Slow(rank=1, factor=3))", "wb.run(job)")),
        (
            "padded",
            ("def a():\n    return wb.Experiment(**{'pad_compute': 1})", "wb.run(a()).view()"),
        ),
        (
            "emulated",
            (
                "links = wb.Network(latency='1 ms')\nruns = {}",
                "for a in (1, 2):\n    runs[a] = wb.run(wb.Experiment(network=links))",
                "runs[1].view()",
            ),
        ),
        (
            "padded",
            (JOB.format(", pad_compute='5 ms'"), "pair = wb.side_by_side(wb.run(job), two)\npair"),
        ),
    ],
)
def test_the_still_of_a_run_that_is_slowed_on_purpose_says_so(
    word: str, sources: tuple[str, ...]
) -> None:
    (fault,) = faults(notebook(*sources, **{"image/svg+xml": "<svg>a run</svg>"}))
    assert word in fault and f"cell {len(sources) - 1}" in fault
    assert faults(notebook(*sources, **{"image/svg+xml": f"<svg>{word}: 5 ms</svg>"})) == []


@pytest.mark.parametrize(
    "sources",
    [
        (JOB.format(", pad_compute=None"), "run = wb.run(job)\nrun.view('server')"),
        (JOB.format(", pad_compute='5 ms'"), "run = wb.run(job)\nrun.figure('bytes')"),
        (JOB.format(", pad_compute='5 ms'"), JOB.format(""), "wb.run(job)"),
        (JOB.format(", pad_compute='5 ms'"), "found = wb.compare({'a': job})\nfound"),
    ],
)
def test_other_pictures_need_not(sources: tuple[str, ...]) -> None:
    assert faults(notebook(*sources, **{"image/svg+xml": "<svg>a run</svg>"})) == []
