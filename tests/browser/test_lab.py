"""JupyterLab runs the first notebook: the stage is live while cells run, and no cell fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.browser.conftest import Watched, known, sees_chunks_move, wait_for

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
READY = """async () => {
  await window.jupyterapp.restored;
  const panel = window.jupyterapp.shell.currentWidget;
  await panel.context.ready;
  await panel.sessionContext.ready;
  await panel.sessionContext.session.kernel.info;
}"""
RUN_ALL = (
    """() => { window.jupyterapp.commands.execute("notebook:run-all-cells"); }"""  # not awaited
)
CELLS = """() => window.jupyterapp.shell.currentWidget.content.widgets
  .filter((cell) => cell.model.type === "code")
  .map((cell) => [cell.model.executionCount, cell.model.outputs.toJSON()
    .filter((output) => output.output_type === "error").map((output) => output.ename)])"""
DARK = """() => window.jupyterapp.commands
  .execute("apputils:change-theme", { theme: "JupyterLab Dark" })"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_first_notebook_shows_moving_chunks(
    lab: str, open_page: Callable[..., Watched], scheme: str
) -> None:
    page = open_page(color_scheme=scheme).page
    page.goto(lab.format("01_ring_all_reduce.ipynb"), wait_until="domcontentloaded")
    page.wait_for_selector(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Notebook", timeout=60_000)
    page.evaluate(READY)
    if scheme == "dark":
        page.evaluate(DARK)
        page.wait_for_selector("body[data-jp-theme-light=false]", state="attached")
    page.evaluate(RUN_ALL)
    stage = page.locator(".jp-OutputArea-output .wb-stage").first
    stage.wait_for(timeout=60_000)
    stage.scroll_into_view_if_needed()
    wait_for(lambda: known(stage, "state") == "running", "live while it runs", 60)
    wait_for(lambda: known(stage, "calls"), "a first call")
    sees_chunks_move(stage)
    assert stage.evaluate("(root) => getComputedStyle(root).colorScheme") == scheme
    wait_for(lambda: known(stage, "state") == "finished", "its end", 60)
    assert known(stage, "counters")["iteration"] == 199
    sees_chunks_move(stage)  # told again
    wait_for(lambda: all(n for n, _ in page.evaluate(CELLS)), "all cells run", 120)
    assert [errors for _, errors in page.evaluate(CELLS) if errors] == []
