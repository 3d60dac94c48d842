"""The reader's copies of the chapters: cleared, and never overwritten where the reader wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests import notebook_files
from workbench.cli import FIRST_NOTEBOOK, find_notebook
from workbench.interface.chapter_copies import KEPT, bring

NAME = "01_a.ipynb"


def release(folder: Path, text: str, name: str = NAME) -> Path:
    """Write a chapter as a release has it: executed."""
    folder.mkdir(exist_ok=True)
    notebook_files.write(folder / name, [text])
    book = read(folder / name)
    book["metadata"]["workbench"] = {"seconds": 5}
    book["cells"][0]["metadata"]["jupyter"] = {"source_hidden": True}
    _run(folder / name, book, "the result")
    return folder


def _run(path: Path, book: dict[str, Any], shown: str) -> None:
    output = {"output_type": "stream", "name": "stdout", "text": shown}
    book["cells"][0] |= {"execution_count": 3, "outputs": [output]}
    path.write_text(json.dumps(book))


def read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text()))


def source(path: Path) -> str:
    return "".join(read(path)["cells"][0]["source"])


def edit(path: Path, text: str | None = None) -> None:
    """Run a copy, as a reader does; with ``text``, edit it as well."""
    book = read(path)
    if text is not None:
        book["cells"][0]["source"] = text
    _run(path, book, "the reader's result")


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """The reader's folder, into which a first release was brought."""
    assert bring(release(tmp_path / "notebooks", "x = 1"), tmp_path / "mine")
    return tmp_path / "mine"


def test_of_two_checkouts_the_chapters_are_those_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package that is installed may be another clone's, whose chapters the user has not asked
    for.
    """
    chapters = release(tmp_path / "notebooks", "x = 1", FIRST_NOTEBOOK)
    assert find_notebook().parent == Path(wb.__file__).parents[1] / "notebooks"
    monkeypatch.chdir(tmp_path)
    assert find_notebook() == chapters / FIRST_NOTEBOOK


def test_a_copy_has_no_outputs_and_its_code_stays_folded(mine: Path) -> None:
    import nbformat  # here: it takes 3 s of a core, which every test worker would pay

    book = read(mine / NAME)
    nbformat.validate(book)
    (cell,) = book["cells"]
    assert cell["outputs"] == [] and cell["execution_count"] is None
    assert (
        cell["metadata"]["jupyter"] == {"source_hidden": True}
        and "workbench" not in book["metadata"]
    )
    assert sorted(one.name for one in mine.iterdir()) == [KEPT, NAME]


def test_what_a_reader_has_run_stays_until_the_chapter_changes(mine: Path) -> None:
    edit(mine / NAME)
    before = (mine / NAME).read_bytes()
    assert bring(mine.parent / "notebooks", mine) == []
    assert (mine / NAME).read_bytes() == before
    assert bring(release(mine.parent / "notebooks", "x = 2"), mine) == [mine / NAME]
    assert source(mine / NAME) == "x = 2"


def test_what_a_reader_wrote_stays_and_the_new_chapter_lies_beside_it(mine: Path) -> None:
    edit(mine / NAME, "x = 1  # mine")
    before = (mine / NAME).read_bytes()
    beside = mine / "01_a new.ipynb"
    for text in ("x = 2", "x = 3"):  # the copy beside it was not edited: it follows
        assert bring(release(mine.parent / "notebooks", text), mine) == [beside]
        assert source(beside) == text
    assert bring(mine.parent / "notebooks", mine) == []
    edit(beside, "also mine")
    assert bring(release(mine.parent / "notebooks", "x = 4"), mine) == [mine / "01_a new 2.ipynb"]
    assert (mine / NAME).read_bytes() == before and source(beside) == "also mine"


@pytest.mark.parametrize("theirs", ["not a notebook", "[]", '{"cells": 3}'])
def test_a_file_of_the_readers_under_a_chapters_name_stays(tmp_path: Path, theirs: str) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / NAME).write_text(theirs)
    bring(release(tmp_path / "notebooks", "x = 1"), tmp_path / "mine")
    assert (tmp_path / "mine" / NAME).read_text() == theirs
    assert source(tmp_path / "mine" / "01_a new.ipynb") == "x = 1"


@pytest.mark.parametrize("damaged", ["", "{", "[1]", "7"])
def test_where_it_is_not_known_what_was_brought_a_copy_is_the_readers(
    mine: Path, damaged: str
) -> None:
    (mine / KEPT).write_text(damaged)
    bring(release(mine.parent / "notebooks", "x = 2"), mine)
    assert source(mine / NAME) == "x = 1" and source(mine / "01_a new.ipynb") == "x = 2"


def test_a_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(wb.WorkbenchError, match="cannot make the folder"):
        bring(release(tmp_path / "notebooks", "x = 1"), tmp_path / "file" / "mine")
