"""The notebooks as a book: links lead somewhere, sections and presets that are named exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests import chapter_minutes, notebook_files
from tests.chapter_minutes import number
from workbench.presets.catalogue import presets

FOLDER = Path(__file__).parent.parent / "notebooks"
CHAPTERS = sorted(FOLDER.glob("*.ipynb"))
LINK = re.compile(r"\[[^\]]+\]\(([^)#\s]+)\)")
MOST_CELLS, MOST_MINUTES = 35, 30  # of a chapter; minutes to read its text
SECTIONS = re.compile(r"\[chapter \d+[a-z]?\]\(([^)]+\.ipynb)\)((?:, \*[^*]+\*)+)")
PRESETS = re.compile(r"the presets? (\*[^*]+\*(?:(?:,| to| and) \*[^*]+\*)*)")


def text(path: Path) -> str:
    cells = notebook_files.read(path)
    return "\n\n".join(cell["source"] for cell in cells if cell["cell_type"] == "markdown")


def headings(path: Path) -> list[str]:
    """Return the headings, without the textbook's name that stands in brackets at the end."""
    titles = re.findall(r"^#+ (.+)$", text(path), re.M)
    return [re.sub(r" \([^)]*\)$", "", heading) for heading in titles]


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_links_lead_to_files(path: Path) -> None:
    local = [link for link in LINK.findall(text(path)) if not link.startswith("http")]
    assert local, "no way back to the map"
    assert [link for link in local if not (FOLDER / link).exists()] == []


def test_the_map_leads_to_every_chapter_and_each_back_to_it() -> None:
    start, *chapters = CHAPTERS
    assert {path.name for path in chapters} <= set(LINK.findall(text(start)))
    for path in chapters:
        assert start.name in LINK.findall(text(path)), f"{path.name} does not lead to the map"
        named = number(path.name).lstrip("0")
        assert headings(path)[0].startswith(f"{named} · "), "numbered as its file"


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_sections_that_are_named_exist(path: Path) -> None:
    named = [
        (chapter, section.rstrip("?"))
        for chapter, sections in SECTIONS.findall(text(path))
        for section in re.findall(r"\*([^*]+)\*", sections)
    ]
    for chapter, section in named:
        there = [heading.partition(":")[0] for heading in headings(FOLDER / chapter)]
        there += [heading.rstrip("?") for heading in headings(FOLDER / chapter)]
        assert section in there, f"{chapter} has no section {section!r}"
    assert named or path != CHAPTERS[0]


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_presets_that_are_named_exist(path: Path) -> None:
    named = [
        preset
        for several in PRESETS.findall(text(path))
        for preset in re.findall(r"\*([^*]+)\*", several)
    ]
    assert [name for name in named if name not in presets()] == []
    assert named or path != CHAPTERS[0]


def test_the_law_is_folded() -> None:
    for path in CHAPTERS[1:]:
        last = notebook_files.read(path)[-1]
        assert "assert" in last["source"] or "laws" in last["source"], path.name
        folded = last["metadata"].get("jupyter", {}).get("source_hidden")
        assert folded, f"{path.name}: make notebooks folds it"


def test_the_map_has_the_minutes_of_every_chapter() -> None:
    (cell,) = (
        cell["source"]
        for cell in notebook_files.read(CHAPTERS[0])
        if cell["source"].startswith(chapter_minutes.HEAD)
    )
    rows = {
        LINK.findall(line)[0]: line.split(" | ") for line in cell.splitlines() if "ipynb" in line
    }
    assert [*rows] == [path.name for path in CHAPTERS[1:]], "python -m tests.notebooks --minutes"
    for path in CHAPTERS[1:]:
        metadata = json.loads(path.read_text())["metadata"]
        if measured := chapter_minutes.running(metadata):
            assert rows[path.name][2] == measured, (
                f"{path.name}: python -m tests.notebooks --minutes"
            )


def test_no_chapter_is_longer_than_a_reader_can_stand() -> None:
    for path in CHAPTERS:
        cells = notebook_files.read(path)
        assert len(cells) <= MOST_CELLS, f"{path.name}: {len(cells)}"
        assert chapter_minutes.reading(cells) <= MOST_MINUTES, path.name
