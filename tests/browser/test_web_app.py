"""``workbench serve`` in a real browser: from one click to a saved page, and what ends when."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page

from tests.browser.app_pages import (
    FIRST,
    Open,
    choose,
    is_live,
    iteration,
    pids,
    rows,
    stage_of,
    start,
    start_page,
    started,
    state,
    to_the_end,
)
from tests.browser.conftest import GRACE, known, wait_for
from tests.conftest import processes
from tests.live import gone

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
MOVES = """async (root) => {
  const name = (m) => [m.group, m.rank, m.peer, m.op, m.step, m.chunk, m.slot].join();
  const first = new Map(root.stage.frame().marks.map((m) => [name(m), m]));
  await new Promise((on) => setTimeout(on, 100));
  await new Promise(requestAnimationFrame);
  const far = (a, b) => Math.hypot(a.x - b.x, a.y - b.y);
  return root.stage.frame().marks.some((m) => first.has(name(m)) && far(first.get(name(m)), m) > 0);
}"""

# A failed run stays at its last moment; this tells its last whole call again, from the start.
TELL_ONE = """(root) => {
  const { table } = root.stage.known();
  root.stage.show(table.calls.findLast((call) => call.complete).key);
}"""


# ---- one click


# The scenes that a page's picture shows, frame by frame, from its first.
SCENES = """(() => { const seen = (window.scenes = []); const find = (at) => {
    for (const one of at.querySelectorAll("*")) {
      if (one.classList.contains("wb-stage")) return one;
      const found = one.shadowRoot && find(one.shadowRoot);
      if (found) return found;
    } };
  const look = () => { const scene = find(document)?.dataset.scene;
    if (scene && scene !== seen.at(-1)) seen.push(scene);
    requestAnimationFrame(look); };
  look(); })()"""


@pytest.mark.full
def test_one_click_and_chunks_move(web_app: str, open_page: Open) -> None:
    page = open_page().page
    page.add_init_script(SCENES)
    start_page(page, web_app)
    began = time.monotonic()
    page.get_by_role("button", name=FIRST).click()
    stage = started(page)
    wait_for(lambda: stage.evaluate(MOVES), "a chunk on the move")
    print(f"from the click to a moving chunk: {time.monotonic() - began:.1f} s")
    run = known(stage, "run")
    assert (run["ranks"], run["algorithm"], run["readonly"]) == (4, "ring", False)
    assert len(pids(stage)) == 4
    assert page.get_by_role("heading", level=1).inner_text() == "Ring of four"
    assert page.evaluate("scenes") == ["collectives"], "no other scene while it loads"
    page.keyboard.press("1")
    wait_for(lambda: stage.get_attribute("data-scene") == "overview", "a key before any click")


@pytest.mark.full
def test_a_card_starts_what_it_says_however_late_the_server_answers(
    web_app: str, open_page: Open
) -> None:
    """Between a click and its answer nothing can be started, and what starts is what was chosen."""
    page = open_page().page
    late: list[Any] = []  # what the server says, while it is held back
    held = False

    def route(browser_side: Any) -> None:
        server = browser_side.connect_to_server()
        server.on_message(
            lambda m: late.append((browser_side, m)) if held else browser_side.send(m)
        )

    page.route_web_socket(re.compile(r"/ws"), route)
    start_page(page, web_app)
    button = page.get_by_role("button", name="Start this run")
    held = True
    page.get_by_role("button", name="Change first: A straggler", exact=True).click()
    # only a call to the page lets messages come in
    wait_for(lambda: page.title() is not None and late, "the server's answer, which is late")
    for one in (page.locator("button.main"), page.locator(".place-form button.card")):
        assert all(one.nth(i).is_disabled() for i in range(one.count()))
    assert page.locator("button.main").first.inner_text() == "Filling in A straggler …"
    held = False
    for browser_side, message in late:
        browser_side.send(message)
    wait_for(button.is_enabled, "that it can be started")
    assert page.locator("button.main").first.inner_text() == "Start: a straggler"
    assert "Slow(rank=2" in page.locator("pre").inner_text()
    page.locator("#field-iterations").fill("3")
    wait_for(
        lambda: page.locator("button.main").first.inner_text() == "Start: a straggler, changed",
        "the name of what it starts now",
    )
    page.locator("button.card", has_text="Two ranks").click()
    stage = started(page)
    assert known(stage, "run")["ranks"] == 2
    assert page.get_by_role("heading", level=1).inner_text() == "Two ranks"


def prepared() -> bool:
    """Return whether a server has a process that forks ranks."""
    return any(
        b"serve" in Path(f"/proc/{parent}/cmdline").read_bytes()
        for parent, _ in processes().values()
        if Path(f"/proc/{parent}").exists()
    )


@pytest.mark.full
def test_opening_pages_prepares_ranks_and_starts_no_run(web_app: str, open_page: Open) -> None:
    page = open_page().page
    start_page(page, web_app)
    page.get_by_text("None yet.").wait_for()
    wait_for(prepared, "ranks for the first run")
    assert not page.evaluate("() => 'Plotly' in window"), "it comes with the first chart"
    page.goto(f"{web_app}run?id=there-is-none")
    assert page.get_by_role("heading", level=1).inner_text() == "There is no such run here"


# ---- the whole path


def viewed(page: Page, viewer: Page) -> Locator:
    """The view of a visitor who sees the same run and cannot steer it."""
    link = page.get_by_label("To watch only:").input_value()
    assert page.url.partition("id=")[2] not in link
    viewer.goto(link)
    watched = stage_of(viewer)
    wait_for(lambda: known(watched, "run")["readonly"], "a page that only watches")
    wait_for(lambda: rows(watched), "the run's history")
    assert viewer.get_by_role("button", name="Hold the ranks").count() == 0
    assert viewer.get_by_role("button", name="Run it again").count() == 0
    assert viewer.get_by_role("link", name="Save as a page").count() == 0
    return watched


def stands_still(stage: Locator) -> int:
    """Return the iteration that a stage shows once it has shown it for a second: it shows what has
    happened, however late it comes to it.
    """
    iterations = [-1, iteration(stage)]

    def same() -> bool:
        time.sleep(1.0)
        iterations.append(iteration(stage))
        return iterations[-1] == iterations[-2]

    wait_for(same, "a picture that stands")
    return iterations[-1]


def hold_and_let_run(page: Page, stage: Locator, watched: Locator) -> None:
    """All pages see that the ranks are held, and nothing goes on."""
    page.get_by_role("button", name="Hold the ranks").click()
    for one in (stage, watched):
        wait_for(lambda one=one: known(one, "control")["held"], "ranks that are held")
    stood = stands_still(stage)
    time.sleep(1.0)
    assert iteration(stage) == stood
    page.get_by_role("button", name="Let them run").first.click()
    wait_for(lambda: iteration(stage) > stood, "that they go on")


def kill_rank_2(stage: Locator) -> None:
    stage.get_by_role("tab", name="Overview").click()
    stage.locator(".wb-scene-overview select").last.select_option("2")
    stage.get_by_role("button", name="Change …").click()
    stage.get_by_role("dialog").get_by_role("button", name="Kill …").click()
    stage.get_by_role("button", name="Kill rank 2, for good").click()


def test_start_watch_hold_kill_reopen_compare_replay(
    web_app: str, open_page: Open, tmp_path: Path
) -> None:
    mine = open_page()
    page = mine.page
    start_page(page, web_app)
    choose(page, "Two ranks", iterations=3)
    short = start(page)
    wait_for(lambda: state(short) == "finished", "the end of the short run")

    start_page(page, web_app)
    choose(page, "A slow link", iterations=90_000)
    wait_for(lambda: "iterations=90000" in page.locator("pre").inner_text(), "the code to copy")
    stage = start(page)
    wait_for(lambda: stage.evaluate(MOVES), "a chunk on the move")
    assert "link 0 → 1" in stage.locator(".wb-made").inner_text()

    watched = viewed(page, open_page().page)
    hold_and_let_run(page, stage, watched)

    # A rank killed by hand: the page says which, and so does the viewer's.
    ranks = pids(stage)
    kill_rank_2(stage)
    for one in (stage, watched):
        wait_for(lambda one=one: state(one) == "failed", "the failure")
        assert "rank 2" in one.evaluate("(root) => root.stage.known().words")
    wait_for(lambda: gone(ranks), "the ranks' end")

    # The address comes back to it, with all that was recorded.
    kept, where = rows(stage), page.url
    page.close()
    again = mine.page.context.new_page()
    again.goto(where)
    stage = stage_of(again)
    wait_for(lambda: rows(stage) == kept, "the whole history")
    assert state(stage) == "failed"

    # Both runs of this browser stand side by side.
    wait_for(lambda: again.locator("thead th").count() == 3, "the comparison")
    to_the_end(again)
    again.get_by_text("Losses compared").first.wait_for()
    assert "2 · A slow link, changed" in again.locator("thead").inner_text()
    states = again.locator("tbody tr", has_text="state").first.inner_text().split()
    assert states == ["state", "finished", "failed"]
    again.get_by_label("Compare 1 · Two ranks, changed").uncheck()
    wait_for(lambda: again.locator("thead th").count() == 2, "one run less")

    # The saved page tells the same from a file, without a server.
    with again.expect_download() as saved:
        again.get_by_role("link", name="Save as a page").click()
    file = tmp_path / saved.value.suggested_filename
    saved.value.save_as(file)
    replay = open_page().page
    replay.goto(file.as_uri())
    stage = stage_of(replay)
    assert state(stage) == "failed" and rows(stage) > 0
    stage.evaluate("(root) => root.stage.open('collectives')")
    stage.evaluate(TELL_ONE)
    wait_for(lambda: stage.evaluate(MOVES), "a chunk on the move")


@pytest.mark.full
def test_run_it_again(web_app: str, open_page: Open) -> None:
    page = open_page().page
    start_page(page, web_app)
    choose(page, "Two ranks", iterations=3)
    stage = start(page)
    wait_for(lambda: state(stage) == "finished", "its end")
    first = page.url
    page.get_by_role("button", name="Run it again").click()
    page.wait_for_url(lambda url: url != first, wait_until="commit")
    stage = stage_of(page)
    wait_for(lambda: state(stage) == "finished", "the end of the second")
    wait_for(lambda: page.locator("thead th").count() == 3, "both in the comparison")


# ---- what lives how long


@pytest.mark.full
def test_of_two_tabs_one_closes_and_its_ranks_end_the_others_go_on(
    web_app: str, open_page: Open
) -> None:
    pages = [open_page().page for _ in range(2)]
    stages = []
    for page in pages:
        start_page(page, web_app)
        choose(page, "Two ranks", iterations=100_000)
        stages.append(start(page))
    wait_for(lambda: all(map(is_live, stages)), "both runs live")
    mine, others = map(pids, stages)
    assert not set(mine) & set(others)
    closed = time.monotonic()
    pages[0].close()
    time.sleep(GRACE - 3)
    assert not gone(mine[:1]), "they have time to come back"
    wait_for(lambda: gone(mine), "the end of the closed tab's ranks")
    print(f"ranks ended {time.monotonic() - closed:.1f} s after their page")
    before = iteration(stages[1])
    assert is_live(stages[1]) and not any(gone([pid]) for pid in others)
    wait_for(lambda: iteration(stages[1]) > before, "that the other run goes on")


@pytest.mark.full
def test_viewers_keep_no_run_alive(web_app: str, open_page: Open) -> None:
    page, viewer = open_page().page, open_page().page
    start_page(page, web_app)
    choose(page, "Two ranks", iterations=100_000)
    ranks = pids(start(page))
    viewer.goto(page.get_by_label("To watch only:").input_value())
    watched = stage_of(viewer)
    wait_for(lambda: is_live(watched), "the run")
    page.close()
    wait_for(lambda: gone(ranks), "the ranks' end", GRACE + 15)
    words = f"Its last page had been closed for {GRACE:.0f} s"
    wait_for(lambda: words in viewer.locator(".notice").inner_text(), "why it ended")
    wait_for(lambda: state(watched) == "finished", "its end on the page")


@pytest.mark.full
def test_a_reload_comes_back_to_the_live_run_with_its_history(
    web_app: str, open_page: Open
) -> None:
    page = open_page().page
    start_page(page, web_app)
    page.get_by_role("button", name=FIRST).click()
    stage = started(page)
    wait_for(lambda: iteration(stage) > 5, "some iterations")
    begins = "(root) => root.stage.known().table.from"
    begun = stage.evaluate(begins)
    ranks, kept, id = pids(stage), rows(stage), known(stage, "run")["id"]
    page.reload()
    stage = stage_of(page)
    assert known(stage, "run")["id"] == id and pids(stage) == ranks
    wait_for(lambda: rows(stage) >= kept, "its history")
    assert stage.evaluate(begins) == begun, "from its first row on"
    before = iteration(stage)
    wait_for(lambda: iteration(stage) > before, "that it goes on")
    time.sleep(GRACE + 3)
    assert is_live(stage) or state(stage) == "finished", "the old page's end is not the run's"
    assert page.get_by_text("Its last page had been closed").count() == 0


@pytest.mark.full
def test_a_lost_server_leaves_no_rank(web_app: str, open_page: Open, tmp_path: Path) -> None:
    page = open_page().page
    start_page(page, web_app)
    choose(page, "Two ranks", iterations=100_000)
    stage = start(page)
    wait_for(lambda: is_live(stage), "the run")
    ranks = pids(stage)
    (server,) = {
        int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) for pid in ranks
    }
    os.kill(server, signal.SIGKILL)  # the process that starts ranks: they go with it
    wait_for(lambda: gone(ranks), "the ranks' end")
    wait_for(lambda: state(stage) == "failed", "that the page says so")


@pytest.mark.full
def test_one_rank_more_by_keyboard_and_both_are_side_by_side(web_app: str, open_page: Open) -> None:
    page = open_page().page
    start_page(page, web_app)
    choose(page, "Two ranks", iterations=6)
    stage = start(page)
    more = stage.get_by_role("button", name="One rank more, and run again").locator("visible=true")
    wait_for(lambda: state(stage) == "finished" and more.count(), "its end")
    first = page.url
    more.focus()
    page.keyboard.press("Enter")
    dialog = stage.get_by_role("dialog", name="3 ranks instead of 2")
    assert "The same experiment runs with 3 ranks" in dialog.inner_text()
    page.keyboard.press("Escape")
    assert dialog.count() == 0
    assert more.evaluate("(button) => button === button.getRootNode().activeElement")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")  # the keyboard is on: Run with 3 ranks
    page.wait_for_url("**&before=*", wait_until="commit")
    stage = stage_of(page)
    wait_for(lambda: (known(stage, "run") or {}).get("pair"), "both side by side")
    row = stage.get_by_role("group", name="Before and after")
    pressed = row.locator("button[aria-pressed=true]")
    wait_for(lambda: pressed.all_inner_texts() == ["side by side"], "the row")
    assert "iteration takes" in row.inner_text()
    row.get_by_role("button", name="2 ranks").press("Enter")
    wait_for(lambda: known(stage, "run")["ranks"] == 2, "the run before")
    row.get_by_role("button", name="Undo").press("Enter")
    page.wait_for_url(first, wait_until="commit")
