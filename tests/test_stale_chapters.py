"""The report of chapters that are older than the code that they show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.stale_chapters import KEY, digests, report, stale

FILES = {
    "workbench/strategies/far.py": "def train(job):\n    return 1\n",
    "workbench/strategies/near.py": "def train(job):\n    return 2\n",
    "workbench/theory/cost.py": '"""Costs."""\n\ndef cost():\n    """Return it."""\n    return 3\n',
    "workbench/views/stills/svg.py": "WIDTH = 9\n",
}
CELL = 'from workbench.theory import cost\n\nwb.Experiment(strategy="far")'


def cell(source: str, **data: str) -> dict[str, Any]:
    return {"cell_type": "code", "source": source, "outputs": [{"data": data}]}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small repository, with a chapter that was executed a moment ago."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    write(tmp_path, cell("%%ranks 2\nx ="), cell(CELL, **{"image/svg+xml": "<svg/>"}))
    return tmp_path


def write(root: Path, *cells: dict[str, Any], code: object = None) -> None:
    """Write the chapter; ``code``: the digests it keeps, by default those of now."""
    book: dict[str, Any] = {"cells": cells, "metadata": {}}
    book["metadata"] = {KEY: {"code": code or digests(book, root)}}
    (root / "01_a.ipynb").write_text(json.dumps(book))


def change(root: Path, name: str, old: str, new: str) -> list[str] | None:
    """Change a file that has ``old``; return what the chapter then is older than."""
    text = (root / name).read_text()
    assert old in text
    (root / name).write_text(text.replace(old, new))
    digests.__globals__["_digest"].cache_clear()
    return stale(root, root).get("01_a.ipynb")


def test_a_chapter_is_as_new_as_its_code_when_it_was_executed(root: Path) -> None:
    assert stale(root, root) == {}
    assert report(root, root) == "Every chapter is as new as the code that it shows."


@pytest.mark.parametrize("name", [name for name in FILES if "near" not in name])
def test_it_is_old_when_code_has_changed_that_it_shows(root: Path, name: str) -> None:
    number = next(one for one in "139" if one in FILES[name])
    assert change(root, name, number, "7") == [name]
    assert f"01_a.ipynb: {name}" in report(root, root)


def test_neither_words_nor_other_code_make_it_old(root: Path) -> None:
    assert (
        change(root, "workbench/theory/cost.py", '"""Return it."""', '"""Return the cost."""')
        is None
    )
    assert change(root, "workbench/theory/cost.py", "return 3", "return (3)  # a comment") is None
    assert change(root, "workbench/strategies/near.py", "2", "5") is None


def test_it_is_old_when_its_own_cells_have_changed(root: Path) -> None:
    kept = json.loads((root / "01_a.ipynb").read_text())["metadata"][KEY]["code"]
    pictured = {"image/svg+xml": "<svg/>"}
    write(root, cell("%%ranks 2\nx ="), cell(CELL + "\n", **pictured), code=kept)
    assert stale(root, root) == {}
    write(root, cell("%%ranks 3\nx ="), cell(CELL, **pictured), code=kept)
    assert stale(root, root) == {"01_a.ipynb": ["its cells"]}


def test_a_chapter_that_keeps_no_digests_is_named(root: Path) -> None:
    (root / "01_a.ipynb").write_text(json.dumps({"cells": [], "metadata": {}}))
    assert "01_a.ipynb: not known" in report(root, root)


def test_the_chapters_themselves_are_read() -> None:
    folder = Path(__file__).parent.parent / "notebooks"
    for path in folder.glob("*.ipynb"):
        parts = digests(json.loads(path.read_text(encoding="utf-8")))
        assert len(parts) > 1 or path.name[:2] in ("00", "20"), f"{path.name} shows no code of ours"
