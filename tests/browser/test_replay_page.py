"""A saved page moves from file://, in light and dark, asks no server, and obeys the keyboard."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page

from tests.browser.conftest import (
    Watched,
    calls,
    frame,
    let_draw,
    open_scene,
    opened_page,
    pixels,
    sees_chunks_move,
    wait_for,
)
from tests.pairwise import first
from tests.synthetic import training
from workbench.store.event_store import Store
from workbench.views.replay import to_html

pytestmark = pytest.mark.browser
SPEC = """
strategy: data_parallel
ranks: 4
iterations: 30
network: {links: {0->1: {latency: 20 ms}}}
"""


@pytest.fixture
def saved(tmp_path: Path) -> str:
    to_html(Store.from_frame(training(30), {"experiment": SPEC}), tmp_path / "run.html")
    return (tmp_path / "run.html").as_uri()


def stage_of(page: Page, uri: str, scene: str = "collectives") -> Locator:
    return opened_page(page, uri, scene)


@pytest.mark.parametrize(
    "scheme, ground", first(1, [("light", (255, 255, 255)), ("dark", (20, 23, 27))])
)
def test_moves_from_file_in_light_and_dark(
    saved: str, open_page: Callable[..., Watched], scheme: str, ground: tuple[int, int, int]
) -> None:
    stage = stage_of(open_page(color_scheme=scheme).page, saved)
    sees_chunks_move(stage)
    assert stage.evaluate("(root) => getComputedStyle(root).backgroundColor") == f"rgb{ground}"
    assert "real · call 1 of 30" in stage.locator(".wb-real").inner_text()
    assert "link 0 → 1 emulated: 20 ms" in stage.locator(".wb-made").inner_text()


def test_every_mark_is_a_row_at_its_place(saved: str, open_page: Callable[..., Watched]) -> None:
    """At least 20 chunks, each matched with its two rows: its place follows from their times."""
    stage, events = stage_of(open_page().page, saved), training(30)
    key = ["op", "step", "chunk", "slot"]
    rows = events.filter(group="default")
    recv = rows.filter(kind="recv").select(*key, rank="peer", peer="rank", arrived="end_ns")
    sends = rows.filter(kind="send").select(*key, "rank", "peer", "start_ns")
    flights = {r[:6]: r[6:] for r in sends.join(recv, on=[*key, "rank", "peer"]).iter_rows()}
    matched: set[tuple[int, ...]] = set()

    def twenty() -> bool:
        now = frame(stage)
        for mark in now["marks"]:
            flight = tuple(mark[k] for k in (*key, "rank", "peer"))
            left, arrived = flights[flight]
            share = (now["playhead"] - left) / (arrived - left)
            assert mark["share"] == pytest.approx(share, abs=1e-6)
            assert mark["group"] == "default"
            matched.add(flight)
        return len(matched) >= 20

    wait_for(twenty, "twenty chunks")


@pytest.mark.full
def test_a_row_removed_is_a_chunk_less(tmp_path: Path, open_page: Callable[..., Watched]) -> None:
    """At the moment at which that chunk was on its way it is not there any more."""
    events = training(1)
    lost = (events["kind"] == "recv") & (events["rank"] == 1) & (events["step"] == 2)
    assert lost.sum() == 1
    arrived = events.filter(lost)
    left = events.filter(kind="send", rank=0, step=2)["start_ns"][0]
    moment = (left + arrived["end_ns"][0]) / 2 - events["start_ns"].min()
    shown = []
    for table in (events, events.filter(~lost)):
        to_html(Store.from_frame(table), tmp_path / "run.html")
        stage = stage_of(open_page().page, (tmp_path / "run.html").as_uri())
        stage.evaluate("(root, t) => root.stage.goto(t)", moment)
        shown.append({(m["rank"], m["peer"], m["step"], m["chunk"]) for m in frame(stage)["marks"]})
    assert shown[0] - shown[1] == {(0, 1, 2, arrived["chunk"][0])} and shown[1] < shown[0]


def test_the_keyboard_is_enough(saved: str, open_page: Callable[..., Watched]) -> None:
    page = open_page().page
    stage = stage_of(page, saved)
    sees_chunks_move(stage)
    stage.focus()
    page.keyboard.press("Space")
    wait_for(lambda: stage.locator(".wb-bar .wb-state").inner_text() == "❚❚ View held", "the word")
    let_draw(page, 200)  # the frame that shows the held playhead is drawn
    held, picture = frame(stage)["playhead"], pixels(stage)
    let_draw(page, 300)
    assert frame(stage)["playhead"] == held and pixels(stage) == picture
    page.keyboard.press("ArrowRight")
    on = frame(stage)["playhead"]
    page.keyboard.press("ArrowLeft")
    assert frame(stage)["playhead"] < on > held
    page.keyboard.press("Space")
    wait_for(lambda: frame(stage)["playhead"] > on, "playing on")
    page.keyboard.press("l")
    wait_for(lambda: (frame(stage)["call"] or {}).get("number") == 30, "the newest call")
    for key, scene in (("1", "overview"), ("3", "timeline"), ("2", "collectives")):
        page.keyboard.press(key)
        assert frame(stage)["scene"] == scene
    page.keyboard.press("Home")
    wait_for(lambda: (frame(stage)["call"] or {}).get("number") == 1, "the first call")
    page.keyboard.press("-")  # of a held view: its speed when it goes on
    assert stage.locator(".wb-pace").evaluate("(menu) => menu.selectedIndex") == 0
    page.keyboard.press("+")
    assert stage.locator(".wb-pace").evaluate("(menu) => menu.value") == "0.0001"
    grows_and_comes_back(page, stage)
    is_taken_along(page, stage)


def grows_and_comes_back(page: Page, stage: Locator) -> None:
    """P makes all of it larger, sharply; F fills the screen, and ends that too."""
    width = stage.locator(".wb-ring").bounding_box()["width"]
    page.keyboard.press("p")
    wait_for(lambda: stage.locator(".wb-ring").bounding_box()["width"] > 1.2 * width, "larger")
    let_draw(page, 300)
    ring = stage.locator(".wb-ring")
    assert ring.evaluate("(ring) => ring.width") >= 0.99 * ring.bounding_box()["width"], "sharp"
    page.keyboard.press("p")
    full = "(root) => !!document.fullscreenElement?.contains(root)"
    page.keyboard.press("f")
    wait_for(lambda: stage.evaluate(full), "the full screen")
    assert stage.get_by_label("Full screen").get_attribute("aria-pressed") == "true"
    page.keyboard.press("f")
    wait_for(lambda: not stage.evaluate(full), "the page again")


def is_taken_along(page: Page, stage: Locator) -> None:
    """This moment as an address that leads back to it, as a picture and as a moving one: a small
    page's, of which 48 frames cost less.
    """
    page.set_viewport_size({"width": 640, "height": 800})
    stage.evaluate("(root) => root.stage.show(root.stage.known().table.calls[7].key)")
    stage.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    moment = frame(stage)
    begins = {"png": b"\x89PNG\r\n", "svg": b"<svg ", "gif": b"GIF89a"}
    for kind, start in begins.items():
        stage.get_by_role("button", name="Share").click()
        with page.expect_download() as file:
            stage.locator(f"[data-share={kind}]").click()
        assert file.value.suggested_filename == f"collectives-call-8.{kind}"
        content = Path(file.value.path()).read_bytes()
        assert content.startswith(start)
        if kind == "gif":
            assert content.count(b"\x21\xf9\x04") == 48
        if kind == "svg":
            assert b">What each rank holds</text>" in content and content.count(b"<image ") > 3
    assert frame(stage)["playhead"] == moment["playhead"], "the reader's moment"
    stage.focus()
    page.keyboard.press("c")
    address = stage.get_by_label("this moment").input_value()
    page.goto("about:blank")
    page.goto(address)
    again = page.locator(".wb-stage")
    wait_for(lambda: frame(again)["call"] == moment["call"], "the same call")
    assert frame(again)["t"] == pytest.approx(moment["t"], abs=1)


def test_the_whole_run_can_be_scrubbed(saved: str, open_page: Callable[..., Watched]) -> None:
    page = open_page().page
    stage = stage_of(page, saved)
    strip = stage.locator(".wb-strip")
    box = strip.bounding_box()
    numbers = []
    for share in (0.12, 0.52, 0.88):
        x = 58 + share * (box["width"] - 66)
        strip.click(position={"x": x, "y": 12})
        numbers.append(frame(stage)["call"]["number"])
    assert numbers == [4, 16, 27]
    assert stage.locator(".wb-bar .wb-state").inner_text() == "❚❚ View held"


def test_still_frames_for_a_reader_without_motion(
    saved: str, open_page: Callable[..., Watched]
) -> None:
    page = open_page(reduced_motion="reduce").page
    stage = stage_of(page, saved)
    wait_for(lambda: frame(stage)["marks"], "a frame with chunks")
    let_draw(page, 300)
    before, op = pixels(stage), frame(stage)["call"]["op"]
    let_draw(page, 500)
    assert pixels(stage) == before and frame(stage)["call"]["op"] == op


@pytest.mark.full
@pytest.mark.parametrize("ranks", first(1, [16, 1, 2, 3, 8]))
def test_any_number_of_ranks(tmp_path: Path, open_page: Callable[..., Watched], ranks: int) -> None:
    """Also none that communicate: a single rank has nothing to send, and the page says so."""
    events = training(3, ranks=ranks)
    to_html(Store.from_frame(events, {"experiment": f"ranks: {ranks}"}), tmp_path / "run.html")
    stage = stage_of(open_page().page, (tmp_path / "run.html").as_uri())
    if ranks > 1:
        sees_chunks_move(stage)
    assert calls(stage) == 3
    for scene in ("collectives", "overview", "timeline"):
        open_scene(stage, scene)
        let_draw(stage.page, 400)
        assert pixels(stage)
        assert stops_to_the_time_controls(stage) <= 12
    open_scene(stage, "overview")
    lines = stage.locator("button.wb-ov-line")
    if lines.count() > 1:  # the ranks' lines are one stop, and arrows lead from line to line
        lines.first.focus()
        stage.page.keyboard.press("ArrowUp")
        assert lines.last.evaluate("(line) => line === document.activeElement")


def stops_to_the_time_controls(stage: Locator) -> int:
    """How often Tab is pressed from the stage to the first control of its time."""
    stage.focus()
    for stops in range(1, 40):
        stage.page.keyboard.press("Tab")
        if stage.evaluate("(root) => !!root.querySelector('.wb-bar :focus, .wb-bar:focus')"):
            return stops
    pytest.fail("no way to the time controls by Tab")


def test_a_failed_run_says_why(tmp_path: Path, open_page: Callable[..., Watched]) -> None:
    error = 'rank 2 (process 7) was killed </script> by "SIGKILL" in iteration 3.\nMore of it.'
    to_html(Store.from_frame(training(3), {"error": error}), tmp_path / "run.html")
    stage = stage_of(open_page().page, (tmp_path / "run.html").as_uri(), "overview")
    wait_for(lambda: stage.locator(".wb-bar .wb-state").inner_text() == "✕ Failed", "the state")
    wait_for(lambda: error.splitlines()[0].split(" was ")[1] in stage.inner_text(), "the reason")
