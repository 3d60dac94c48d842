"""Guided walks, in a browser that replays recorded runs: every step of every scene is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator

import workbench as wb
from tests.browser.conftest import Watched, known, let_draw, wait_for
from tests.browser.recorded_runs import FOLDER, empty_stage, take
from tests.pairwise import first
from tests.views.test_walks import YAML

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


CONTROL = {
    "held": True,
    "standing": [0, 1],
    "slow_motion": 1,
    **{name: {} for name in ("slow", "ended", "how", "pids")},
    **{name: [] for name in ("frozen", "links")},
}
FAILURE = {"text": "Rank 1 was killed.", "rank": 1, "how": "killed", "doing": "", "lines": []}
STATES: dict[str, dict[str, Any]] = {
    "replay": {},
    "failed": {"state": "failed", "words": FAILURE["text"], "failure": FAILURE},
    "held": {"state": "running", "control": CONTROL},
}
CASES = [(name, "replay") for name in RUNS]
CASES += [("poisoned", "failed"), ("server_shrinks", "held"), ("stage_replaced", "failed")]
ALL = [
    *CASES,
    *((name, how) for name in RUNS for how in ("failed", "held") if (name, how) not in CASES),
]


@pytest.mark.parametrize(("name", "how"), first(len(CASES), ALL))
def test_every_step_is_drawn_and_says_a_number_of_the_run(
    name: str, how: str, stage: Locator
) -> None:
    take(stage, name, **STATES[how])
    assert known(stage, "state") == STATES[how].get("state", "replay")
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


def test_a_walk_of_ones_own_opens_in_a_saved_page_and_goes_to_other_scenes(
    tmp_path: Path, open_page: Callable[..., Watched]
) -> None:
    run = wb.plan("all_reduce", "ring", ranks=4, nbytes="1 MB")
    wb.walk(run, YAML, scene="collectives").to_html(tmp_path / "walk.html")
    page = open_page(color_scheme="dark").page
    page.goto((tmp_path / "walk.html").as_uri())
    stage = page.locator(".wb-stage")
    wait_for(lambda: state(stage).get("drawn"), "the card")
    assert state(stage)["text"] == "This is rank 2."
    page.keyboard.press("ArrowRight")
    wait_for(lambda: state(stage).get("drawn"), "the card in the timeline")
    lane = state(stage)
    assert stage.get_attribute("data-scene") == "timeline" and lane["at"] == 1 == lane["of"] - 1
    assert lane["number"].startswith("It sends ")
    page.keyboard.press("Escape")
    let_draw(page, 600)
    assert state(stage) == {}, "it opens once"
    wb.walk(run, scene="collectives", step=2).to_html(tmp_path / "ours.html")
    page.goto((tmp_path / "ours.html").as_uri())
    wait_for(lambda: state(stage).get("drawn"), "a card of ours")
    assert state(stage)["title"] == "What a rank holds"
    assert stage.evaluate("(root) => root.stage.walk.link") == 2


def test_the_last_card_hands_over_the_link_that_it_lights(stage: Locator) -> None:
    take(stage, "poisoned", **STATES["held"])
    let_draw(stage.page, 300)
    stage.evaluate("(root) => { root.stage.open('collectives'); root.stage.walk.open(5); }")
    let_draw(stage.page, 300)
    assert "link from rank 2 to rank 0" in state(stage)["text"]
    stage.get_by_role("button", name="Slow this link").click()
    assert state(stage) == {}, "the walk is over"
    assert "link 2 → 0" in stage.get_by_role("dialog").inner_text()
