"""``workbench serve`` in a real browser: from one click to a saved page, and what ends when."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page

from tests.browser.conftest import GRACE, Watched, known, wait_for
from tests.live import gone

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
FIRST = "Start: ring of four"
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

Open = Callable[..., Watched]
Serve = Callable[..., str]


def start_page(page: Page, address: str) -> None:
    page.goto(address)
    page.get_by_role("button", name=FIRST).wait_for(timeout=60_000)


def choose(page: Page, preset: str, **fields: object) -> None:
    """Press a preset, wait for the server's answer, then fill fields by their names."""
    button = page.get_by_role("button", name=re.compile(f"^{re.escape(preset)}"))
    button.click()
    wait_for(lambda: button.get_attribute("aria-pressed") == "true", f"the preset {preset}")
    for name, value in fields.items():
        page.locator(f"#field-{name}").fill(str(value))
    page.keyboard.press("Tab")


def started(page: Page) -> Locator:
    """The stage of the run that a button has just started."""
    page.wait_for_url("**/run?id=*", timeout=60_000, wait_until="commit")
    return stage_of(page)


def stage_of(page: Page) -> Locator:
    stage = page.locator(".wb-stage")
    stage.wait_for(timeout=60_000)
    wait_for(lambda: known(stage, "run"), "the run's first message", 60)
    return stage


def start(page: Page) -> Locator:
    page.get_by_role("button", name="Start this run").click()
    return started(page)


def state(stage: Locator) -> Any:
    return known(stage, "state")


def is_live(stage: Locator) -> bool:
    return state(stage) == "running"


def pids(stage: Locator) -> list[int]:
    control = wait_for(lambda: (known(stage, "control") or {}).get("pids"), "the ranks' processes")
    return [int(pid) for pid in dict(control).values()]  # type: ignore[call-overload]


def iteration(stage: Locator) -> int:
    return known(stage, "counters")["iteration"]  # type: ignore[index]


def rows(stage: Locator) -> int:
    return stage.evaluate("(root) => root.stage.known().table.rows")


def dark(place: Locator) -> bool:
    """Whether the ground that is seen there is dark."""
    colour = place.evaluate("(node) => getComputedStyle(node).backgroundColor")
    return sum(int(part) for part in re.findall(r"\d+", colour)[:3]) < 3 * 128


# ---- one click


def test_one_click_and_chunks_move(web_app: str, open_page: Open) -> None:
    page = open_page().page
    start_page(page, web_app)
    began = time.monotonic()
    page.get_by_role("button", name=FIRST).click()
    stage = started(page)
    wait_for(lambda: stage.evaluate(MOVES), "a chunk on the move", 60)
    print(f"from the click to a moving chunk: {time.monotonic() - began:.1f} s")
    run = known(stage, "run")
    assert (run["ranks"], run["algorithm"], run["readonly"]) == (4, "ring", False)
    assert len(pids(stage)) == 4
    assert page.get_by_role("heading", level=1).inner_text() == "Ring of four"


def test_opening_pages_starts_no_rank(web_app: str, open_page: Open) -> None:
    page = open_page().page
    start_page(page, web_app)
    page.get_by_text("None yet.").wait_for()
    page.goto(f"{web_app}run?id=nobody-has-this")
    assert page.get_by_role("heading", level=1).inner_text() == "There is no such run here"


# ---- the whole path


def test_start_watch_hold_kill_reopen_compare_replay(
    web_app: str, open_page: Open, tmp_path: Path
) -> None:
    mine = open_page()
    page = mine.page
    start_page(page, web_app)
    choose(page, "Two ranks", iterations=3)
    short = start(page)
    wait_for(lambda: state(short) == "finished", "the end of the short run", 60)

    start_page(page, web_app)
    choose(page, "A slow link", iterations=100_000)
    wait_for(lambda: "iterations=100000" in page.locator("pre").inner_text(), "the code to copy")
    stage = start(page)
    wait_for(lambda: stage.evaluate(MOVES), "a chunk on the move", 60)
    assert "link 0 → 1" in stage.locator(".wb-made").inner_text()

    # A viewer sees the same run and has no hand on it.
    link = page.get_by_label("To watch only:").input_value()
    assert page.url.partition("id=")[2] not in link
    viewer = open_page().page
    viewer.goto(link)
    watched = stage_of(viewer)
    wait_for(lambda: known(watched, "run")["readonly"], "a page that only watches")
    wait_for(lambda: rows(watched), "the run's history")
    assert viewer.get_by_role("button", name="Hold the ranks").is_disabled()
    assert viewer.get_by_role("button", name="Run it again").count() == 0
    assert viewer.get_by_role("link", name="Save as a page").count() == 0

    # Hold: everybody sees it, and nothing goes on.
    page.get_by_role("button", name="Hold the ranks").click()
    for one in (stage, watched):
        wait_for(lambda one=one: known(one, "control")["held"], "ranks that are held")
    time.sleep(0.5)
    stood = iteration(stage)
    time.sleep(1.0)
    assert iteration(stage) == stood
    page.get_by_role("button", name="Let them run").first.click()
    wait_for(lambda: iteration(stage) > stood, "that they go on")

    # Kill a rank by hand; the page says who, and so does the viewer's.
    ranks = pids(stage)
    stage.get_by_role("tab", name="Overview").click()
    stage.locator(".wb-scene-overview select").last.select_option("2")
    stage.get_by_role("button", name="Change …").click()
    stage.get_by_role("dialog").get_by_role("button", name="Kill …").click()
    stage.get_by_role("button", name="Kill rank 2, for good").click()
    for one in (stage, watched):
        wait_for(lambda one=one: state(one) == "failed", "the failure", 60)
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
    assert "2 · A slow link, changed" in again.locator("thead").inner_text()
    states = again.locator("tbody tr", has_text="state").first.inner_text().split()
    assert states == ["state", "finished", "failed"]
    again.get_by_label("Compare 1 · Two ranks, changed").uncheck()
    wait_for(lambda: again.locator("thead th").count() == 2, "one run less")

    # The saved page tells the same from a file, without a server.
    with again.expect_download(timeout=60_000) as saved:
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


def test_run_it_again(web_app: str, open_page: Open) -> None:
    page = open_page().page
    start_page(page, web_app)
    choose(page, "Two ranks", iterations=3)
    stage = start(page)
    wait_for(lambda: state(stage) == "finished", "its end", 60)
    first = page.url
    page.get_by_role("button", name="Run it again").click()
    page.wait_for_url(lambda url: url != first, timeout=60_000, wait_until="commit")
    stage = stage_of(page)
    wait_for(lambda: state(stage) == "finished", "the end of the second", 60)
    wait_for(lambda: page.locator("thead th").count() == 3, "both in the comparison")


# ---- what lives how long


def test_of_two_tabs_one_closes_and_its_ranks_end_the_others_go_on(
    web_app: str, open_page: Open
) -> None:
    pages = [open_page().page for _ in range(2)]
    stages = []
    for page in pages:
        start_page(page, web_app)
        choose(page, "Two ranks", iterations=100_000)
        stages.append(start(page))
    wait_for(lambda: all(map(is_live, stages)), "both runs live", 60)
    mine, others = map(pids, stages)
    assert not set(mine) & set(others)
    closed = time.monotonic()
    pages[0].close()
    time.sleep(GRACE - 3)
    assert not gone(mine[:1]), "they have time to come back"
    wait_for(lambda: gone(mine), "the end of the closed tab's ranks", 20)
    print(f"ranks ended {time.monotonic() - closed:.1f} s after their page")
    before = iteration(stages[1])
    assert is_live(stages[1]) and not any(gone([pid]) for pid in others)
    wait_for(lambda: iteration(stages[1]) > before, "that the other run goes on")


def test_viewers_keep_no_run_alive(web_app: str, open_page: Open) -> None:
    page, viewer = open_page().page, open_page().page
    start_page(page, web_app)
    choose(page, "Two ranks", iterations=100_000)
    ranks = pids(start(page))
    viewer.goto(page.get_by_label("To watch only:").input_value())
    watched = stage_of(viewer)
    wait_for(lambda: is_live(watched), "the run", 60)
    page.close()
    wait_for(lambda: gone(ranks), "the ranks' end", GRACE + 15)
    words = f"Its last page had been closed for {GRACE:.0f} s"
    wait_for(lambda: words in viewer.locator(".notice").inner_text(), "why it ended")
    wait_for(lambda: state(watched) == "finished", "its end on the page")


def test_a_reload_comes_back_to_the_live_run_with_its_history(
    web_app: str, open_page: Open
) -> None:
    page = open_page().page
    start_page(page, web_app)
    page.get_by_role("button", name=FIRST).click()
    stage = started(page)
    wait_for(lambda: iteration(stage) > 5, "some iterations", 60)
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


def test_a_lost_server_leaves_no_rank(web_app: str, open_page: Open, tmp_path: Path) -> None:
    page = open_page().page
    start_page(page, web_app)
    choose(page, "Two ranks", iterations=100_000)
    stage = start(page)
    wait_for(lambda: is_live(stage), "the run", 60)
    ranks = pids(stage)
    (server,) = {int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
                 for pid in ranks}  # fmt: skip
    os.kill(server, signal.SIGKILL)  # the process that starts ranks: they go with it
    wait_for(lambda: gone(ranks), "the ranks' end")
    wait_for(lambda: state(stage) == "failed", "that the page says so")


# ---- limits, links, code


def test_limits_are_said_in_words(serve: Serve, open_page: Open) -> None:
    options = ("--max-ranks=4", "--max-runs=1", "--max-minutes=0.2")
    address, page = serve(*options), open_page().page
    start_page(page, address)
    page.get_by_text("up to 4 ranks, 4 GB and 0.2 minutes; 1 run at a time").wait_for()
    choose(page, "Sixteen ranks")
    page.get_by_role("button", name="Start this run").click()
    page.get_by_text("gives a run up to 4 ranks, and this one asks for 16").wait_for()
    choose(page, "Two ranks", iterations=100_000)
    stage = start(page)
    ranks = pids(stage)
    other = open_page().page
    start_page(other, address)
    other.get_by_role("button", name=FIRST).click()
    other.get_by_text("This server runs 1 run at a time, and that many are live now").wait_for()
    notice = page.locator(".notice")
    wait_for(lambda: "This run's time is over in" in notice.inner_text(), "a word before")
    over = "Its time is over: here a run lasts up to 0.2 minutes"
    wait_for(lambda: over in notice.inner_text(), "why it ended", 60)
    wait_for(lambda: gone(ranks), "the ranks' end")
    wait_for(lambda: state(stage) == "finished", "a good end: what it did can be compared")


def test_a_link_carries_the_spec_and_never_code(web_app: str, open_page: Open) -> None:
    page = open_page().page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    start_page(page, web_app)
    choose(page, "A straggler", iterations=123)
    wait_for(lambda: "iterations=123" in page.locator("pre").inner_text(), "the code")
    page.get_by_role("button", name="Copy a link to this form").click()
    page.get_by_role("button", name="Copied").wait_for()
    link = page.evaluate("() => navigator.clipboard.readText()")
    assert link.startswith(f"{web_app}?spec=")
    other = open_page().page
    start_page(other, link)
    assert other.locator("#field-iterations").input_value() == "123"
    assert "slow rank 2" in other.locator("#field-faults").input_value()
    assert other.locator("pre").inner_text() == page.locator("pre").inner_text()

    start_page(other, f"{link[:-9]}")
    assert "this link carries no experiment" in other.get_by_role("alert").inner_text()
    other.get_by_text("More options").click()
    other.locator("#field-options").fill("consistency: /etc/mine.py:Policy")
    other.get_by_role("button", name="Start this run").click()
    other.get_by_text("data, never code, so a path to Python code is refused").wait_for()
    assert other.url.startswith(web_app) and "run?id" not in other.url


def test_what_is_wrong_is_said_at_its_field(web_app: str, open_page: Open) -> None:
    page = open_page().page
    start_page(page, web_app)
    choose(page, "Two ranks", ranks="many")
    about = page.locator("#field-ranks-about")
    wait_for(lambda: "must be a whole number" in about.inner_text(), "the words at the field")
    assert page.locator("#field-ranks").get_attribute("aria-invalid") == "true"
    page.locator("#field-ranks").fill("3")
    wait_for(lambda: "ranks=3" in page.locator("pre").inner_text(), "the code, once it is right")
    assert page.locator("#field-ranks").get_attribute("aria-invalid") == "false"


def test_a_parameter_server_has_fields_and_charts_of_its_own(web_app: str, open_page: Open) -> None:
    page = open_page().page
    start_page(page, web_app)
    option = {name: page.locator(f'[id="field-options.{name}"]')
              for name in ("consistency", "servers", "bucket_cap_mb")}  # fmt: skip
    assert not any(one.is_visible() for one in option.values()), "data parallel takes none"
    choose(page, "Server: SSP")
    wait_for(lambda: option["consistency"].is_visible(), "the fields of its options")
    assert option["consistency"].input_value() == "ssp"
    assert not option["bucket_cap_mb"].is_visible(), "that is DDP's"
    option["servers"].fill("4")
    about = page.locator('[id="field-ranks-about"]')
    wait_for(lambda: "leaves 0 workers" in about.inner_text(), "words at the field")
    option["servers"].fill("2")
    wait_for(lambda: '"servers": 2' in page.locator("pre").inner_text(), "the code")
    stage = start(page)
    page.get_by_text("consistency ssp").first.wait_for()
    wait_for(lambda: page.get_by_role("tab", name="Clocks").count() == 1, "the chart's tab")
    page.get_by_role("tab", name="Clocks").click()
    page.get_by_text("wall 3 ahead of the slowest").first.wait_for(timeout=60_000)
    wait_for(lambda: state(stage) == "finished", "its end", 90)
    start_page(page, page.url.partition("run?")[0])
    choose(page, "Two ranks", iterations=5)
    wait_for(lambda: not option["servers"].is_visible(), "the fields are gone again")
    stage = start(page)
    wait_for(lambda: state(stage) == "finished", "its end", 60)
    assert page.get_by_role("tab", name="Clocks").count() == 0, "it has nothing to say here"
    page.get_by_text("Losses compared, by updates").first.wait_for(timeout=60_000)


# ---- light and dark, and whose runs they are


def test_light_and_dark(web_app: str, open_page: Open) -> None:
    page = open_page(color_scheme="dark").page
    start_page(page, web_app)
    assert dark(page.locator("html")), "as the reader's system is"
    choose(page, "Two ranks", iterations=20)
    stage = start(page)
    wait_for(lambda: state(stage) == "finished", "its end", 60)
    chart = page.locator(".js-plotly-plot").first
    paper = chart.locator(".main-svg").first
    paper.wait_for(timeout=30_000)
    for theme, is_dark in (("light", False), ("dark", True), ("", True)):
        page.get_by_label("Theme").select_option(theme)
        assert dark(page.locator("html")) is is_dark
        wait_for(lambda: dark(stage) is is_dark, "the stage on the page's ground")  # noqa: B023
        wait_for(lambda: dark(paper) is is_dark, "the chart on the page's ground")  # noqa: B023
    page.get_by_label("Theme").select_option("light")
    page.reload()
    assert not dark(page.locator("html")), "the choice is kept"


def test_past_runs_are_their_own_browsers(web_app: str, open_page: Open) -> None:
    page, stranger = open_page().page, open_page().page
    start_page(page, web_app)
    choose(page, "Two ranks", iterations=3)
    start(page)
    start_page(page, web_app)
    page.get_by_role("link", name="1 · Two ranks, changed").wait_for()
    start_page(stranger, web_app)
    stranger.get_by_text("None yet.").wait_for()


def test_behind_a_login_everything_works(serve: Serve, open_page: Open) -> None:
    address, page = serve("--basic-auth", "ann:s3cret"), open_page().page
    page.goto(address)
    page.get_by_label("User").fill("ann")
    page.get_by_label("Password").fill("s3cret")
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("button", name=FIRST).click(timeout=60_000)
    stage = started(page)
    wait_for(lambda: iteration(stage) >= 0, "an iteration", 60)
    page.get_by_role("link", name="Log out").click()
    page.get_by_label("User").wait_for()


def test_narrow_pages_do_not_overflow(web_app: str, open_page: Open) -> None:
    for width in (700, 390):
        page = open_page(viewport={"width": width, "height": 900}).page
        start_page(page, web_app)
        page.get_by_text("More options").click()
        wide = page.evaluate("() => document.documentElement.scrollWidth")
        assert wide <= width
