"""The collectives' picture answers the pointer and the keyboard, and is drawn in time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page

import workbench as wb
from tests.browser.conftest import Watched, frame, let_draw, open_scene, wait_for
from tests.pairwise import first
from tests.synthetic import training
from workbench.store.event_store import Store
from workbench.views.replay import to_html

pytestmark = pytest.mark.browser
SPEC = "strategy: data_parallel\nranks: {ranks}\niterations: {n}\nall_reduce: ring\n"
GRID_LEFT, GRID_TOP, TAIL, ROW = 26, 34, 176, 58  # as in matrix.js, four ranks


def held(
    folder: Path, page: Page, ranks: int = 4, share: float = 0.45, iterations: int = 3
) -> Locator:
    """The collectives of a run that was saved, held in the second call."""
    spec = SPEC.format(ranks=ranks, n=iterations)
    to_html(
        Store.from_frame(training(iterations, ranks=ranks), {"experiment": spec}),
        folder / "run.html",
    )
    page.goto((folder / "run.html").as_uri())
    stage = page.locator(".wb-stage")
    wait_for(lambda: stage.evaluate("(root) => root.stage.known().table.rows"), "its rows")
    open_scene(stage, "collectives")
    stage.evaluate(
        "(root, share) => { const call = root.stage.known().table.calls[1];"
        " root.stage.goto(call.start + share * (call.end - call.start)); }",
        share,
    )
    let_draw(page, 400)
    return stage


def tip(stage: Locator) -> str:
    return stage.locator(".wb-co-tip").inner_text()


def free_link(stage: Locator) -> tuple[str, float, float]:
    """A link on whose middle no chunk is at this moment: "1 → 2", and where that is on the page."""
    for link in stage.locator(".wb-co-spots button[data-code*='>']").all():
        box = link.bounding_box()
        assert box
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        stage.page.mouse.move(x, y)
        if (words := tip(stage)).startswith("link "):
            return words.split("\n")[0].removeprefix("link ")[:5], x, y
    raise AssertionError("there is a chunk on every link")


def cell(stage: Locator, row: int, column: int) -> tuple[float, float]:
    """The middle of a cell, from the matrix's corner."""
    width = stage.locator(".wb-matrix").bounding_box()["width"]  # type: ignore[index]
    pitch = (width - GRID_LEFT - TAIL) / 4
    return GRID_LEFT + (column + 0.5) * pitch, GRID_TOP + (row + 0.4) * ROW


@pytest.mark.full
def test_what_is_under_the_pointer_is_said_and_can_be_chosen(
    tmp_path: Path, open_page: Callable[..., Watched]
) -> None:
    page = open_page().page
    stage = held(tmp_path, page)
    ring, matrix = stage.locator(".wb-ring"), stage.locator(".wb-matrix")
    mark = frame(stage)["marks"][0]
    ring.hover(position={"x": mark["x"], "y": mark["y"]})
    words = f"chunk {mark['chunk']} from rank {mark['rank']} to rank {mark['peer']}"
    assert words in tip(stage) and "% of its" in tip(stage)
    x, y = cell(stage, 2, 2)
    matrix.hover(position={"x": x, "y": y})
    assert tip(stage).startswith("rank 2, chunk 2: ")
    box = matrix.bounding_box()
    assert box
    matrix.hover(position={"x": box["width"] - 60, "y": y})
    assert "rank 2: step" in tip(stage) and "of 6" in tip(stage) and "kB sent" in tip(stage)
    matrix.click(position={"x": x, "y": y})
    look = "(root) => root.stage.frame() && document.querySelector('.wb-co-tip').hidden"
    page.mouse.move(1, 1)
    assert stage.evaluate(look)
    page.keyboard.press("Space")  # the stage's keys go on working after a click
    wait_for(lambda: "Play" not in stage.locator(".wb-toggle").inner_text(), "playing on")


def test_a_click_on_a_rank_or_a_link_opens_the_hands(
    tmp_path: Path, open_page: Callable[..., Watched]
) -> None:
    page = open_page().page
    stage = held(tmp_path, page)
    ring = stage.locator(".wb-ring")
    box = ring.bounding_box()
    assert box
    top = stage.locator(".wb-co-spots button[data-code='0']").bounding_box()
    assert top
    link, x, y = free_link(stage)
    dialog = stage.locator(".wb-rank-menu")
    for at, words in (
        ((top["x"] + top["width"] / 2, top["y"] + top["height"] / 2), "rank 0"),
        ((x, y), f"link {link}"),
    ):
        name = f"Change {words}"
        middle = {"x": at[0] - box["x"], "y": at[1] - box["y"]}
        ring.hover(position=middle)
        assert tip(stage).startswith(words)
        ring.click(position=middle)
        assert dialog.get_attribute("aria-label") == name
        page.keyboard.press("Escape")
        assert dialog.count() == 0


def test_the_keyboard_reaches_every_rank_link_and_cell(
    tmp_path: Path, open_page: Callable[..., Watched]
) -> None:
    page = open_page().page
    stage = held(tmp_path, page)
    playhead = frame(stage)["playhead"]

    def press(key: str) -> str:
        page.keyboard.press(key)
        focused = "document.activeElement"
        return str(page.evaluate(f"() => {focused}.dataset.code ?? {focused}.className"))

    tab = stage.get_by_role("tab", selected=True)
    tab.focus()
    page.keyboard.press("ArrowRight")
    assert stage.get_by_role("tab", selected=True).inner_text() == "Timeline"
    page.keyboard.press("ArrowLeft")
    assert tab.inner_text() == "Collectives" and frame(stage)["playhead"] == playhead
    stops = [press("Tab")]
    while stops[-1] != "0":
        stops.append(press("Tab"))
    reached = {press("ArrowDown") for _ in range(12)} | {"0"}
    assert reached == {"0", "1", "2", "3", "0>1", "1>2", "2>3", "3>0"}
    stops.append(press("Tab"))
    assert stops[-1] == "wb-matrix" and len(stops) <= 6, "ranks and links are one stop"
    assert tip(stage).startswith("rank 0, chunk 0: ")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert tip(stage).startswith("rank 1, chunk 1: ")
    heard = stage.locator(".wb-scene-collectives .wb-sr[role=status]")
    assert heard.inner_text() == tip(stage).replace("\n", " ")
    assert frame(stage)["playhead"] == playhead, "the arrows went to the cells"
    stage.locator(".wb-co-spots button[data-code='2']").focus()
    page.keyboard.press("Enter")
    assert stage.locator(".wb-rank-menu").get_attribute("aria-label") == "Change rank 2"


def test_all_that_is_drawn_is_said(tmp_path: Path, open_page: Callable[..., Watched]) -> None:
    stage = held(tmp_path, open_page().page)
    ring = stage.locator(".wb-ring").get_attribute("aria-label") or ""
    for mark in frame(stage)["marks"]:
        assert f"chunk {mark['chunk']} from rank {mark['rank']} to rank {mark['peer']}, " in ring
    matrix = stage.locator(".wb-matrix").get_attribute("aria-label") or ""
    assert all(f"rank {r} has " in matrix for r in range(4)) and "kB sent" in matrix


BOXES = """(root) => [...root.querySelectorAll(`.wb-scene:not([hidden]) :is(h3, canvas.wb-ring,
  canvas.wb-matrix, .wb-co-links, .wb-co-fact, .wb-key > span, .wb-co-story li)`)].map((e) => {
    const { x, y, width, height } = e.getBoundingClientRect();
    return [e.className || e.textContent, x, y, width, height]; })
  .filter(([name, , , w, h]) => w > 0 && h > 0 && name !== "wb-co-head")"""


def apart(stage: Locator, width: int) -> None:
    """Nothing of the scene is cut off, and nothing lies over something else."""
    page = stage.page
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    boxes = stage.evaluate(BOXES)
    assert len(boxes) > 8
    for i, (name, x, y, w, h) in enumerate(boxes):
        assert x >= 0 and x + w <= width, name
        for other, x2, y2, w2, h2 in boxes[i + 1 :]:
            free = x + w <= x2 + 1 or x2 + w2 <= x + 1 or y + h <= y2 + 1 or y2 + h2 <= y + 1
            assert free, f"{name} and {other}"


def planned(folder: Path, page: Page, name: str, ranks: int, share: float = 0.4) -> Locator:
    """The page of a plan, held within its call."""
    operation, algorithm = name.split("/")
    plan = wb.plan(
        operation, algorithm, ranks=ranks, nbytes=0 if operation == "barrier" else "960 kB"
    )
    plan.to_html(folder / "plan.html")
    page.goto((folder / "plan.html").as_uri())
    stage = page.locator(".wb-stage")
    wait_for(lambda: stage.evaluate("(root) => root.stage.known().table.rows"), "its rows")
    hold(stage, share)
    return stage


def hold(stage: Locator, share: float) -> None:
    stage.evaluate(
        "(root, share) => { const { from, to } = root.stage.known().table;"
        " root.stage.goto(from + share * (to - from)); }",
        share,
    )
    let_draw(stage.page, 400)


@pytest.mark.parametrize("width", first(2, [400, 640, 960]))
@pytest.mark.parametrize(
    ("name", "ranks"),
    first(
        2,
        [
            ("all_reduce/hierarchical", 8),
            ("all_reduce/butterfly", 16),
            ("gather/tree", 4),
            ("all_to_all/pairwise", 4),
            ("all_reduce/tree", 8),
            ("broadcast/flat", 8),
            ("barrier/dissemination", 5),
        ],
    ),
)
def test_every_shape_has_its_place(
    tmp_path: Path, open_page: Callable[..., Watched], name: str, ranks: int, width: int
) -> None:
    watched = open_page(viewport={"width": width, "height": 1400})
    stage = planned(tmp_path, watched.page, name, ranks)
    assert frame(stage)["scene"] == "collectives"
    apart(stage, width)
    ring = stage.locator(".wb-ring").bounding_box()
    assert ring
    for mark in frame(stage)["marks"]:
        assert 0 <= mark["x"] <= ring["width"] and 0 <= mark["y"] <= ring["height"]
    assert stage.locator(".wb-co-spots button[data-code]").count() >= ranks
    assert not watched.errors and not watched.foreign


@pytest.mark.full
def test_the_links_as_a_table(tmp_path: Path, open_page: Callable[..., Watched]) -> None:
    """Toggled by a button, also without a mouse; every pair says its bytes and its busy time."""
    page = open_page().page
    stage = planned(tmp_path, page, "all_reduce/tree", 4, share=1.0)
    button, ring = stage.locator(".wb-co-links"), stage.locator(".wb-ring")
    button.focus()
    page.keyboard.press("Enter")
    let_draw(page, 400)
    assert button.get_attribute("aria-pressed") == "true"
    assert "rank 1 to rank 0: 960 kB, busy" in (ring.get_attribute("aria-label") or "")
    assert stage.locator(".wb-co-spots button").count() == 0
    box = ring.bounding_box()
    assert box
    pitch = min(64, (box["width"] - 44) / 4, (box["height"] - 38) / 4)
    left = max(34, (box["width"] - 4 * pitch) / 2)
    ring.hover(position={"x": left + 0.5 * pitch, "y": 34 + 1.5 * pitch})
    assert tip(stage).startswith("rank 1 → rank 0: 960 kB of 960 kB have left, in 1 chunk\nbusy ")
    ring.hover(position={"x": left + 3.5 * pitch, "y": 34 + 1.5 * pitch})
    assert tip(stage) == "rank 1 sends nothing to rank 3"
    apart(stage, 1280)
    button.click()
    let_draw(page, 300)
    assert stage.locator(".wb-co-spots button[data-code='0']").count() == 1


def test_what_is_below_stays_where_it_is_when_the_links_become_a_table(
    tmp_path: Path, open_page: Callable[..., Watched]
) -> None:
    page = open_page().page
    stage = planned(tmp_path, page, "all_to_all/pairwise", 4)
    keys = stage.locator(".wb-co-keys")
    before = keys.bounding_box()
    assert stage.locator(".wb-co-fact").inner_text(), "links cross in the middle: words are below"
    stage.locator(".wb-co-links").click()
    let_draw(page, 600)
    assert keys.bounding_box() == before


@pytest.mark.parametrize("width", first(2, [400, 640, 960]))
def test_two_algorithms_share_one_playhead(
    tmp_path: Path, open_page: Callable[..., Watched], width: int
) -> None:
    watched = open_page(viewport={"width": width, "height": 1800})
    ring, tree = (
        wb.plan("all_reduce", name, ranks=8, nbytes="800 kB", latency="60 us")
        for name in ("ring", "tree")
    )
    wb.side_by_side(ring, tree).to_html(tmp_path / "pair.html")
    watched.page.goto((tmp_path / "pair.html").as_uri())
    stage = watched.page.locator(".wb-stage")
    wait_for(lambda: stage.evaluate("(root) => root.stage.known().table.rows"), "its rows")
    hold(stage, 0.25)
    assert frame(stage)["scene"] == "pair"
    assert stage.locator(".wb-tabs button:visible").all_inner_texts() == ["Side by side"]
    assert {mark["side"] for mark in frame(stage)["marks"]} == {0, 1}
    sentence = stage.locator(".wb-say span").inner_text()
    assert (
        sentence.startswith("Ring takes ")
        and "tree" in sentence
        and sentence.endswith("times as long.")
    )
    assert stage.locator(".wb-pair h2").all_inner_texts()[0].startswith("ring: ")
    apart(stage, width)
    hold(stage, 0.75)  # the ring is through; the tree goes on
    assert {mark["side"] for mark in frame(stage)["marks"]} == {1}
    matrix = stage.locator(".wb-matrix").first.get_attribute("aria-label") or ""
    assert matrix.count("has 8 of 8 chunks complete") == 8
    stage.focus()
    before = frame(stage)["playhead"]
    watched.page.keyboard.press("ArrowLeft")
    assert frame(stage)["playhead"] < before
    assert not watched.errors and not watched.foreign


@pytest.mark.parametrize("width", first(2, [400, 640, 960]))
@pytest.mark.parametrize("ranks", first(1, [16, 2, 4, 8]))
def test_nothing_is_wider_than_the_stage_and_nothing_lies_over_something_else(
    tmp_path: Path, open_page: Callable[..., Watched], ranks: int, width: int
) -> None:
    """The page's own boxes; what a canvas holds is tested in tests/js/collectives.test.js."""
    page = open_page(viewport={"width": width, "height": 1400}).page
    stage = held(tmp_path, page, ranks=ranks)
    apart(stage, width)


@pytest.mark.full
def test_side_by_side_on_small_pages(tmp_path: Path, open_page: Callable[..., Watched]) -> None:
    """Time covers a third of the window at most; where there is no room, one is above the other."""
    plans = [wb.plan("all_reduce", "ring", ranks=n, nbytes="1 MB") for n in (4, 5)]
    wb.side_by_side(*plans, labels=("4 ranks", "5 ranks")).to_html(tmp_path / "pair.html")
    page = open_page(viewport={"width": 900, "height": 900}).page
    page.goto((tmp_path / "pair.html").as_uri())
    stage = page.locator(".wb-stage")
    wait_for(lambda: stage.evaluate("(root) => root.stage.known().table.rows"), "its rows")
    rings, time = stage.locator(".wb-ring"), stage.locator(".wb-time")
    wait_for(lambda: time.bounding_box()["y"] >= 600, "two thirds of the window for the pictures")
    one, other = (ring.bounding_box() for ring in rings.all())
    assert one["y"] == other["y"] and one["height"] == other["height"] and one["x"] < other["x"]
    page.set_viewport_size({"width": 1440, "height": 900})
    matrices = stage.locator(".wb-matrix")
    wait_for(lambda: matrices.first.bounding_box()["x"] > 300, "each beside its ring")
    seen = time.bounding_box()["y"]
    assert all(
        box["y"] + box["height"] <= seen for box in (m.bounding_box() for m in matrices.all())
    )
    page.set_viewport_size({"width": 400, "height": 900})
    wait_for(lambda: rings.first.bounding_box()["width"] > 340, "as wide as the page")
    one, other = (ring.bounding_box() for ring in rings.all())
    assert one["x"] == other["x"] and one["y"] + one["height"] < other["y"]
