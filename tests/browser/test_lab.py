"""JupyterLab: the notebooks run and their pictures move; ranks obey while a cell awaits them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, WebSocketRoute

from tests import notebook_files
from tests.browser.conftest import (
    ROOT,
    Watched,
    calls,
    frame,
    known,
    let_draw,
    open_scene,
    sees_chunks_move,
    wait_for,
)

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
RUN_ALL = (
    """() => { window.jupyterapp.commands.execute("notebook:run-all-cells"); }"""  # not awaited
)
SAVE = """() => window.jupyterapp.commands.execute("docmanager:save")"""
CELLS = """() => window.jupyterapp.shell.currentWidget.content.widgets
  .filter((cell) => cell.model.type === "code")
  .map((cell) => [cell.model.executionCount, cell.model.outputs.toJSON()
    .filter((output) => output.output_type === "error").map((output) => output.ename)])"""
CLOSE = """() => {
  const panels = [...window.jupyterapp.shell.widgets("main")];
  const notebook = panels.find((one) => one.node.classList.contains("jp-NotebookPanel"));
  notebook.context.model.dirty = false;
  notebook.close();
}"""
FIRST_START = "(root) => root.stage.known().table.calls[0].start"
DARK = """() => window.jupyterapp.commands
  .execute("apputils:change-theme", { theme: "JupyterLab Dark" })"""
# Its ranks leave the cores to the page.
LONG = """import workbench as wb

run = wb.run(wb.Experiment(ranks=3, iterations=100_000, pad_compute="100 ms"))
run.view("collectives")"""
# anywidget waits two seconds for a widget's module: as on a page that stands still for so long.
TOO_LATE = """
  const timeout = AbortSignal.timeout;
  window.givenUp = 0;
  const over = {
    addEventListener(_, listener) {
      window.givenUp += 1;
      listener();
    },
  };
  AbortSignal.timeout = (ms) => (ms === 2000 ? over : timeout.call(AbortSignal, ms));
"""
Open = Callable[..., Watched]


@pytest.fixture
def lab_folder(tmp_path: Path) -> Path:
    """The repository's notebooks, one whose second cell awaits a long run, and one without that.

    While a cell awaits, ipykernel does not say which widgets there are: a page that is loaded again
    has them only if the kernel answers JupyterLab's first question in four seconds. Busy cores may
    take longer, so that what is loaded again awaits nothing.
    """
    folder = tmp_path / "notebooks"
    folder.mkdir()
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        (folder / path.name).write_bytes(path.read_bytes())
    notebook_files.write(folder / "long.ipynb", [LONG, "result = await run"])
    notebook_files.write(folder / "live.ipynb", [LONG])
    return folder


def open_notebook(page: Page, address: str, scheme: str = "light") -> None:
    page.goto(address, wait_until="domcontentloaded")
    page.wait_for_selector(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Notebook")
    page.evaluate(notebook_files.READY)
    if scheme == "dark":
        page.evaluate(DARK)
        page.wait_for_selector("body[data-jp-theme-light=false]", state="attached")


def first_stage(page: Page) -> Locator:
    stage = page.locator(".jp-OutputArea-output .wb-stage").first
    stage.wait_for()
    stage.scroll_into_view_if_needed()
    wait_for(lambda: known(stage, "state") == "running", "live while it runs")
    wait_for(lambda: calls(stage), "a first call")
    return stage


def one_screen(page: Page, stage: Locator) -> None:
    """Beside the list of files, time is in view under the scene, on one line with the ranks'."""
    before = page.viewport_size
    page.set_viewport_size({"width": 1440, "height": 900})
    let_draw(page, 500)
    bar, bottom, end = stage.evaluate(
        """(root) => {
          root.scrollIntoView({ block: "start" });
          const outer = root.closest(".jp-WindowedPanel-outer").getBoundingClientRect();
          const time = root.querySelector(".wb-time").getBoundingClientRect();
          return [root.querySelector(".wb-time .wb-bar").offsetHeight, time.bottom, outer.bottom];
        }"""
    )
    assert bar < 44 and bottom <= end + 1
    page.set_viewport_size(before)


def stays_within(page: Page, stage: Locator) -> None:
    """However much the line at the top says, the picture is as wide as its place."""
    before = page.viewport_size
    stage.evaluate("(root) => { root.stage.known().run.notes = Array(9).fill('made by us'); }")
    for width in (1440, 900):
        page.set_viewport_size({"width": width, "height": 900})
        let_draw(page, 1000)
        own, place = stage.evaluate(
            """(root) => [root, root.closest(".jp-Cell-outputWrapper")]
              .map((one) => one.getBoundingClientRect().right)"""
        )
        assert own <= place + 1, width
    page.set_viewport_size(before)


@pytest.mark.full
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_first_chapter_shows_moving_chunks(lab: str, open_page: Open, scheme: str) -> None:
    page = open_page(color_scheme=scheme).page
    open_notebook(page, lab.format("01_ring_all_reduce.ipynb"), scheme)
    page.evaluate(RUN_ALL)
    stage = first_stage(page)
    assert frame(stage)["scene"] == "collectives"
    sees_chunks_move(stage)
    assert stage.evaluate("(root) => getComputedStyle(root).colorScheme") == scheme
    wait_for(lambda: known(stage, "state") == "finished", "its end")
    assert known(stage, "counters")["iteration"] == 199
    stage.scroll_into_view_if_needed()
    sees_chunks_move(stage)  # told again
    wait_for(lambda: all(n for n, _ in page.evaluate(CELLS)), "all cells run")
    assert [errors for _, errors in page.evaluate(CELLS) if errors] == []


@pytest.mark.full
def test_ranks_obey_while_a_cell_awaits_them(lab: str, open_page: Open) -> None:
    """Hold, step, go on, kill: and the cell ends with the error that names the rank."""
    page = open_page().page
    open_notebook(page, lab.format("long.ipynb"))
    page.evaluate(RUN_ALL)
    stage = first_stage(page)
    sees_chunks_move(stage)
    hold = stage.get_by_role("button", name="Hold the ranks")
    one_screen(page, stage)
    hold.click()
    wait_for(lambda: known(stage, "control")["held"], "the ranks held")
    wait_for(lambda: known(stage, "control")["standing"], "one that stands; others may wait for it")
    let_draw(page, 500)
    rows = stage.evaluate("(root) => root.stage.known().table.rows")
    let_draw(page, 500)
    assert stage.evaluate("(root) => root.stage.known().table.rows") == rows, "held ranks work on"
    stage.get_by_role("button", name="let every rank go on by one step").click()
    wait_for(lambda: stage.evaluate("(root) => root.stage.known().table.rows") > rows, "a step")
    one_screen(page, stage)
    stage.get_by_role("button", name="Let them run").click()
    wait_for(lambda: not known(stage, "control")["held"], "the ranks let go")
    before = known(stage, "counters")["iteration"]
    wait_for(lambda: known(stage, "counters")["iteration"] > before, "training goes on")

    open_scene(stage, "overview")
    kill_by_keyboard(page, stage, 2)
    wait_for(lambda: known(stage, "state") == "failed", "the failure")
    assert "rank 2" in known(stage, "words")
    wait_for(lambda: page.evaluate(CELLS)[1][1] == ["PeerLost"], "the cell's error")


@pytest.mark.full
def test_a_page_twenty_times_slower_has_a_picture_that_lives(lab: str, open_page: Open) -> None:
    """As after a cold start: anywidget throws away every message of a widget that is too late."""
    watched = open_page()
    page = watched.page
    page.add_init_script(TOO_LATE)
    open_notebook(page, lab.format("long.ipynb"))
    line = page.context.new_cdp_session(page)
    line.send("Emulation.setCPUThrottlingRate", {"rate": 20})
    page.evaluate(RUN_ALL)
    stage = page.locator(".jp-OutputArea-output .wb-stage").first
    stage.wait_for()
    wait_for(lambda: calls(stage), "a first call")
    line.send("Emulation.setCPUThrottlingRate", {"rate": 1})
    assert page.evaluate("givenUp"), "anywidget has given the widget up"
    watched.errors[:] = [
        words for words in watched.errors if "Failed to initialize model" not in words
    ]
    stage.get_by_role("button", name="Stop").last.click()
    wait_for(lambda: known(stage, "state") == "finished", "the end that was asked for")


@pytest.mark.full
def test_without_anywidget_a_picture_and_a_sentence_stand_where_the_stage_would(
    lab: str, open_page: Open
) -> None:
    """As where it was installed after the page was loaded: JupyterLab says "Click to show
    javascript error" until the kernel has heard nothing from the picture for a while.
    """
    watched = open_page()
    page = watched.page
    page.route(re.compile("/labextensions/anywidget|/extensions/anywidget"), lambda r: r.abort())
    open_notebook(page, lab.format("long.ipynb"))
    page.evaluate(RUN_ALL)
    output = page.locator(".jp-OutputArea-output").first
    output.get_by_text("javascript error").wait_for()
    output.get_by_text("has not loaded anywidget").wait_for()
    assert output.get_by_text("javascript error").count() == 0
    picture = output.locator("img")
    wait_for(lambda: picture.evaluate("(one) => one.naturalWidth > 300"), "the picture")
    watched.errors.clear()  # of the module that the page was kept from


def kill_by_keyboard(page: Page, stage: Locator, rank: int) -> None:
    hands = stage.locator(".wb-scene-overview select").last
    hands.select_option(str(rank))
    hands.press("Tab")
    page.keyboard.press("Enter")
    dialog = stage.get_by_role("dialog")
    dialog.get_by_role("button", name="Kill").focus()
    page.keyboard.press("Enter")
    dialog.get_by_role("button", name=f"Kill rank {rank}, for good").focus()
    page.keyboard.press("Enter")


def test_a_tab_of_jupyterlab_is_beside_the_notebook_and_outlives_a_reload(
    lab: str, open_page: Open
) -> None:
    """It has the run's title, can be closed and opened again, and goes with its notebook.

    What is loaded again has the run with its history, and its hands: stop ends it. A page that was
    there from the start might not have heard of the first call's first rank when it is asked: what
    it names first is then a little later than what the history has.
    """
    page = open_page(viewport={"width": 1440, "height": 900}).page
    open_notebook(page, lab.format("live.ipynb"))
    page.evaluate(RUN_ALL)
    stage = first_stage(page)
    first = stage.evaluate(FIRST_START)
    tab = page.locator(".lm-TabBar-tab", has_text="Data parallel")
    docked = page.locator(".wb-lab-tab .wb-stage")

    def lives() -> None:
        wait_for(lambda: calls(docked), "the run's calls in the tab")
        panel = page.locator(".jp-NotebookPanel").bounding_box()
        place = page.locator(".wb-lab-tab").bounding_box()
        assert place["x"] >= panel["x"] + panel["width"], "it is to the right"
        assert place["width"] > 0.9 * panel["width"] and place["height"] > 0.9 * panel["height"]
        before = known(docked, "counters")["iteration"]
        wait_for(lambda: known(docked, "counters")["iteration"] > before, "it lives in its tab")
        assert docked.get_by_role("button", name="Open in a tab of JupyterLab").count() == 0

    stage.get_by_role("button", name="Open in a tab of JupyterLab").click()
    lives()
    page.evaluate(SAVE)
    page.goto(page.url.partition("?")[0], wait_until="domcontentloaded")  # not &reset
    first_stage(page)
    assert stage.evaluate(FIRST_START) <= first
    sees_chunks_move(stage)
    lives()
    tab.locator(".lm-TabBar-tabCloseIcon").click()
    wait_for(lambda: docked.count() == 0, "the tab closed")
    assert stage.is_visible()
    stays_within(page, stage)
    stage.get_by_role("button", name="Open in a tab of JupyterLab").click()
    lives()
    docked.get_by_role("button", name="Stop").last.click()
    wait_for(lambda: known(stage, "state") == "finished", "the end that was asked for")
    page.evaluate(CLOSE)
    wait_for(lambda: tab.count() == 0, "that it goes with its notebook")


@pytest.mark.full
def test_a_line_to_the_kernel_that_breaks_is_mended(lab: str, open_page: Open) -> None:
    """JupyterLab connects again, and asks for all widgets; the picture goes on, and its hands."""
    page = open_page().page
    lines: list[WebSocketRoute] = []

    def pass_on(line: WebSocketRoute) -> None:
        lines.append(line)
        line.connect_to_server()

    page.route_web_socket(re.compile("/channels"), pass_on)
    open_notebook(page, lab.format("long.ipynb"))
    page.evaluate(RUN_ALL)
    stage = first_stage(page)
    for _ in range(2):
        broken = len(lines)
        lines[-1].close()
        # Playwright answers the new line while it is asked something.
        wait_for(lambda n=broken: page.evaluate("0") or len(lines) > n, "another line")
        before = known(stage, "counters")["iteration"]
        wait_for(lambda b=before: known(stage, "counters")["iteration"] > b + 1, "it goes on")
        # A cell keeps the kernel's main thread busy: until JupyterLab has another thread for the
        # new line's messages, which a second break would take along, none is heard.
        for button, held in (("Hold the ranks", True), ("Let them run", False)):
            stage.get_by_role("button", name=button).last.click()
            wait_for(lambda h=held: known(stage, "control")["held"] is h, button)
    sees_chunks_move(stage)
    stage.get_by_role("button", name="Stop").last.click()
    wait_for(lambda: known(stage, "state") == "finished", "the end that was asked for")
    wait_for(lambda: all(n for n, _ in page.evaluate(CELLS)), "the cell's end, which it hears of")
