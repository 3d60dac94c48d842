"""The start page's cards of presets in a real browser: found, led through, moving, and started."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest

from tests.browser.app_pages import (
    Open,
    choose,
    start_page,
    started,
)
from tests.browser.conftest import known, wait_for
from workbench.interface.gallery import GALLERY
from workbench.presets.catalogue import presets

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

LOADED = "(all) => all.filter((one) => one.complete && one.naturalWidth > 0).length"
FOCUSED = """() => {
  let at = document.activeElement;
  while (at?.shadowRoot?.activeElement) at = at.shadowRoot.activeElement;
  return at?.getAttribute("aria-label") ?? at?.innerText ?? "";
}"""  # what has the focus, in parts of the page too
GROUNDS: tuple[Literal["light", "dark"], ...] = ("light", "dark")
SOURCES = "(all) => all.map((one) => one.currentSrc)"


def test_presets_are_folded_by_question_and_found_by_words(web_app: str, open_page: Open) -> None:
    page = open_page(reduced_motion="reduce").page
    page.goto(web_app)
    page.locator("button.main.large", has_text="Start").wait_for()
    kinds = page.locator("details.kind")
    every = kinds.count()
    cards = page.locator(".preset").locator("visible=true")
    assert page.locator("details.kind[open]").count() == 0 and every > 5
    assert cards.count() == len(GALLERY)
    search = page.get_by_label("Search the presets")
    search.fill("server dies")
    names = cards.locator("b").all_inner_texts()
    assert "A server that dies" in names and len(names) < 9
    search.fill("nothing of this name")
    assert cards.count() == 0 and page.get_by_text("None has these words.").is_visible()
    search.fill("")
    assert page.locator("details.kind[open]").count() == 0 and cards.count() == len(GALLERY)
    assert kinds.locator("visible=true").count() == every


@pytest.mark.full
def test_cards_are_one_stop_and_arrows_lead_from_card_to_card(
    web_app: str, open_page: Open
) -> None:
    page = open_page(viewport={"width": 1440, "height": 900}, reduced_motion="reduce").page
    page.goto(web_app)
    search = page.get_by_label("Search the presets")
    search.wait_for()

    def focused(*keys: str) -> str:
        for key in keys:
            page.keyboard.press(key)
        return str(page.evaluate(FOCUSED))

    search.focus()
    first = focused("Tab")
    assert first.startswith("Ring of four")
    assert focused("ArrowRight", "ArrowRight", "ArrowLeft").startswith("DDP: four buckets")
    assert focused("ArrowDown").startswith("Server: SSP")  # the one below it
    assert focused("Tab") == "Change first: Server: SSP"
    assert focused("Tab").startswith("Averaged gradients")  # past all cards
    search.fill("tree")
    search.focus()
    assert "tree" in focused("ArrowDown").lower()  # the first that was found
    search.fill("")
    search.focus()
    assert focused("Tab").startswith("Server: SSP")  # where the reader was


def test_eight_recorded_runs_move_on_the_ground_of_the_page(web_app: str, open_page: Open) -> None:
    page = open_page().page
    page.emulate_media(color_scheme="light", reduced_motion="no-preference")
    page.goto(web_app)
    page.locator(".living .card").first.wait_for()
    for ground in GROUNDS:
        page.emulate_media(color_scheme=ground, reduced_motion="no-preference")
        images = page.locator(f".living .on-{ground} img")
        wait_for(lambda: images.evaluate_all(LOADED) == len(GALLERY), "all eight pictures")  # noqa: B023
        assert page.locator(".living img").locator("visible=true").count() == len(GALLERY)
        moves, stands = f".{ground}.webp", f".{ground}.still.webp"
        assert all(moves in source for source in images.evaluate_all(SOURCES))
        page.emulate_media(color_scheme=ground, reduced_motion="reduce")
        wait_for(lambda: all(stands in one for one in images.evaluate_all(SOURCES)), "stills")  # noqa: B023


@pytest.mark.full
def test_change_first_opens_the_form_beside_the_cards_with_start_in_view(
    web_app: str, open_page: Open
) -> None:
    page = open_page().page
    page.set_viewport_size({"width": 1440, "height": 900})
    start_page(page, web_app)
    choose(page, "Two ranks", iterations=3)
    start = page.get_by_role("button", name="Start this run")
    for at in (0, 600):
        page.evaluate("(y) => scrollTo(0, y)", at)
        page.wait_for_function("(y) => scrollY === y", arg=at)
        box = start.bounding_box()
        assert box and box["y"] >= 0 and box["y"] + box["height"] <= 900, (at, box)
    # The answer to the change comes: it is no longer the preset that was chosen.
    wait_for(lambda: page.locator(".change[aria-pressed=true]").count() == 0, "a changed preset")
    page.keyboard.press("Escape")
    change = page.get_by_role("button", name="Change first: Two ranks", exact=True)
    wait_for(lambda: change.evaluate("(b) => b.getRootNode().activeElement === b"), "its card")
    page.locator(".living button.card", has_text="Server: SSP").click()
    assert known(started(page), "run")["ranks"] == presets()["Server: SSP"].experiment.ranks


@pytest.mark.full
def test_a_card_whose_run_is_refused_grows_by_the_refusal_alone(
    serve: Callable[..., str], open_page: Open
) -> None:
    page = open_page(viewport={"width": 1440, "height": 900}).page
    start_page(page, serve("--max-ranks", "2"))
    card = page.locator(".living .preset", has_text="Ring of four")
    before = card.bounding_box()
    card.locator("button.card").click()
    refusal = card.get_by_role("alert")
    wait_for(lambda: "2" in refusal.inner_text(), "a refusal")
    after = card.bounding_box()
    assert before and after
    lines = len(refusal.inner_text()) // 30 + 1  # of a card's width, and more than are needed
    assert 10 < after["height"] - before["height"] < 30 * lines
