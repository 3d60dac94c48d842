"""``workbench serve``: a button starts a run, chunks move, closing the page ends its ranks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.browser.conftest import Watched, known, sees_chunks_move, wait_for
from tests.conftest import processes

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]


def test_from_the_button_to_moving_chunks_to_the_end(
    web_app: str, open_page: Callable[..., Watched]
) -> None:
    warm = set(processes())  # what earlier tests keep ready for the next run
    page = open_page(color_scheme="dark").page
    page.goto(web_app)
    stage = page.locator(".wb-stage")
    stage.wait_for(timeout=30_000)
    state = stage.locator(".wb-state")
    wait_for(lambda: state.inner_text() == "○ Nothing runs yet", "the empty state")
    assert set(processes()) <= warm, "ranks before the button is pressed"
    page.get_by_label("Iterations").fill("100000")
    page.get_by_label("Latency of link 0 → 1, ms").fill("20")
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Run", exact=True).click()
    wait_for(lambda: known(stage, "calls"), "a first call", 60)
    sees_chunks_move(stage)
    assert stage.locator(".wb-made").inner_text() == "link 0 → 1 emulated: 20 ms"
    assert known(stage, "state") == "running"
    # The page stays white whatever the reader's system is, and so does the stage on it.
    assert stage.evaluate("(root) => getComputedStyle(root).colorScheme") == "light"

    at_work = set(processes()) - warm
    page.close()
    wait_for(lambda: len(at_work - set(processes())) >= 4, "the end of the four ranks", 45)


def test_what_cannot_be_is_said_and_a_second_run_takes_the_place_of_the_first(
    web_app: str, open_page: Callable[..., Watched]
) -> None:
    page = open_page().page
    page.goto(web_app)
    stage = page.locator(".wb-stage")
    stage.wait_for(timeout=30_000)
    for iterations in ("100000", "3"):
        page.get_by_label("Iterations").fill(iterations)
        page.keyboard.press("Tab")
        page.get_by_role("button", name="Run", exact=True).click()
        of = f" of {int(iterations):,} · loss"
        wait_for(lambda of=of: of in stage.locator(".wb-facts").inner_text(), "that run", 60)
    wait_for(lambda: known(stage, "state") == "finished", "the end of the short one")
    assert known(stage, "counters")["iteration"] == 2
