"""Pages of the site, made from stored notebooks: what they keep and drop, where they lead."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest

from docs.site.chapters import chapter
from docs.site.clean import clean
from docs.site.markdown import page
from docs.site.reference import reference
from docs.site.replays import OF_CHAPTER, experiments
from tests import notebook_files

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
PLOTLY = "application/vnd.plotly.v1+json"


@pytest.mark.parametrize("path", sorted(PAGES), ids=lambda path: path.stem)
def test_links_of_the_guides_lead_to_files(path: Path) -> None:
    local = re.findall(r"(?<!!)\[[^\]]+\]\(([^)#\s]+)[^)]*\)", path.read_text())
    for link in (one for one in local if not one.startswith("http")):
        chapter_page = ROOT / "notebooks" / f"{Path(link).stem}.ipynb"  # a page of the site
        assert (path.parent / link).exists() or chapter_page.exists(), link


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda p: p.stem)
def test_every_stored_figure_has_a_picture_beside_it(path: Path) -> None:
    for at, cell in enumerate(notebook_files.read(path)):
        for output in cell.get("outputs", ()):
            kinds = set(output["data"])
            assert PLOTLY not in kinds or kinds & {"image/svg+xml", "image/png"}, f"cell {at}"


def test_what_an_output_brings_is_sanitized() -> None:
    html = (
        '<table onclick="x()"><tr><td colspan="2">1 &lt; 2</td></tr></table>'
        "<script>alert(1)</script>"
        '<img src="http://elsewhere/x.png" alt="a"><img src="data:image/svg+xml;base64,AA==">'
        '<a href="javascript:x()">here</a><form>kept text</form>'
    )
    kept = clean(html)
    assert kept == (
        '<table><tr><td colspan="2">1 &lt; 2</td></tr></table><img alt="a">'
        '<img src="data:image/svg+xml;base64,AA=="><a>here</a>kept text'
    )


def test_a_table_comes_without_the_types_of_its_columns(tmp_path: Path) -> None:
    table = pl.DataFrame({"way": ["a", "b"], "T ms": [12.6, 14.4]})._repr_html_()
    assert "f64" in table and "shape" in table
    data = {"output_type": "display_data", "metadata": {}, "data": {"text/html": table}}
    cell = {"cell_type": "code", "source": "t", "metadata": {}, "outputs": [data]}
    path = tmp_path / "01_a.ipynb"
    path.write_text(json.dumps({"cells": [cell], "metadata": {}}))
    markdown = chapter(path, tmp_path / "pictures")
    assert "<th>T ms</th></tr></thead><tbody><tr><td>a</td><td>12.6</td>" in markdown
    assert "f64" not in markdown and "shape" not in markdown


def test_the_replays_are_of_chapters_that_are() -> None:
    numbers = {one.name.partition("_")[0] for one in (ROOT / "notebooks").glob("*.ipynb")}
    assert set(OF_CHAPTER) <= numbers and set(OF_CHAPTER.values()) <= set(experiments())


def test_links_to_chapters_become_pages_and_code_stays() -> None:
    text = "[chapter 1](01_ring_all_reduce.ipynb) and `[a](01_x.ipynb)`"
    assert page(text) == "[chapter 1](01_ring_all_reduce.md) and `[a](01_x.ipynb)`"


def test_a_chapter_becomes_a_page_with_its_outputs(tmp_path: Path) -> None:
    def output(**data: str) -> dict[str, object]:
        return {"output_type": "display_data", "metadata": {}, "data": data}

    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": "# 1 · A title"},
        {
            "cell_type": "code",
            "metadata": {},
            "source": "run",
            "outputs": [
                output(**{"image/svg+xml": "<svg>1</svg>", "text/html": "<b>not this</b>"}),
                output(**{"text/html": "<table>\n\n<tr onclick='x'></tr></table>"}),
                {"output_type": "stream", "name": "stdout", "text": "\x1b[31mplain\x1b[0m\n"},
            ],
        },
        {"cell_type": "code", "metadata": {}, "source": "assert run.ok", "outputs": []},
    ]
    path = tmp_path / "01_a.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    markdown = chapter(path, tmp_path / "pictures", "replays/ring.html")
    assert markdown.startswith("# 1 · A title\n\n<iframe") and "````python\nrun\n````" in markdown
    assert (tmp_path / "pictures" / "01_a-01-0.svg").read_text() == "<svg>1</svg>"
    assert "not this" not in markdown and "onclick" not in markdown
    assert "````text\nplain\n````" in markdown and "What must hold, as asserts" in markdown


def test_the_reference_has_every_public_name() -> None:
    import workbench as wb

    text = reference()
    assert [name for name in wb.__all__ if f"### `{name}`" not in text] == []
