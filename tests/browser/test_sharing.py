"""A run that is over, in the web app and JupyterLab: its moment as an address or a line of Python,
its picture as PNG, SVG and GIF; larger for a lecture hall, and on the full screen.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page

from tests import notebook_files
from tests.browser.app_pages import choose, stage_of, start, start_page
from tests.browser.conftest import Watched, frame, known, open_scene, wait_for
from tests.browser.recorded_runs import replay
from tests.browser.test_lab import RUN_ALL, open_notebook
from tests.browser.test_trials import picture

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
BEGINS = {"png": b"\x89PNG\r\n", "svg": b"<svg ", "gif": b"GIF89a", "webm": b"\x1aE\xdf\xa3"}
CELL = """import workbench as wb

run = wb.run(wb.Experiment(ranks=3, iterations=5, batch_size=16))
run.view("collectives")"""
RUN_IN_NEW_CELL = """async (code) => {
  const { commands, shell } = window.jupyterapp;
  await commands.execute("notebook:insert-cell-below");
  shell.currentWidget.content.activeCell.model.sharedModel.setSource(code);
  commands.execute("notebook:run-cell");
}"""
Open = Callable[..., Watched]


@pytest.fixture
def lab_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "notebooks"
    folder.mkdir()
    notebook_files.write(folder / "view.ipynb", [CELL])
    return folder


def is_over(stage: Locator) -> None:
    wait_for(lambda: known(stage, "state") == "finished", "its end")
    open_scene(stage, "collectives")


def grows_and_comes_back(page: Page, stage: Locator) -> None:
    """P makes all type larger, F fills the screen; both come back."""

    def type_height() -> float:
        return stage.get_by_role("tab", name="Collectives").bounding_box()["height"]  # type: ignore[index]

    def is_full() -> bool:
        return stage.evaluate("""(root) => {
          const { fullscreenElement } = root.getRootNode();
          return !!fullscreenElement?.contains(root);
        }""")

    height = type_height()
    stage.focus()
    page.keyboard.press("p")
    wait_for(lambda: type_height() > 1.2 * height, "larger type")
    page.keyboard.press("p")
    wait_for(lambda: type_height() < 1.1 * height, "as before")
    page.keyboard.press("f")
    wait_for(is_full, "the full screen")
    page.keyboard.press("f")
    wait_for(lambda: not is_full(), "the page again")


def moment_copied(page: Page, stage: Locator) -> tuple[str, dict]:
    """Hold the view within a call, with rank 1 chosen; return what C copies, and the frame."""
    stage.evaluate(
        """(root) => {
          const { table } = root.stage.known();
          const call = table.calls[4];
          root.stage.goto(call.start + 0.4 * (call.end - call.start));
        }"""
    )
    stage.focus()
    page.keyboard.press("c")
    return stage.get_by_label("this moment").input_value(), frame(stage)


def saves_pictures(page: Page, stage: Locator) -> None:
    for kind, start_bytes in BEGINS.items():
        stage.get_by_role("button", name="Share").click()
        with page.expect_download() as file:
            stage.locator(f"[data-share={kind}]").click()
        call = frame(stage)["call"]["number"]
        assert file.value.suggested_filename == f"collectives-call-{call}.{kind}"
        assert Path(file.value.path()).read_bytes().startswith(start_bytes)
        wait_for(lambda: "Saved as" in stage.locator(".wb-answer").inner_text(), "what was saved")


def is_that_moment(stage: Locator, moment: dict) -> None:
    wait_for(lambda: frame(stage)["call"] == moment["call"], "the same call")
    assert frame(stage)["scene"] == "collectives"
    assert frame(stage)["t"] == pytest.approx(moment["t"], abs=1)


def test_a_picture_has_no_part_that_only_a_page_can_press(open_page: Open) -> None:
    page = open_page().page
    stage = replay(page, "peer_lost")
    open_scene(stage, "timeline")
    stage.get_by_role("button", name="Share").click()
    with page.expect_download() as file:
        stage.locator("[data-share=svg]").click()
    picture = Path(file.value.path()).read_text()
    assert "iteration" in picture and "Link here" not in picture
    field = stage.locator(".wb-typed[data-rows=find]").bounding_box()
    assert field and f'width="{field["width"]:g}" height=' not in picture, "an empty frame"


@pytest.mark.full
def test_the_web_app(web_app: str, open_page: Open) -> None:
    page = open_page().page
    start_page(page, web_app)
    choose(page, "Two ranks", iterations=5)
    stage = start(page)
    is_over(stage)
    grows_and_comes_back(page, stage)
    address, moment = moment_copied(page, stage)
    assert address.startswith(page.url.partition("#")[0])
    saves_pictures(page, stage)
    page.goto("about:blank")
    page.goto(address)
    is_that_moment(stage_of(page), moment)


@pytest.mark.full
def test_jupyterlab(lab: str, open_page: Open) -> None:
    page = open_page(viewport={"width": 1440, "height": 900}).page
    open_notebook(page, lab.format("view.ipynb"))
    page.evaluate(RUN_ALL)
    stages = page.locator(".jp-Notebook .jp-OutputArea-output .wb-stage")
    stages.first.wait_for()
    stage = stages.first
    is_over(stage)
    grows_and_comes_back(page, stage)
    picture(stage, "lab-sharing")
    code, moment = moment_copied(page, stage)
    assert code.startswith('run.view("collectives", moment="'), json.dumps(code)
    saves_pictures(page, stage)
    page.evaluate(RUN_IN_NEW_CELL, code)
    wait_for(lambda: stages.count() == 2, "a second picture")
    is_that_moment(stages.nth(1), moment)
    stage.get_by_role("button", name="Open in a tab of JupyterLab").click()
    docked = page.locator(".wb-lab-tab .wb-stage")
    docked.wait_for()
    is_over(docked)
    docked.focus()
    page.keyboard.press("p")
    wait_for(lambda: docked.get_by_label("Larger").get_attribute("aria-pressed") == "true", "P")
