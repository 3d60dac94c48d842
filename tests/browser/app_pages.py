"""The web app's pages in a browser: what tests press there, and what they read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import Locator, Page

from tests.browser.conftest import Watched, known, wait_for

FIRST = "Start: ring of four"

Open = Callable[..., Watched]
Serve = Callable[..., str]


def start_page(page: Page, address: str) -> None:
    """The page of cards and the form; the cards' pictures stand still until a run is on stage:
    eight that move take a core.
    """
    page.emulate_media(reduced_motion="reduce")
    page.goto(address)
    page.locator("button.main.large", has_text="Start").wait_for()
    page.locator("details.kind").evaluate_all("(all) => all.forEach((one) => (one.open = true))")


def choose(page: Page, preset: str, **fields: object) -> None:
    """Press a preset, wait for the server's answer, then fill fields by their names."""
    button = page.get_by_role("button", name=f"Change first: {preset}", exact=True)
    button.click()
    wait_for(lambda: button.get_attribute("aria-pressed") == "true", f"the preset {preset}")
    for name, value in fields.items():
        page.locator(f"#field-{name}").fill(str(value))
    page.keyboard.press("Tab")


def started(page: Page) -> Locator:
    """The stage of the run that a button has just started."""
    page.wait_for_url("**/run?id=*", wait_until="commit")
    return stage_of(page)


def stage_of(page: Page) -> Locator:
    stage = page.locator(".wb-stage")
    stage.wait_for()
    page.emulate_media(reduced_motion="no-preference")
    wait_for(lambda: known(stage, "run"), "the run's first message")
    return stage


def start(page: Page) -> Locator:
    page.get_by_role("button", name="Start this run").click()
    return started(page)


def state(stage: Locator) -> Any:
    return known(stage, "state")


def is_live(stage: Locator) -> bool:
    return state(stage) == "running"


def pids(stage: Locator) -> list[int]:
    control = wait_for(lambda: (known(stage, "control") or {}).get("pids"), "the ranks' processes")
    return [int(pid) for pid in dict(control).values()]  # type: ignore[call-overload]


def iteration(stage: Locator) -> int:
    return known(stage, "counters")["iteration"]  # type: ignore[index]


def rows(stage: Locator) -> int:
    return stage.evaluate("(root) => root.stage.known().table.rows")


def to_the_end(page: Page) -> None:
    """Scroll down to the charts, which are drawn when they are about to be seen."""
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
