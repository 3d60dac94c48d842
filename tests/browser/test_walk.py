"""Guided walks, in a browser that replays recorded runs: every step of every scene is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator

from tests.browser.conftest import let_draw
from tests.browser.recorded_runs import FOLDER, empty_stage, take

RUNS = sorted(path.name.removesuffix(".json.gz") for path in FOLDER.glob("*.json.gz"))
pytestmark = pytest.mark.browser
# Every step of the walk of each scene that the run offers.
WALKED = """async (root) => {
  const frames = async (n) => { while (n--) await new Promise(requestAnimationFrame); };
  const tabs = [...root.querySelectorAll(".wb-tabs button")].filter((tab) => !tab.hidden);
  const { walk, open } = root.stage, found = {};
  for (const { dataset: { scene } } of tabs) {
    open(scene);
    await frames(3);
    walk.open();
    do { await frames(4); (found[scene] ??= []).push(walk.state()); walk.go(1); }
    while (found[scene].at(-1) && found[scene].length < found[scene].at(-1).of);
    walk.close();
  }
  return found;
}"""


@pytest.fixture(scope="module")
def stage(browser: Browser) -> Iterator[Locator]:
    """One page for all runs, which it replays one after the other."""
    page = browser.new_page(viewport={"width": 1280, "height": 1000}, reduced_motion="reduce")
    errors: list[object] = []
    page.on("pageerror", lambda error: errors.append(error))
    yield empty_stage(page)
    page.close()
    assert errors == [], "the page raised"


def state(stage: Locator) -> dict[str, Any]:
    """Return what the walk shows, once it is drawn."""
    let_draw(stage.page, 0)
    return dict(stage.evaluate("(root) => root.stage.walk.state() ?? {}"))


@pytest.mark.parametrize("name", RUNS)
def test_every_step_is_drawn_and_says_a_number_of_the_run(name: str, stage: Locator) -> None:
    take(stage, name)
    let_draw(stage.page, 300)
    for scene, steps in stage.evaluate(WALKED).items():
        for step in filter(None, steps):
            words = f"{scene}: {step['title']}"
            assert step["drawn"], words
            assert "{" not in step["text"] and step["number"], words


def test_keys_go_through_it_and_leave_the_picture_as_it_was(stage: Locator) -> None:
    page = stage.page
    take(stage, "poisoned")
    stage.evaluate("(root) => { root.stage.open('collectives'); root.stage.goto(2e7); }")
    let_draw(page, 300)
    stage.focus()
    before = stage.evaluate("(root) => root.stage.frame().t")
    stage.get_by_role("button", name="Walk me through").click()
    card = stage.locator(".wb-walk-card")
    assert state(stage)["at"] == 0
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    third = state(stage)
    assert third["at"] == 2 and stage.evaluate("(root) => root.stage.frame().t") != before
    live = card.locator("[aria-live=polite]")
    assert third["text"] in live.inner_text() and third["number"] in live.inner_text()
    page.keyboard.press("ArrowLeft")
    assert state(stage)["at"] == 1
    page.keyboard.press("Escape")
    assert state(stage) == {} and not card.is_visible()
    assert stage.evaluate("(root) => root.stage.frame().t") == before
    page.keyboard.press("w")
    assert state(stage)["at"] == 0
    page.keyboard.press("Escape")


def test_a_link_points_to_one_step_and_copies_it_again(stage: Locator) -> None:
    page = stage.page
    take(stage, "server_replaced")
    let_draw(page, 300)
    page.evaluate("() => { location.hash = '#moment:scene=server&walk=2'; }")
    let_draw(page, 300)
    assert state(stage)["title"] == "A server" and state(stage)["drawn"]
    assert stage.evaluate("(root) => root.stage.walk.link") == 2
    page.evaluate("() => { location.hash = ''; }")
    stage.evaluate("(root) => root.stage.walk.close()")
