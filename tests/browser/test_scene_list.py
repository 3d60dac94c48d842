"""Every scene is reached by key: the first nine by a digit, all from a list; a user's own, too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
from playwright.sync_api import Locator, Page

from tests.browser.conftest import Watched, opened_page, wait_for
from tests.synthetic import training
from workbench.store.event_store import Store
from workbench.views.replay import to_html

pytestmark = pytest.mark.browser
HEAT = """
    import { grouped } from "../../engine/format.js";

    const HEAT_WORDS = "rows of this run";

    class HeatView {
      constructor(body) {
        this.body = body;
      }
      say({ table }) {
        this.body.textContent = `${grouped(table.rows)} ${HEAT_WORDS}`;
      }
      draw() {}
      marks() {
        return [];
      }
      title() {
        return "Heat";
      }
      sentence() {
        return "A scene of one's own.";
      }
      end() {}
    }

    export const heatScene = { build: (body) => new HeatView(body) };
"""


@pytest.fixture
def page_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the address of a saved run's page, with a scene of the user's own as its last one."""
    folder = tmp_path / "mine" / "scenes" / "heat"
    folder.mkdir(parents=True)
    (folder / "scene.json").write_text('{"label": "Heat", "order": 950}')
    (folder / "scene.js").write_text(dedent(HEAT))
    monkeypatch.setenv("WORKBENCH_EXTENSIONS", str(tmp_path / "mine"))
    to_html(Store.from_frame(training(30)), tmp_path / "run.html")
    return (tmp_path / "run.html").as_uri()


def labels(options: Locator) -> list[str]:
    return [text.split("\n")[0] for text in options.all_inner_texts()]


def chosen(stage: Locator) -> str:
    return labels(stage.locator('[role=option][aria-selected="true"]'))[0]


def focused(page: Page) -> str:
    return str(page.evaluate("() => document.activeElement.className"))


def test_the_list_opens_by_key_and_leads_to_every_scene(
    page_file: str, open_page: Callable[..., Watched]
) -> None:
    page = open_page().page
    stage = opened_page(page, page_file, "overview")
    tabs = stage.locator(".wb-tabs button:visible")
    wait_for(lambda: tabs.count() == 4, "the tabs")
    offered = tabs.all_inner_texts()
    assert offered == ["Overview", "Collectives", "Timeline", "Heat"]
    shown = stage.locator(".wb-scene-list")
    for number, label in enumerate(offered):
        stage.focus()
        page.keyboard.press("V" if number % 2 else "v")
        assert labels(shown.locator("[role=option]")) == offered
        page.keyboard.press("Home")
        for _ in range(number):
            page.keyboard.press("ArrowDown")
        assert chosen(stage) == label
        page.keyboard.press("Enter")
        assert stage.get_attribute("data-scene") == label.lower()
        assert not shown.count() and "wb-stage" in focused(page)
    wait_for(
        lambda: (
            stage.locator(".wb-scene-heat").inner_text()
            == f"{training(30).height:,} rows of this run"
        ),
        "the user's own scene",
    )


@pytest.mark.full
def test_the_list_lies_below_the_tabs_and_space_after_a_click_on_a_tab_holds_the_view(
    page_file: str, open_page: Callable[..., Watched]
) -> None:
    page = open_page().page
    stage = opened_page(page, page_file, "overview")
    stage.focus()
    page.keyboard.press("v")
    head, box = (
        stage.locator(".wb-tabs").bounding_box(),
        stage.locator(".wb-scene-list").bounding_box(),
    )
    assert head and box and box["y"] >= head["y"] + head["height"] - 1, "it opened upwards"
    first = stage.locator(".wb-scene-list [role=option]").first.bounding_box()
    assert first and first["y"] >= box["y"], "the first of the list was cut off"
    page.keyboard.press("Escape")
    is_held = "(root) => root.stage.player().held !== null"
    tab = stage.locator(".wb-tabs button", has_text="Timeline")
    tab.click()
    before = stage.evaluate(is_held)
    page.keyboard.press("Space")
    assert stage.evaluate(is_held) is not before, "the tab has swallowed it"
    assert stage.get_attribute("data-scene") == "timeline"


@pytest.mark.full
def test_the_list_goes_round_takes_letters_and_closes(
    page_file: str, open_page: Callable[..., Watched]
) -> None:
    page = open_page().page
    stage = opened_page(page, page_file, "collectives")
    shown = stage.locator(".wb-scene-list")
    stage.focus()
    page.keyboard.press("v")
    assert chosen(stage) == "Collectives"
    names = []
    for key in ("ArrowUp", "ArrowUp", "ArrowDown", "t", "End"):
        page.keyboard.press(key)
        names.append(chosen(stage))
    assert names == ["Overview", "Heat", "Overview", "Timeline", "Heat"]
    held = stage.evaluate("(root) => root.stage.player().held")
    page.keyboard.press("Space")  # the list's, not the player's
    page.keyboard.press("1")
    assert stage.evaluate("(root) => root.stage.player().held") == held
    assert shown.is_visible() and stage.get_attribute("data-scene") == "collectives"
    page.keyboard.press("Escape")
    assert not shown.count() and stage.get_attribute("data-scene") == "collectives"
    assert "wb-stage" in focused(page)
    page.keyboard.press("v")
    shown.locator("[role=option]").nth(2).click()
    assert stage.get_attribute("data-scene") == "timeline"
    page.keyboard.press("v")
    stage.locator(".wb-say").click()
    assert not shown.count()


@pytest.mark.full
def test_the_first_nine_have_a_digit(page_file: str, open_page: Callable[..., Watched]) -> None:
    page = open_page().page
    stage = opened_page(page, page_file, "heat")
    stage.focus()
    page.keyboard.press("v")
    keys = stage.locator(".wb-scene-list kbd").all_inner_texts()
    assert keys == ["1", "2", "3", ""], "the other scenes are not offered, but keep their digits"
    page.keyboard.press("Escape")
    for digit, scene in (("3", "timeline"), ("4", "timeline"), ("2", "collectives")):
        page.keyboard.press(digit)
        assert stage.get_attribute("data-scene") == scene
