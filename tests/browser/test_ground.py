"""What a notebook's charts are seen of the page around them, where the page's theme changes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import Watched, wait_for
from workbench.front_end.assets import joined

pytestmark = pytest.mark.browser
WHITE, DARK = "rgb(255, 255, 255)", "rgb(17, 17, 17)"
PAGE = f"""<!doctype html><style>body {{ background: {WHITE} }}</style>
<body data-jp-theme-light="true"><main></main>"""
RENDER = """async (source) => {
  const { default: ground } = await import("data:text/javascript;base64," + btoa(source));
  window.known = {};
  const set = (name, value) => (known[name] = value);
  const model = { get: (name) => known[name], set, save_changes() {} };
  ground.render({ model, el: document.querySelector("main") });
}"""
LATE = "http://127.0.0.1/late.css"


def ground_of(page: Page) -> list[object]:
    return list(page.evaluate("[known.dark, known.colour]"))


def test_colors_that_come_after_the_name_of_the_theme_are_told(
    open_page: Callable[..., Watched],
) -> None:
    """As of a busy JupyterLab: a chart would stay white on a dark page."""
    page = open_page().page
    style = f"body {{ background: {DARK} !important }}"
    page.route(LATE, lambda route: route.fulfill(content_type="text/css", body=style))
    page.set_content(PAGE)
    page.evaluate(RENDER, joined("widgets/ground.js"))
    assert ground_of(page) == [False, WHITE]
    page.evaluate("document.body.dataset.jpThemeLight = 'false'")
    wait_for(lambda: ground_of(page) == [True, WHITE], "the name of the theme")
    page.add_style_tag(url=LATE)
    wait_for(lambda: ground_of(page) == [True, DARK], "its color")
