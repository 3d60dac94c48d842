"""``wb.lab()`` in JupyterLab: a preset, Run, the stage moves, charts grow, the form is never lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Locator, Page

from tests.browser.conftest import Watched, known, sees_chunks_move, wait_for
from tests.browser.test_lab import DARK, READY, RUN_ALL

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
PICTURES = os.environ.get("WORKBENCH_PICTURES")  # a folder: then pictures are left there
POINTS = """(box) => [...box.querySelectorAll(".js-plotly-plot")]
  .map((plot) => [plot.layout.title.text, plot.data.map((trace) => trace.x?.length ?? 0)])"""


@pytest.fixture
def lab_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "notebooks"
    folder.mkdir()
    cells = ["import workbench as wb\n\nlab = wb.lab()\nlab"]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell) for cell in cells], metadata={"kernelspec": kernel}
    )
    nbformat.write(notebook, folder / "lab.ipynb")
    return folder


def opened(lab: str, page: Page, scheme: str) -> Locator:
    """The laboratory in a notebook that was just run."""
    page.goto(lab.format("lab.ipynb"), wait_until="domcontentloaded")
    page.wait_for_selector(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Notebook", timeout=60_000)
    page.evaluate(READY)
    if scheme == "dark":
        page.evaluate(DARK)
        page.wait_for_selector("body[data-jp-theme-light=false]", state="attached")
    page.evaluate(RUN_ALL)
    found = page.locator(".jp-OutputArea-output .wb-lab").first
    found.wait_for(timeout=60_000)
    return found


def picture(box: Locator, name: str) -> None:
    if PICTURES:
        box.screenshot(path=f"{PICTURES}/{name}.png")


def field(box: Locator, name: str) -> Locator:
    return box.locator(f".wb-field-{name}")


def button(box: Locator, name: str) -> Locator:
    return box.locator(f"button.wb-{name}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_preset_runs_and_the_charts_grow(
    lab: str, open_page: Callable[..., Watched], scheme: str
) -> None:
    page = open_page(color_scheme=scheme, viewport={"width": 1300, "height": 2400}).page
    box = opened(lab, page, scheme)
    stage = box.locator(".wb-stage").first
    stage.wait_for(timeout=30_000)
    wait_for(lambda: known(stage, "state") == "empty", "nothing runs yet")
    wait_for(lambda: len(box.evaluate(POINTS)) >= 2, "charts before the first run")
    picture(box, f"laboratory-empty-{scheme}")

    box.locator(".wb-row select").first.select_option("A slow link")
    wait_for(lambda: "20 ms" in box.locator(".wb-code pre").inner_text(), "the preset's code")
    button(box, "start").click()
    wait_for(lambda: known(stage, "state") == "running", "a run", 60)
    stage.scroll_into_view_if_needed()
    sees_chunks_move(stage)
    first = wait_for(lambda: longest(box), "points while it runs")
    wait_for(lambda: longest(box) > first, "more points")
    assert button(box, "start").is_disabled()
    picture(box, f"laboratory-running-{scheme}")
    wait_for(lambda: known(stage, "state") == "finished", "its end", 90)
    wait_for(lambda: longest(box) == 30, "a point for each iteration")
    wait_for(lambda: button(box, "start").is_enabled(), "another run may start")
    box.locator(".wb-compare").wait_for()
    picture(box, f"laboratory-finished-{scheme}")


def longest(box: Locator) -> int:
    return max([0, *(n for title, points in box.evaluate(POINTS)[:5] for n in points)])
