"""The frame around the scenes: one screen holds it, and nothing in it moves or covers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page

from tests.browser.conftest import Watched, let_draw, open_scene
from tests.browser.test_collectives import free_link, held
from tests.pairwise import first

pytestmark = pytest.mark.browser

# A laptop's screen; what JupyterLab leaves of it beside its list of files, its menus and tool bars.
LAPTOP, IN_JUPYTERLAB = (1440, 900), (1060, 785)
SEEN = [".wb-top b", ".wb-say", ".wb-ring", ".wb-matrix", ".wb-bar", ".wb-strip"]
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


def test_what_changes_a_rank_does_not_cover_it(
    tmp_path: Path, open_page: Callable[..., Watched]
) -> None:
    """Beside the picture where there is room, else below it. Another rank turns it."""
    page = open_page().page
    stage = held(tmp_path, page)
    for size in (LAPTOP, IN_JUPYTERLAB):
        at_size(page, size)
        stage.locator(".wb-co-spots button[data-code='0']").focus()
        page.keyboard.press("Enter")
        dialog = stage.get_by_role("dialog", name="Change rank 0")
        assert dialog.is_visible()
        for name in (".wb-ring", ".wb-matrix", ".wb-bar", ".wb-say", ".wb-tabs"):
            assert apart(box(stage, ".wb-rank-menu"), box(stage, name)), (name, size)
        link, x, y = free_link(stage)
        page.mouse.click(x, y)
        assert stage.get_by_role("dialog", name=f"Change link {link}").is_visible()
        assert stage.get_by_role("dialog").count() == 1
        page.keyboard.press("Escape")
        assert stage.get_by_role("dialog").count() == 0


CHIPS = """(root) => [...root.querySelectorAll(".wb-made .wb-badge")]
  .map((chip) => [chip.textContent, chip.title, chip.scrollWidth - chip.clientWidth])"""
MADE = ["all links emulated: 1 ms, 1 Gbit/s", "compute padded to 60 ms", "rank 5 slowed ×3"]


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
