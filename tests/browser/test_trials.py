"""A link is dragged and the experiment runs again with it: before and after stand side by side, and
the newer run is taken back; in the web app, in a notebook and in ``wb.lab()``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page

from tests import notebook_files
from tests.browser.app_pages import choose, stage_of, start, start_page
from tests.browser.conftest import Watched, known, let_draw, open_scene, wait_for
from tests.browser.test_collectives import free_link
from tests.browser.test_lab import open_notebook
from tests.pairwise import first

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
PICTURES = os.environ.get("WORKBENCH_PICTURES")  # a folder: then pictures are left there
RUN_ALL = """() => { window.jupyterapp.commands.execute("notebook:run-all-cells"); }"""
SLOWER = "1 Mbit/s"  # the slowest that a drag chooses
NOTEBOOKS = {
    "view": """import workbench as wb

run = wb.run(wb.Experiment(ranks=4, iterations={iterations}, batch_size=16))
run.view("collectives")""",
    "lab": """import workbench as wb

lab = wb.lab(wb.Experiment(ranks=4, iterations={iterations}, batch_size=16))
lab""",
}
Open = Callable[..., Watched]


@pytest.fixture
def lab_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "notebooks"
    folder.mkdir()
    for name, cell in NOTEBOOKS.items():
        notebook_files.write(folder / f"{name}.ipynb", [cell.format(iterations=6)])
    return folder


def picture(box: Locator, name: str) -> None:
    if PICTURES:
        let_draw(box.page, 600)
        box.screenshot(path=f"{PICTURES}/{name}.png")


def run_of(stage: Locator) -> dict[str, Any]:
    return known(stage, "run") or {}  # type: ignore[return-value]


def is_over(stage: Locator) -> None:
    wait_for(lambda: known(stage, "state") == "finished", "its end")


def drag_a_link(page: Page, stage: Locator) -> str:
    """Drag a link as far out as it goes; return its name, such as "link 0 → 1"."""
    open_scene(stage, "collectives")
    stage.scroll_into_view_if_needed()
    wait_for(lambda: stage.locator(".wb-co-spots button[data-code*='>']").count(), "the links")
    link, x, y = free_link(stage)
    ring = stage.locator(".wb-ring").bounding_box()
    assert ring
    out_x, out_y = x - ring["x"] - ring["width"] / 2, y - ring["y"] - ring["height"] / 2
    far = 1 + 160 / max(1.0, (out_x**2 + out_y**2) ** 0.5)
    page.mouse.down()
    page.mouse.move(x + out_x * (far - 1) / 2, y + out_y * (far - 1) / 2)
    page.mouse.move(x + out_x * (far - 1), y + out_y * (far - 1))
    tip = stage.locator(".wb-co-tip").inner_text()
    assert SLOWER in tip and "next run" in tip
    page.mouse.up()
    return f"link {link}"


def runs_again(stage: Locator, link: str, name: str) -> None:
    """Press what the menu of the link offers, and look at both runs side by side."""
    menu = stage.get_by_role("dialog", name=f"Change {link}")
    wait_for(lambda: f"In the next run this link has {SLOWER}" in menu.inner_text(), "the choice")
    assert menu.get_by_role("button", name="Cut the link").count() == 0
    again = menu.get_by_role("button", name="Run again with this link")
    again.hover()
    assert "side by side on one axis" in menu.inner_text()
    picture(stage, f"{name}-menu")
    again.click()


def width_of(stage: Locator) -> float:
    return stage.evaluate("(root) => root.getBoundingClientRect().width")


def both_are_side_by_side(stage: Locator, link: str, name: str, width: float) -> Locator:
    """Look at the row of both runs, in a picture as wide as before; return it."""
    wait_for(lambda: run_of(stage).get("pair"), "both side by side")
    row = stage.get_by_role("group", name="Before and after")
    wait_for(lambda: "iteration takes" in row.inner_text(), "how long an iteration takes")
    names = [f"{link} unlimited", f"{link} at {SLOWER}"]
    assert row.get_by_role("button").all_inner_texts() == [*names, "side by side", "Undo"]
    assert [side["label"] for side in run_of(stage)["pair"].values()] == names
    assert abs(width_of(stage) - width) < 20, "long names make it no wider"
    picture(stage, f"{name}-both")
    row.get_by_role("button", name=names[0]).click()
    wait_for(lambda: not run_of(stage).get("pair"), "the run before alone")
    return row


@pytest.mark.full
@pytest.mark.parametrize("scheme", first(1, ["light", "dark"]))
def test_a_link_dragged_in_a_run_that_is_over_runs_again_in_the_web_app(
    web_app: str, open_page: Open, scheme: str
) -> None:
    page = open_page(color_scheme=scheme).page
    start_page(page, web_app)
    choose(page, "Ring of four", iterations=6)
    stage = start(page)
    is_over(stage)
    width = width_of(stage)
    first_address = page.url
    link = drag_a_link(page, stage)
    menu = stage.get_by_role("dialog", name=f"Change {link}")
    menu.get_by_role("button", name="Undo").click()
    assert menu.get_by_role("button", name="Run again").count() == 0, "it is as it was"
    page.keyboard.press("Escape")
    runs_again(stage, drag_a_link(page, stage), f"web-{scheme}")
    page.wait_for_url("**&before=*", wait_until="commit")
    stage = stage_of(page)
    row = both_are_side_by_side(stage, link, f"web-{scheme}", width)
    row.get_by_role("button", name="Undo").click()
    page.wait_for_url(first_address, wait_until="commit")


@pytest.mark.full
@pytest.mark.parametrize("what", ["view", "lab"])
@pytest.mark.parametrize("scheme", first(1, ["dark", "light"]))
def test_a_link_dragged_in_a_run_that_is_over_runs_again_in_jupyterlab(
    lab: str, open_page: Open, what: str, scheme: str
) -> None:
    page = open_page(color_scheme=scheme, viewport={"width": 1500, "height": 1100}).page
    open_notebook(page, lab.format(f"{what}.ipynb"), scheme)
    page.evaluate(RUN_ALL)
    stage = page.locator(".jp-OutputArea-output .wb-stage").first
    stage.wait_for()
    if what == "lab":
        page.locator("button.wb-lab-start").first.click()
    is_over(stage)
    link, width = drag_a_link(page, stage), width_of(stage)
    runs_again(stage, link, f"{what}-{scheme}")
    row = both_are_side_by_side(stage, link, f"{what}-{scheme}", width)
    row.get_by_role("button", name="Undo").click()
    wait_for(lambda: not row.count() or row.is_hidden(), "one run")
    more = stage.get_by_role("button", name="One rank more, and run again").locator("visible=true")
    more.click()
    stage.get_by_role("button", name="Run with 5 ranks").click()
    wait_for(lambda: run_of(stage).get("pair"), "both side by side")
    assert row.get_by_role("button").all_inner_texts()[:2] == ["4 ranks", "5 ranks"]
    picture(stage, f"{what}-{scheme}-ranks")
