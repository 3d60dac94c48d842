"""A chapter on GitHub: no script, no widget, HTML without style, and yet what the text talks of."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests import figure_pictures, notebook_files
from tests.github_view import FOLDER, IMAGES, outputs, page, shown

CHAPTERS = sorted(FOLDER.glob("*.ipynb"))
DRAWS = re.compile(  # a cell whose last expression is a picture
    r"^(?:\w+ = )?(?:\w|\.|\[|\]|\"|')*"
    r"(?:\.view\(|\.figure\(|go\.Figure\(|wb\.schedule\(|wb\.compare\(|wb\.partition\(|wb\.split\()"
)
SVG = "http://www.w3.org/2000/svg"


def cells(path: Path) -> list[dict[str, Any]]:
    """Return a chapter's cells in the form in which ``make notebooks`` stores them."""
    notebook = {"cells": notebook_files.read(path)}
    figure_pictures.take_apart(notebook)
    return notebook["cells"]


def last_statement(source: str) -> str:
    """Return the text from the last line that is not indented and does not close a bracket."""
    lines = [line for line in source.splitlines() if line.strip()]
    starts = [k for k, line in enumerate(lines) if line[0] not in " )]}#"]
    return "\n".join(lines[starts[-1] :]) if starts else ""


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_every_output_has_something_to_see(path: Path) -> None:
    for at, cell in enumerate(cells(path)):
        for kind, html in outputs(cell) if cell["cell_type"] == "code" else ():
            assert html.strip(), f"{path.name} [{at}]: GitHub shows nothing of {kind or 'it'}"
            raises = "raises-exception" in cell["metadata"].get("tags", ())
            assert kind != "error" or raises, f"{path.name} [{at}]: {html}"


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_cell_that_ends_with_a_picture_shows_an_image(path: Path) -> None:
    for at, cell in enumerate(cells(path)):
        if cell["cell_type"] == "code" and DRAWS.match(last_statement(cell["source"])):
            kinds = [kind for kind, _ in outputs(cell)]
            assert {*IMAGES} & {*kinds}, f"{path.name} [{at}]: shown as {kinds}"


def stored(path: Path) -> tuple[nbformat.NotebookNode, set[str]]:
    """Return a chapter, and the kinds of data in its outputs."""
    notebook = nbformat.read(path, 4)  # type: ignore[no-untyped-call]
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return notebook, {kind for output in outputs for kind in output.get("data", ())}


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_no_stored_output_names_a_widget(path: Path) -> None:
    """JupyterLab would look for its model, and show an error instead of the picture."""
    notebook, kinds = stored(path)
    assert not any("widget" in kind for kind in kinds) and "widgets" not in notebook.metadata


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_stored_pictures_stand_alone(path: Path) -> None:
    """Chapters that were executed since pictures have a PNG keep none within HTML."""
    notebook, kinds = stored(path)
    if "image/png" in kinds:
        assert figure_pictures.take_apart(notebook) == 0, path.name
        assert not [*figure_pictures.without_png(notebook)], path.name


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_pictures_are_whole_and_need_nothing_from_elsewhere(path: Path) -> None:
    """GitHub draws an SVG as an image: nothing that it refers to is loaded."""
    for at, cell in enumerate(cells(path)):
        for output in cell.get("outputs", ()):
            if (text := output.get("data", {}).get("image/svg+xml")) is None:
                continue
            root = ET.fromstring(text)
            assert root.tag == f"{{{SVG}}}svg" and {"width", "height"} <= {*root.attrib}, at
            for one in root.iter():
                name = one.tag.rpartition("}")[2]
                assert name not in ("script", "foreignObject"), f"{path.name} [{at}]: {name}"
                away = [v for k, v in one.attrib.items() if k.endswith("href") and v[:1] != "#"]
                assert all(v.startswith("data:") for v in away), f"{path.name} [{at}]: {away}"


def test_html_hides_no_picture_and_loses_what_github_takes_away() -> None:
    svg = f'<svg xmlns="{SVG}" width="9" height="9"/>'
    packed = "PHN2Zy8+"
    data = {"text/html": f'<b style="x">a</b><img src="data:image/svg+xml;base64,{packed}">{svg}'}
    kind, html = shown(data)
    assert (kind, html) == ("text/html", "<b>a</b><img>")
    alone = f'<img alt="" src="data:image/svg+xml;base64,{packed}">'
    for text, expected in (
        (alone, [{"image/svg+xml": "<svg/>"}]),
        (f"{alone}<p>b</p>", [{"image/svg+xml": "<svg/>"}, {"text/html": "<p>b</p>"}]),
    ):
        cell = {"outputs": [{"output_type": "execute_result", "data": {"text/html": text}}]}
        assert figure_pictures.take_apart({"cells": [cell]}) == 1
        assert [output["data"] for output in cell["outputs"]] == expected


def test_a_page_has_all_cells() -> None:
    path = CHAPTERS[1]
    assert page(path).count("<small>[") == sum(
        cell["cell_type"] == "code" for cell in notebook_files.read(path)
    )
