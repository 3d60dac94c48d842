"""``%%ranks`` in JupyterLab: chunks fly above the cell's output, and the stage obeys."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import notebook_files
from tests.browser.conftest import calls, frame, known, sees_chunks_move, wait_for
from tests.browser.test_lab import CELLS, RUN_ALL, Open, open_notebook

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
LOOP = """%%ranks 4
import os, time
limit = time.monotonic() + 120
while True:  # until the test has seen it, however slow the page is; all ranks stop at one call
    x = torch.full((40_000,), float(os.path.exists({seen!r}) or time.monotonic() > limit))
    dist.all_reduce(x)
    if x[0] == world_size:
        break
    time.sleep(0.2)
print("the loop is over")"""
DEADLOCK = "%%ranks\ndist.recv(x, src=(rank + 1) % world_size)"


@pytest.fixture
def lab_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "notebooks"
    folder.mkdir()
    sources = ["%load_ext workbench", LOOP.format(seen=str(tmp_path / "seen")), DEADLOCK]
    notebook_files.write(folder / "cells.ipynb", sources)
    return folder


@pytest.mark.full
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_cells_are_seen_while_they_run_and_a_deadlock_is_interrupted_from_the_stage(
    lab: str, open_page: Open, scheme: str, tmp_path: Path
) -> None:
    page = open_page(color_scheme=scheme).page
    open_notebook(page, lab.format("cells.ipynb"), scheme)
    page.evaluate(RUN_ALL)
    stage = page.locator(".jp-OutputArea-output .wb-stage").first
    stage.wait_for()
    wait_for(lambda: calls(stage), "a first call")
    assert frame(stage)["scene"] == "collectives" and known(stage, "state") == "running"
    assert known(stage, "words") == "A cell runs on ranks 0-3."
    stage.scroll_into_view_if_needed()
    sees_chunks_move(stage)
    (tmp_path / "seen").touch()
    words = page.locator(".jp-OutputArea-output", has_text="This is a deadlock").first
    words.wait_for()
    assert "waits for rank 0" in words.inner_text()
    page.screenshot(path=tmp_path / "deadlock.png", full_page=True)
    assert page.locator(".wb-stage").count() == 1  # one stage, above the first cell's output
    stage.get_by_role("button", name="Stop").last.click()
    ended = [[], [], ["CellInterrupted"]]
    wait_for(lambda: [names for _, names in page.evaluate(CELLS)] == ended, "the cell's end")
    wait_for(lambda: known(stage, "words") == "The ranks wait for the next cell.", "an idle stage")
    caption = stage.locator(".wb-say")
    wait_for(lambda: "can go on before" in caption.inner_text(), "the circle, as it was")
    page.screenshot(path=tmp_path / "ended.png", full_page=True)
