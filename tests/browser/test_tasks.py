"""Five tasks by keyboard alone, what a screen reader is told meanwhile, and all cores busy."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page

from tests.browser.conftest import Watched, frame, known, let_draw, wait_for
from tests.browser.test_collectives import held
from tests.processes import ending_with_us

pytestmark = pytest.mark.browser
Open = Callable[..., Watched]
MOST_STOPS = 12  # of the Tab key, from the stage to the controls of time

TREE = """
- group "Distributed training, drawn from its events":
  - tablist "Views of this run":
    - tab "Overview"
    - tab "Collectives" [selected]
    - tab "Timeline"
  - toolbar "Tools of this picture"
  - status: /.+/
  - tabpanel "Collectives":
    - img /.+/
    - group "Ranks and links":
      - button "rank 0"
      - button "rank 1"
    - list "The last moments up to the playhead"
  - slider "the run, call by call"
"""


@pytest.fixture
def stage(tmp_path: Path, open_page: Open) -> Iterator[Locator]:
    yield held(tmp_path, open_page().page)


def focused(page: Page) -> str:
    """The accessible name of what the keyboard is on, or its text."""
    return str(
        page.evaluate(
            "() => { const e = document.activeElement;"
            " return e.getAttribute('aria-label') ?? e.innerText ?? ''; }"
        )
    )


def tab_to(page: Page, name: str, most: int = MOST_STOPS) -> int:
    """Press Tab until the keyboard is on it; return how often."""
    for stops in range(1, most + 1):
        page.keyboard.press("Tab")
        if name in focused(page):
            return stops
    raise AssertionError(f"{most} stops do not lead to {name}; the last is {focused(page)}")


def test_a_screen_reader_hears_the_whole_picture(stage: Locator) -> None:
    tree = stage.aria_snapshot()
    names = re.findall(r"^\s*- (?:'?)(\w+)(?: \"([^\"]*)\")?", tree, re.M)
    expected = re.findall(r"^\s*- (\w+)(?: \"([^\"]*)\")?", TREE, re.M)
    for role, name in expected:
        assert any(role == r and n.startswith(name) for r, n in names), (role, name, tree)
    assert 'tab "Collectives" [selected]' in tree
    # The picture says what is drawn: every rank, and each chunk under way.
    ring = stage.locator(".wb-ring").get_attribute("aria-label") or ""
    for rank in range(4):
        assert f"ank {rank}" in ring, ring
    assert not re.search(r"- button(?: \[disabled\])?\s*$", tree, re.M), "a button without a name"


def test_five_tasks_by_keyboard_alone(stage: Locator) -> None:
    page = stage.page
    stage.focus()

    # 1. Another view, and back: by the tabs' arrows.
    tab_to(page, "Collectives")
    page.keyboard.press("ArrowRight")
    assert stage.get_attribute("data-scene") == "timeline"
    page.keyboard.press("ArrowLeft")
    assert stage.get_attribute("data-scene") == "collectives"

    # 2. Which rank holds what: a rank by arrows, its cells by arrows, said as text.
    tab_to(page, "rank 0")
    page.keyboard.press("ArrowDown")
    assert focused(page) == "rank 1"
    page.keyboard.press("Tab")
    assert stage.locator(".wb-matrix").evaluate("(e) => e === document.activeElement")
    page.keyboard.press("ArrowRight")
    heard = stage.locator(".wb-scene-collectives .wb-sr[role=status]")
    wait_for(lambda: "chunk 1" in heard.inner_text(), "the cell in words")

    # 3. One step on, and back; the slider says where.
    stops = tab_to(page, "back")
    assert stops <= MOST_STOPS
    at = frame(stage)["playhead"]
    tab_to(page, "Play", 2)
    tab_to(page, " on", 2)
    page.keyboard.press("Enter")
    assert frame(stage)["playhead"] > at

    # 4. The slowest call, and what it is, in the slider's own words.
    strip = stage.get_by_role("slider", name="the run, call by call")
    stage.focus()
    page.keyboard.press("s")
    let_draw(page, 400)
    table = "const calls = root.stage.known().table.calls;"
    slowest = stage.evaluate(
        f"(root) => {{ {table} return calls.reduce((a, b) =>"
        " a.end - a.start >= b.end - b.start ? a : b).op; }"
    )
    assert frame(stage)["call"]["op"] == slowest
    assert strip.get_attribute("aria-valuetext")

    # 5. This moment, to take along: the menu by arrows, its answer as a status.
    tab_to(page, "Larger")
    page.keyboard.press("ArrowLeft")  # round to the last tool
    assert focused(page) == "Share"
    page.keyboard.press("Enter")
    assert focused(page).startswith("Copy this moment")
    page.keyboard.press("Enter")
    answer = stage.locator(".wb-answer[role=status]")
    wait_for(lambda: "opied" in answer.inner_text() or "Copy it" in answer.inner_text(), "it")


@pytest.fixture
def busy_cores() -> Iterator[None]:
    """All cores have other work: a process each that does nothing but count."""
    code = ending_with_us("while True:\n    pass")
    others = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(os.cpu_count() or 1)]
    yield
    for one in others:
        one.kill()
        one.wait()


@pytest.mark.usefixtures("busy_cores")
def test_on_busy_cores_words_and_picture_are_of_one_call(stage: Locator) -> None:
    """However late frames come: what is said is of the call that is drawn."""
    page = stage.page
    stage.focus()
    for key in ("ArrowRight", "s", "ArrowRight", "Home", "ArrowRight"):
        page.keyboard.press(key)
        let_draw(page, 100)
        call = frame(stage)["call"]
        place = stage.locator(".wb-real").inner_text()
        assert f"call {call['number']} of" in place, (key, call, place)
    assert known(stage, "state") == "replay"
