"""``workbench serve`` in a real browser: what its pages say, whose runs they show, and how."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page

from tests.browser.app_pages import (
    FIRST,
    Open,
    Serve,
    choose,
    iteration,
    pids,
    start,
    start_page,
    started,
    state,
    to_the_end,
)
from tests.browser.conftest import ROOT, known, wait_for
from tests.live import gone

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]


def dark(place: Locator) -> bool:
    """Return whether the ground that is seen there is dark."""
    color = place.evaluate("(node) => getComputedStyle(node).backgroundColor")
    return sum(int(part) for part in re.findall(r"\d+", color)[:3]) < 3 * 128


# ---- limits, links, code


@pytest.mark.full
def test_limits_are_said_in_words(serve: Serve, open_page: Open) -> None:
    options = ("--max-ranks=4", "--max-runs=1", "--max-minutes=0.3")
    address, page, other = serve(*options), open_page().page, open_page().page
    start_page(other, address)  # before the run's time begins: a page may take as long as a run
    start_page(page, address)
    page.get_by_text("4 ranks, 4 GB and 0.3 minutes per run; 1 run at a time").wait_for()
    choose(page, "Sixteen ranks")
    page.get_by_role("button", name="Start this run").click()
    page.get_by_text("gives a run up to 4 ranks, and this one asks for 16").wait_for()
    choose(page, "Two ranks", iterations=100_000)
    stage = start(page)
    other.get_by_role("button", name=FIRST).click()
    ranks = pids(stage)
    other.get_by_text("This server runs 1 run at a time, and that many are live now").wait_for()
    notice = page.locator(".notice")
    wait_for(lambda: "This run's time is over in" in notice.inner_text(), "a word before")
    over = "Its time is over: here a run lasts up to 0.3 minutes"
    wait_for(lambda: over in notice.inner_text(), "why it ended")
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


def test_what_is_wrong_is_said_at_its_field_and_values_are_picked(
    web_app: str, open_page: Open
) -> None:
    page = open_page().page
    start_page(page, web_app)
    choose(page, "Two ranks", ranks="many")
    about = page.locator("#field-ranks-about")
    wait_for(lambda: "must be a whole number" in about.inner_text(), "the words at the field")
    assert page.locator("#field-ranks").get_attribute("aria-invalid") == "true"
    assert "cannot be run yet" in page.locator("pre").inner_text(), "no code of the fields before"
    page.get_by_role("button", name="Start this run").click()
    page.get_by_text("Not started. Correct these fields: ranks.").wait_for()
    assert page.locator("#field-ranks").evaluate("(e) => e.getRootNode().activeElement === e")
    page.locator("#field-ranks").fill("3")
    wait_for(lambda: "ranks=3" in page.locator("pre").inner_text(), "the code, once it is right")
    assert page.locator("#field-ranks").get_attribute("aria-invalid") == "false"
    values_and_lines_are_picked_and_others_typed(page)


def values_and_lines_are_picked_and_others_typed(page: Page) -> None:
    choose(page, "Ring of four")
    again = page.get_by_role("button", name="Change first: Ring of four", exact=True)
    pressed = "(one) => { one.click(); return one.getAttribute('aria-pressed'); }"
    assert again.evaluate(pressed) == "false", "what is typed now would be lost"
    choose(page, "Two ranks")
    choose(page, "Ring of four")
    code = page.locator("pre")
    page.get_by_label("What goes wrong: add a line").select_option("slow rank 1 x4")
    wait_for(lambda: "Slow(rank=1" in code.inner_text(), "the fault")
    page.get_by_label("What goes wrong: add a line").select_option("jitter 0.1 x6")
    wait_for(lambda: "Jitter(" in code.inner_text(), "the other fault")
    assert page.locator("#field-faults").input_value() == "slow rank 1 x4\njitter 0.1 x6"
    page.locator("#field-strategy").select_option("gossip")
    graph = page.locator('[id="field-options.graph"]')
    graph.select_option("torus")
    wait_for(lambda: '"graph": "torus"' in code.inner_text(), "the graph")
    other = page.locator('[id="field-options.graph-other"]')
    assert not other.is_visible()
    graph.select_option(label="another …")
    other.fill("nonsense")
    about = page.locator('[id="field-options.graph-about"]')
    wait_for(lambda: "wrong" in (about.get_attribute("class") or ""), "words at the field")
    page.get_by_role("button", name="Start this run").click()
    page.get_by_text("Correct these fields: graph").wait_for()
    assert other.evaluate("(e) => e.getRootNode().activeElement === e")
    assert other.get_attribute("aria-invalid") == "true"
    page.locator("#field-ranks").fill("many")  # as any news of the server: the words stay
    page.get_by_text("Correct these fields: ranks").wait_for()
    page.locator("#field-ranks").fill("4")
    other.fill("complete")
    wait_for(lambda: '"graph": "complete"' in code.inner_text(), "what is right now")
    assert page.get_by_text("Correct these fields").count() == 0


@pytest.mark.full
def test_a_parameter_server_has_fields_and_charts_of_its_own(web_app: str, open_page: Open) -> None:
    page = open_page().page
    start_page(page, web_app)
    option = {
        name: page.locator(f'[id="field-options.{name}"]')
        for name in ("consistency", "servers", "bucket_cap_mb")
    }
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
    page.get_by_text("wall 3 ahead of the slowest").first.wait_for()
    wait_for(lambda: state(stage) == "finished", "its end")
    start_page(page, page.url.partition("run?")[0])
    choose(page, "Two ranks", iterations=5)
    wait_for(lambda: not option["servers"].is_visible(), "the fields are gone again")
    stage = start(page)
    wait_for(lambda: state(stage) == "finished", "its end")
    assert page.get_by_role("tab", name="Clocks").count() == 0, "it has nothing to say here"
    to_the_end(page)
    page.get_by_text("Losses compared, by updates").first.wait_for()


def rows_of_tabs(page: Page) -> list[int]:
    """Return the height of each row of tabs in lines of its tallest tab."""
    return page.locator("[role=tablist]").evaluate_all(
        "(lists) => lists.map((list) => { const tops = [...list.children].filter((one) =>"
        " !one.hidden).map((one) => one.offsetTop); return new Set(tops).size; })"
    )


@pytest.mark.full
def test_the_loss_is_drawn_once_and_tabs_scroll_where_a_page_is_narrow(
    web_app: str, open_page: Open
) -> None:
    page = open_page(viewport={"width": 400, "height": 900}).page
    start_page(page, web_app)
    choose(page, "Two ranks", iterations=5)
    stage = start(page)
    wait_for(lambda: state(stage) == "finished", "its end")
    tab = page.get_by_role("tab", name="Communication and waiting")
    wait_for(lambda: tab.get_attribute("aria-selected") == "true", "another chart than the loss")
    assert rows_of_tabs(page) == [1, 1], "the stage's, and the charts'"
    page.get_by_role("tab", name="Recording").click()
    last = page.get_by_role("tab", name="Recording")
    wait_for(lambda: last.get_attribute("aria-selected") == "true", "the reader's choice")

    def in_view() -> bool:
        box = last.bounding_box()  # None while it is drawn again
        return box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 400

    wait_for(in_view, "it in view")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


# ---- light and dark, and whose runs they are


@pytest.mark.full
def test_light_and_dark(web_app: str, open_page: Open) -> None:
    page = open_page(color_scheme="dark").page
    start_page(page, web_app)
    assert dark(page.locator("html")), "as the reader's system is"
    choose(page, "Two ranks", iterations=20)
    stage = start(page)
    wait_for(lambda: state(stage) == "finished", "its end")
    to_the_end(page)
    chart = page.locator(".js-plotly-plot").first
    paper = chart.locator(".main-svg").first
    paper.wait_for()
    stage.scroll_into_view_if_needed()  # what is out of sight is not drawn
    for theme, is_dark in (("light", False), ("dark", True), ("", True)):
        page.get_by_label("Theme").select_option(theme)
        assert dark(page.locator("html")) is is_dark
        wait_for(lambda: dark(stage) is is_dark, "the stage on the page's ground")  # noqa: B023
        wait_for(lambda: dark(paper) is is_dark, "the chart on the page's ground")  # noqa: B023
    page.get_by_label("Theme").select_option("light")
    page.reload()
    assert not dark(page.locator("html")), "the choice is kept"


@pytest.mark.full
def test_past_runs_are_their_own_browsers(web_app: str, open_page: Open) -> None:
    page, stranger = open_page().page, open_page().page
    start_page(page, web_app)
    choose(page, "Two ranks", iterations=3)
    start(page)
    start_page(page, web_app)
    page.get_by_role("link", name="1 · Two ranks, changed").wait_for()
    start_page(stranger, web_app)
    stranger.get_by_text("None yet.").wait_for()


@pytest.mark.full
def test_behind_a_login_everything_works(serve: Serve, open_page: Open) -> None:
    address, page = serve("--basic-auth", "ann:s3cret"), open_page().page
    page.goto(address)
    page.get_by_label("User").fill("ann")
    page.get_by_label("Password").fill("s3cret")
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("button", name=FIRST).click()
    stage = started(page)
    wait_for(lambda: iteration(stage) >= 0, "an iteration")
    page.get_by_role("button", name="Log out").click()
    page.get_by_label("User").wait_for()


@pytest.mark.full
def test_narrow_pages_do_not_overflow(web_app: str, open_page: Open) -> None:
    for width in (700, 390):
        page = open_page(viewport={"width": width, "height": 900}).page
        start_page(page, web_app)
        page.get_by_text("More options").click()
        wide = page.evaluate("() => document.documentElement.scrollWidth")
        assert wide <= width


@pytest.mark.full
def test_a_comparison_starts_at_a_click_and_ends_side_by_side(
    web_app: str, open_page: Open
) -> None:
    page = open_page().page
    start_page(page, web_app)
    page.get_by_text("Or compare: several runs").click()
    page.locator(".place-comparisons button.card", has_text="Kept or thrown away").click()
    page.wait_for_url("**/compare?id=*", wait_until="commit")
    page.get_by_text("The runs of this comparison").wait_for()
    lines = page.locator("ul.past li")
    wait_for(lambda: "waiting" in lines.last.inner_text(), "the runs to come")
    wait_for(lambda: "running" in lines.first.inner_text(), "the first run")
    assert known(page.locator(".wb-stage"), "run"), "it is on the stage"
    wait_for(lambda: page.get_by_role("button", name="Compare again").count(), "its end", 300)
    wait_for(lambda: page.locator("thead th").count() == 5, "four runs side by side")
    to_the_end(page)
    page.get_by_text("Losses compared, by iteration").wait_for()
    assert page.locator("thead .line-key").count() == 4
    assert page.locator("td.best").count() > 0
    second = page.locator("thead th").nth(2)
    second.get_by_role("button", name="compare with it").click()
    wait_for(lambda: "reference" in second.inner_text(), "another reference")
    start_page(page, web_app)
    page.get_by_role("link", name="Kept or thrown away").wait_for()
    lines = page.locator("ul.past li", has=page.get_by_role("button", name="Rename"))
    wait_for(lambda: lines.count() == 4, "its runs")
    lines.first.get_by_role("button", name="Rename").click()
    page.keyboard.type("Mine")
    page.keyboard.press("Enter")
    wait_for(lambda: "4 · Mine" in lines.first.inner_text(), "its name")
    lines.first.get_by_role("button", name="Delete").click()
    wait_for(lambda: lines.count() == 3, "one run less")


@pytest.mark.full
def test_a_chart_without_room_is_drawn_once_it_has_some(web_app: str, open_page: Open) -> None:
    """A page that is not laid out has no width: titles would be wrapped word by word."""
    page = open_page(viewport={"width": 1280, "height": 1400}).page
    start_page(page, web_app)
    choose(page, "A slow link", iterations=60)
    stage = start(page)
    place, lines = page.locator(".place-chart"), page.locator(".place-chart tspan.line")
    wait_for(lambda: lines.count(), "a chart")
    shown = lines.count()
    place.evaluate("(one) => { one.style.width = '0'; }")
    wait_for(lambda: state(stage) == "finished", "the end, after which no figure comes")
    page.wait_for_timeout(1500)
    place.evaluate("(one) => { one.style.width = ''; }")
    wait_for(lambda: 0 < lines.count() <= shown, "a title in as many lines as before")


def test_words_beside_a_value_are_whole_where_the_table_is_narrow(open_page: Open) -> None:
    """The page scrolls to reach columns beyond 400 px; no word is broken to fit."""
    page = open_page(viewport={"width": 400, "height": 600}).page
    style = (ROOT / "workbench/interface/app/parts/parts.css").read_text()
    head = "<th></th><th>Ring of four<small>reference</small></th><th>5 ranks of a ring</th>"
    cells = "<th>mean iteration</th><td>12 ms</td><td>15 ms<small>+19 %, slower</small></td>"
    table = f"<table><thead><tr>{head}</tr></thead><tbody><tr>{cells}</tr></tbody></table>"
    page.set_content(f"<style>{style}</style><div class='wide'>{table}</div>")
    lines = page.locator("small").evaluate_all("(all) => all.map((s) => s.getClientRects().length)")
    assert lines == [1, 1]
