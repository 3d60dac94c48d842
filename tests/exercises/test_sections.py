"""Sections that an exercise names, in italics, exist in its chapter."""

from __future__ import annotations

import re

import pytest

from tests.test_chapters import CHAPTERS, headings
from workbench.exercises.catalogue import exercises

NAMED = re.compile(r"(?<!\*)\*([A-Z][^*]+)\*(?!\*)")


@pytest.mark.parametrize("name", exercises())
def test_sections_that_an_exercise_names_exist(name: str) -> None:
    one = exercises()[name]
    chapter = [path for path in CHAPTERS if re.match(rf"{one.chapter}[a-z]?_", path.name)]
    there = " | ".join(heading for path in chapter for heading in headings(path))
    named = NAMED.findall(f"{one.task} {one.hint} {one.solution}")
    assert [section for section in named if section not in there] == []
