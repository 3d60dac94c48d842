"""The frame around the scenes: one screen holds it, and nothing in it moves or covers."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page

from tests.browser.conftest import Watched, let_draw, open_scene, wait_for
from tests.browser.recorded_runs import empty_stage, take
from tests.browser.test_collectives import free_link, held
from tests.pairwise import first
from workbench.store.event_store import Store
from workbench.views.replay import to_html

pytestmark = pytest.mark.browser

# A laptop's screen; what JupyterLab leaves of it beside its list of files, its menus and tool bars.
LAPTOP, IN_JUPYTERLAB = (1440, 900), (1060, 785)
SEEN = [".wb-top b", ".wb-say", ".wb-ring", ".wb-matrix", ".wb-time"]
BOX = """(root, name) => { const { left, top, right, bottom } = root.querySelector(name)
  .getBoundingClientRect(); return [left, top, right, bottom]; }"""

SAY = """(root, words) => { for (const name of [".wb-real", ".wb-say span", ".wb-facts"])
  root.querySelector(name).textContent = words; }"""


def box(stage: Locator, name: str) -> list[float]:
    return list(stage.evaluate(BOX, name))


def apart(a: list[float], b: list[float]) -> bool:
    return a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]


def at_size(page: Page, size: tuple[int, int]) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    let_draw(page, 400)


@pytest.mark.parametrize("ranks", first(1, [4, 8]))
def test_one_screen_holds_the_picture_and_the_time(
    tmp_path: Path, open_page: Callable[..., Watched], ranks: int
) -> None:
    """Title, sentence, ring, holdings and the strip of calls, without scrolling."""
    page = open_page().page
    stage = held(tmp_path, page, ranks=ranks)
    for width, height in (LAPTOP, IN_JUPYTERLAB):
        at_size(page, (width, height))
        boxes = [box(stage, name) for name in SEEN]
        for name, (left, top, right, bottom) in zip(SEEN, boxes, strict=True):
            assert 0 <= left < right <= width and 0 <= top < bottom <= height, (name, width)
        for i, one in enumerate(boxes):
            assert all(apart(one, other) for other in boxes[:i]), (SEEN[i], width)
    at_size(page, LAPTOP)
    assert box(stage, ".wb-feed")[0] >= box(stage, ".wb-matrix")[2], "a third column"


@pytest.mark.full
def test_the_head_never_changes_its_height(
    tmp_path: Path, open_page: Callable[..., Watched]
) -> None:
    """Whatever the badge and the sentence say: what is below stays under the pointer."""
    page = open_page().page
    stage = held(tmp_path, page, ranks=4)
    for size in (LAPTOP, IN_JUPYTERLAB, (400, 860)):
        at_size(page, size)
        tops = set()
        for scene in ("collectives", "timeline"):
            open_scene(stage, scene)
            for words in ("", "real · held · " * 40):
                stage.evaluate(SAY, words)
                tops.add(box(stage, ".wb-main")[1] - box(stage, ".wb-top")[1])
        assert len(tops) == 1, (size, tops)


COVERED = """(root, ranks) => {
  const box = (one) => one.getBoundingClientRect();
  const card = box(root.querySelector(".wb-rank-menu"));
  const inside = (x, y) => x > card.left && x < card.right && y > card.top && y < card.bottom;
  const middle = (code) => {
    const { x, y, width, height } = box(root.querySelector(`[data-code="${code}"]`));
    return [x + width / 2, y + height / 2];
  };
  const covered = [];
  for (const code of [...root.querySelectorAll("[data-code]")].map((one) => one.dataset.code)) {
    const ends = code.split(">");
    if (!ends.some((end) => ranks.includes(end))) continue;
    if (ends.length === 1 && !ranks.includes(code)) continue;
    const [[x1, y1], [x2, y2]] = [middle(ends[0]), middle(ends.at(-1))];
    for (let k = 0; k <= 50; k++)
      if (inside(x1 + ((x2 - x1) * k) / 50, y1 + ((y2 - y1) * k) / 50)) covered.push(code);
  }
  return covered;
}"""  # the discs and links of these ranks that the card lies over


def test_what_changes_a_rank_stands_beside_it_and_covers_neither_it_nor_its_links(
    tmp_path: Path, open_page: Callable[..., Watched]
) -> None:
    """At any of the ring's places, and no other rank; of a link, its own way and its two ranks."""
    page = open_page().page
    stage = held(tmp_path, page)
    for size in (LAPTOP, IN_JUPYTERLAB):
        at_size(page, size)
        for rank in range(4):
            stage.locator(f".wb-co-spots button[data-code='{rank}']").focus()
            page.keyboard.press("Enter")
            dialog = stage.get_by_role("dialog", name=f"Change rank {rank}")
            assert dialog.is_visible()
            assert stage.evaluate(COVERED, [str(rank)]) == [], (rank, size)
            menu = left, top, right, bottom = box(stage, ".wb-rank-menu")
            discs = [box(stage, f"[data-code='{one}']") for one in range(4)]
            assert all(apart(menu, disc) for disc in discs), (rank, size)
            if size == LAPTOP:  # there is room beside the scene
                assert apart(menu, box(stage, ".wb-matrix")), rank
            else:
                x1, y1, x2, y2 = discs[rank]
                far = max(left - x2, x1 - right, top - y2, y1 - bottom)
                assert far < 260, f"beside its disc: {far} px"
            assert apart(box(stage, ".wb-rank-menu"), box(stage, ".wb-time")), size
            page.keyboard.press("Escape")
        link, x, y = free_link(stage)
        page.mouse.click(x, y)
        assert stage.get_by_role("dialog", name=f"Change link {link}").is_visible()
        assert stage.get_by_role("dialog").count() == 1
        page.keyboard.press("Escape")
        assert stage.get_by_role("dialog").count() == 0


def test_time_is_one_line_and_grows_upward_while_it_is_touched(
    tmp_path: Path, open_page: Callable[..., Watched]
) -> None:
    """The line stays under the pointer, and says what is pointed at: call, time, loss."""
    page = open_page().page
    stage = held(tmp_path, page, iterations=30)
    more, strip = stage.locator(".wb-more"), stage.locator(".wb-strip")
    for size in (LAPTOP, IN_JUPYTERLAB, (1060, 600)):
        at_size(page, size)
        before = box(stage, ".wb-strip")
        assert box(stage, ".wb-time")[3] - box(stage, ".wb-time")[1] <= 48, size
        assert more.evaluate("(one) => getComputedStyle(one).opacity") == "0"
        page.mouse.move(before[0] + 0.5 * (before[2] - before[0]), before[1] + 20)
        wait_for(lambda: more.evaluate("(one) => getComputedStyle(one).opacity") == "1", "more")
        assert box(stage, ".wb-strip") == before, "under the pointer"
        assert box(stage, ".wb-more")[3] <= before[1] and box(stage, ".wb-score")[3] <= before[1]
        words = stage.locator(".wb-peek").inner_text()
        assert re.match(r"call \d+ of 30 · iteration \d+ · .* · lasts .* · loss \d", words), words
        stage.locator(".wb-unit").select_option("iteration")
        page.mouse.move(20, 20)
        stage.focus()
        wait_for(lambda: more.evaluate("(one) => getComputedStyle(one).opacity") == "0", "less")
    strip.focus()
    page.keyboard.press("Shift+Tab")
    wait_for(lambda: more.evaluate("(one) => getComputedStyle(one).opacity") == "1", "by keyboard")


SMALLEST = """(root) => Math.min(...[...root.querySelectorAll("*")]
  .filter((one) => one.checkVisibility({ visibilityProperty: true, opacityProperty: true })
    && [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim())
    && !one.closest(".wb-sr, .wb-co-spots"))
  .map((one) => parseFloat(getComputedStyle(one).fontSize) * root.getBoundingClientRect().width
    / root.offsetWidth))"""


def ring_height(stage: Locator) -> float:
    return box(stage, "[data-code='2']")[3] - box(stage, "[data-code='0']")[1]


def test_a_full_screen_is_filled(tmp_path: Path, open_page: Callable[..., Watched]) -> None:
    """The ring, from disc to disc, has 45 % of the height; in a lecture hall words have 22 px."""
    page = open_page().page
    stage = held(tmp_path, page, ranks=4)
    for size in ((1920, 1080), LAPTOP):
        at_size(page, size)
        stage.focus()
        page.keyboard.press("f")
        share = 0.45 if size[1] == 1080 else 0.44
        wait_for(lambda share=share, size=size: ring_height(stage) >= share * size[1], f"{size}")
        page.keyboard.press("p")
        smallest = 22 * size[0] / 1920 - 0.01
        wait_for(
            lambda smallest=smallest: stage.evaluate(SMALLEST) >= smallest, f"large words {size}"
        )
        let_draw(page, 400)
        for name in [*SEEN, ".wb-co-keys"]:
            left, top, right, bottom = box(stage, name)
            assert 0 <= left < right <= size[0] and 0 <= top < bottom <= size[1] + 1, (name, size)
        assert box(stage, ".wb-co-keys")[3] <= box(stage, ".wb-time")[1] + 1, size
        assert stage.evaluate(SMALLEST) >= smallest, size
        page.keyboard.press("p")
        page.keyboard.press("f")
        wait_for(lambda: page.evaluate("() => !document.fullscreenElement"), "the page again")


@pytest.mark.full
def test_a_run_that_begins_below_comes_into_view_once(open_page: Callable[..., Watched]) -> None:
    page = open_page(viewport={"width": 1280, "height": 700}).page
    stage = empty_stage(page)
    page.evaluate(
        """() => { for (const where of ["before", "after"])
        document.querySelector("main")[where](
          Object.assign(document.createElement("div"), { style: "height: 700px" })); }"""
    )
    take(stage, "worker_replaced", state="running")
    wait_for(lambda: abs(box(stage, ".wb-top")[1]) < 30, "its head at the top")
    page.evaluate("() => scrollTo(0, 0)")
    take(stage, "worker_replaced", state="running")
    let_draw(page, 300)
    assert page.evaluate("() => scrollY") == 0, "the reader went elsewhere"
    take(stage, "server_replaced")
    let_draw(page, 300)
    assert page.evaluate("() => scrollY") == 0, "a replay asks for nothing"


def test_the_key_keeps_its_height(tmp_path: Path, open_page: Callable[..., Watched]) -> None:
    page = open_page().page
    stage = held(tmp_path, page)
    calm = {
        "held": False,
        "standing": [],
        "frozen": [],
        "slow": {},
        "ended": {},
        "links": [],
        "pids": {},
        "slow_motion": 1,
    }
    busy = calm | {"held": True, "standing": [0, 1, 2, 3], "frozen": [1], "slow": {"2": 4}}
    tell = """(root, control) => { Object.assign(root.stage.known(), { control, state: "running" });
      root.stage.goto(root.stage.known().table.to); }"""
    for size in (LAPTOP, IN_JUPYTERLAB, (800, 860)):
        at_size(page, size)
        heights, words = set(), ""
        for control in (calm, busy, calm):
            stage.evaluate(tell, control)
            let_draw(page, 600)
            _, top, _, bottom = box(stage, ".wb-co-keys")
            heights.add(bottom - top)
            words += stage.locator(".wb-co-keys").inner_text()
        assert len(heights) == 1 and "frozen by you" in words, (size, heights)


def test_where_nothing_happened_the_list_says_what_appears_there(
    tmp_path: Path, open_page: Callable[..., Watched]
) -> None:
    page = open_page().page
    to_html(Store({"ranks": "4"}), tmp_path / "run.html")
    page.goto((tmp_path / "run.html").as_uri())
    happened = page.locator(".wb-happened")
    wait_for(lambda: "appear here." in happened.inner_text(), "its words")
    assert happened.locator("button").count() == 0


def test_a_sheet_of_keys(tmp_path: Path, open_page: Callable[..., Watched]) -> None:
    """? opens it; Escape closes it, and the focus is where it was; no other key acts meanwhile."""
    page = open_page().page
    stage = held(tmp_path, page)
    tab = stage.get_by_role("tab", selected=True)
    tab.focus()
    page.keyboard.press("?")
    sheet = stage.get_by_role("dialog", name="Keys")
    assert sheet.is_visible() and "fill the screen" in sheet.inner_text()
    for key in ("Tab", "1", "ArrowRight"):
        page.keyboard.press(key)
    assert stage.get_attribute("data-scene") == "collectives" and sheet.is_visible()
    assert page.evaluate("() => document.activeElement.ariaLabel") == "Close"
    page.keyboard.press("Escape")
    assert not sheet.is_visible()
    assert page.evaluate("() => document.activeElement.getAttribute('role')") == "tab"


CHIPS = """(root) => [...root.querySelectorAll(".wb-made .wb-badge")]
  .map((chip) => [chip.textContent, chip.title, chip.scrollWidth - chip.clientWidth])"""
MADE = ["all links emulated: 1 ms, 1 Gbit/s", "compute padded to 60 ms", "rank 5 slowed ×3"]


@pytest.mark.full
def test_what_was_made_by_us_is_whole_or_counted(
    tmp_path: Path, open_page: Callable[..., Watched]
) -> None:
    """No word of it is cut, and no line of the head is below its end, however narrow."""
    page = open_page().page
    stage = held(tmp_path, page, ranks=4)
    stage.evaluate("(root, notes) => { root.stage.known().run.notes = notes; }", MADE)
    rest = []
    for size in (LAPTOP, (800, 860), (780, 860), (400, 860)):
        at_size(page, size)
        chips = stage.evaluate(CHIPS)
        whole = [words for words, title, _ in chips if not title]
        assert whole == MADE[: len(whole)] and all(over <= 0 for _, _, over in chips), size
        rest.append(len(MADE) - len(whole))
        if rest[-1]:
            words, title, _ = chips[-1]
            assert str(rest[-1]) in words and title == " · ".join(MADE[len(whole) :])
        end = box(stage, ".wb-top")[3]
        assert all(box(stage, f".wb-top > {each}")[3] <= end for each in ("b", ".wb-made")), size
    assert rest[0] == 0 and rest[-1] > 0, "all on a wide page, not all on a narrow one"


def test_news_of_the_moment_stay_in_view_where_their_list_changes_its_height(
    tmp_path: Path, open_page: Callable[..., Watched]
) -> None:
    page = open_page().page
    stage = held(tmp_path, page, iterations=40, share=0.5)
    stage.evaluate("(root) => root.stage.goto(root.stage.known().table.to)")
    for size in (LAPTOP, (900, 860), LAPTOP):
        at_size(page, size)
        newest = "li:nth-last-child(1 of .wb-happened li:not(.later))"
        _, top, _, bottom = box(stage, f".wb-happened {newest}")
        _, least, _, most = box(stage, ".wb-happened")
        assert least - 1 <= top < bottom <= most + 1, size


LONG = "Parameter server · stale synchronous parallel, at most 3 ahead, 2 replicas of every shard"


def test_however_long_the_title_what_we_made_is_said_or_counted(
    tmp_path: Path, open_page: Callable[..., Watched]
) -> None:
    page = open_page().page
    stage = held(tmp_path, page, ranks=4)
    open_scene(stage, "timeline")
    stage.evaluate(
        "(root, [notes, title]) => Object.assign(root.stage.known().run, { notes, title })",
        [MADE, LONG],
    )
    for size in (LAPTOP, IN_JUPYTERLAB, (800, 860)):
        at_size(page, size)
        chips = stage.evaluate(CHIPS)
        assert chips and all(over <= 0 for _, _, over in chips), (size, chips)
        last = box(stage, ".wb-made .wb-badge:last-child")
        assert last[2] <= box(stage, ".wb-top")[2] and last[2] - last[0] > 20, (size, last)
        assert box(stage, ".wb-real")[2] <= box(stage, ".wb-made")[0], size


@pytest.mark.full
def test_on_the_full_screen_time_is_at_its_foot(
    tmp_path: Path, open_page: Callable[..., Watched]
) -> None:
    """However little the scene needs; and nothing is seen below it where a scene needs more."""
    page = open_page().page
    stage = held(tmp_path, page, ranks=4)
    at_size(page, LAPTOP)
    stage.locator("[data-tool=full]").click()
    for scene in ("overview", "timeline"):
        open_scene(stage, scene)
        let_draw(page, 400)
        assert 850 < box(stage, ".wb-time")[3] <= 901, scene
    stage.locator("[data-tool=larger]").click()
    let_draw(page, 400)
    assert 899 <= box(stage, ".wb-time")[3] <= 901, "what is below it is not seen"


@pytest.mark.full
def test_in_a_low_panel_most_of_the_room_is_the_pictures(
    tmp_path: Path, open_page: Callable[..., Watched]
) -> None:
    """A panel of JupyterLab, say: the lanes of a call are left out; time itself is at hand."""
    page = open_page().page
    stage = held(tmp_path, page, ranks=4)
    for height, lanes in ((360, False), (700, True)):
        page.locator("main").evaluate(
            "(main, height) => { main.style = `height: ${height}px; overflow: auto`; }", height
        )
        at_size(
            page, (1000 + height, 860)
        )  # a stage looks at what is around it when it is laid out
        assert stage.locator(".wb-score").is_visible() == lanes, height
        assert stage.locator(".wb-strip").is_visible()
        _, top, _, bottom = box(stage, ".wb-time")
        assert bottom <= height + 12 and bottom - top < height / 3, (top, bottom)


@pytest.mark.full
def test_the_tab_that_is_open_is_in_view_when_the_page_turns_narrow(
    tmp_path: Path, open_page: Callable[..., Watched]
) -> None:
    page = open_page().page
    stage = held(tmp_path, page, ranks=4)
    at_size(page, LAPTOP)
    open_scene(stage, "timeline")
    at_size(page, (330, 860))
    left, _, right, _ = box(stage, ".wb-tabs [aria-selected=true]")
    row = box(stage, ".wb-tabs")
    assert row[0] + 15 <= left and right <= row[2] - 15, "none of it fades"
