"""``workbench serve``: nothing runs until the button is pressed; then chunks move; closing the page ends the ranks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.browser.conftest import Watched, known, sees_chunks_move, wait_for
from tests.conftest import processes

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]


def ranks() -> set[int]:
    return {
        pid
        for pid, (_, command) in processes().items()
        if "rank" in command or "nursery" in command
    }


def test_from_the_button_to_moving_chunks_to_the_end(
    web_app: str, open_page: Callable[..., Watched]
) -> None:
    page = open_page().page
    page.goto(web_app)
    stage = page.locator(".wb-stage")
    stage.wait_for(timeout=30_000)
    wait_for(
        lambda: stage.locator(".wb-state").inner_text() == "○ Nothing runs yet", "the empty state"
    )
    page.get_by_label("Iterations").fill("100000")
    page.get_by_label("Latency of link 0 → 1, ms").fill("20")
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Run", exact=True).click()
    wait_for(lambda: known(stage, "calls"), "a first call", 60)
    sees_chunks_move(stage)
    assert "link 0 → 1 emulated" in stage.locator(".wb-made").inner_text()
    assert known(stage, "state") == "running"
