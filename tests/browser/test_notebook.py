"""Plain Notebook 7: the same widgets as in JupyterLab, and stored pictures without a kernel."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests import notebook_files
from tests.browser.conftest import ROOT, Watched, calls, known, sees_chunks_move, wait_for

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
LONG = """import workbench as wb

run = wb.run(wb.Experiment(ranks=2, iterations=100_000, pad_compute="100 ms"))
run.view("collectives")"""
Open = Callable[..., Watched]


@pytest.fixture
def lab_folder(tmp_path: Path) -> Path:
    """A chapter with its stored outputs, and a notebook of two cells."""
    folder = tmp_path / "notebooks"
    folder.mkdir()
    name = "01_ring_all_reduce.ipynb"
    (folder / name).write_bytes((ROOT / "notebooks" / name).read_bytes())
    notebook_files.write(folder / "long.ipynb", [LONG, "wb.lab()"])
    return folder


def test_widgets_live_and_stored_pictures_are_shown(lab: str, open_page: Open) -> None:
    assert find_spec("notebook"), "Notebook 7 is not installed: pip install -e '.[test]'"
    plain = lab.replace("/lab/tree/", "/notebooks/")
    watched = open_page(reduced_motion="reduce")  # the cards' pictures stand still
    page = watched.page
    page.goto(plain.format("01_ring_all_reduce.ipynb"), wait_until="domcontentloaded")
    picture = page.locator(".jp-OutputArea-output img, .jp-OutputArea-output svg").first
    picture.wait_for()
    assert picture.bounding_box()["width"] > 300
    page.wait_for_timeout(2_000)
    its_own = {*watched.errors}  # Notebook's, as it starts: no cell has run

    page.goto(plain.format("long.ipynb"), wait_until="domcontentloaded")
    page.locator(".jp-Notebook .jp-CodeCell").nth(1).wait_for()
    page.evaluate(notebook_files.READY)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    stage = page.locator(".jp-OutputArea-output .wb-stage").first
    stage.wait_for()
    stage.scroll_into_view_if_needed()
    wait_for(lambda: known(stage, "state") == "running", "live while it runs")
    wait_for(lambda: calls(stage), "a first call")
    page.emulate_media(reduced_motion="no-preference")
    sees_chunks_move(stage)
    page.emulate_media(reduced_motion="reduce")
    page.locator(".jp-OutputArea-output").get_by_text("Ring of four").first.wait_for()
    assert {*watched.errors} <= its_own
    watched.errors.clear()
