"""A saved page moves from file://, in light and dark, asks nobody, and obeys the keyboard."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.browser.conftest import Watched, frame, known, pixels, sees_chunks_move, wait_for
from tests.synthetic import training
from workbench.replay import to_html
from workbench.store import Store

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


@pytest.mark.parametrize("scheme, ground", [("light", (255, 255, 255)), ("dark", (20, 23, 27))])
def test_moves_from_file_in_light_and_dark(
    saved: str, open_page: Callable[..., Watched], scheme: str, ground: tuple[int, int, int]
) -> None:
    page = open_page(color_scheme=scheme).page
    page.goto(saved)
    stage = page.locator(".wb-stage")
    sees_chunks_move(stage)
    assert stage.evaluate("(root) => getComputedStyle(root).backgroundColor") == f"rgb{ground}"
    assert "real · call 1 of 30" in stage.locator(".wb-real").inner_text()
    assert stage.locator(".wb-made").inner_text() == "link 0 → 1 emulated: 20 ms"


def test_every_mark_is_a_row_at_its_place(saved: str, open_page: Callable[..., Watched]) -> None:
    """At least 20 chunks, each matched with its two rows: its place follows from their times."""
    page = open_page().page
    page.goto(saved)
    stage, events = page.locator(".wb-stage"), training(30)
    origin = events["start_ns"].min()
    key = ["op", "step", "chunk", "slot"]
    rows = events.filter(group="default")
    recv = rows.filter(kind="recv").select(*key, rank="peer", peer="rank", arrived="end_ns")
    sends = rows.filter(kind="send").select(*key, "rank", "peer", "start_ns")
    flights = {r[:6]: r[6:] for r in sends.join(recv, on=[*key, "rank", "peer"]).iter_rows()}
    matched: set[tuple[int, ...]] = set()

    def twenty() -> bool:
        now = frame(stage)
        for mark in now["marks"]:
            who = tuple(mark[k] for k in (*key, "rank", "peer"))
            left, arrived = flights[who]
            share = (now["playhead"] + origin - left) / (arrived - left)
            assert mark["share"] == pytest.approx(share, abs=1e-6)
            matched.add(who)
        return len(matched) >= 20

    wait_for(twenty, "twenty chunks")


def test_a_row_removed_is_a_chunk_less(tmp_path: Path, open_page: Callable[..., Watched]) -> None:
    events = training(1)
    gone = (events["kind"] == "recv") & (events["rank"] == 1) & (events["step"] == 2)
    assert gone.sum() == 1
    counts = []
    for table in (events, events.filter(~gone)):
        to_html(Store.from_frame(table), tmp_path / "run.html")
        page = open_page().page
        page.goto((tmp_path / "run.html").as_uri())
        stage = page.locator(".wb-stage")
        wait_for(lambda stage=stage: known(stage, "calls"), "the call")
        counts.append(stage.evaluate("(root) => root.stage.known().calls[0].flights.length"))
    assert counts == [24, 23]


def test_the_keyboard_is_enough(saved: str, open_page: Callable[..., Watched]) -> None:
    page = open_page().page
    page.goto(saved)
    stage = page.locator(".wb-stage")
    sees_chunks_move(stage)
    stage.focus()
    page.keyboard.press("Space")
    wait_for(lambda: stage.locator(".wb-state").inner_text() == "❚❚ View held", "the word for it")
    page.wait_for_timeout(200)  # the frame that shows the held playhead is drawn
    held, picture = frame(stage)["playhead"], pixels(stage)
    page.wait_for_timeout(300)
    assert frame(stage)["playhead"] == held and pixels(stage) == picture
    page.keyboard.press("ArrowRight")
    on = frame(stage)["playhead"]
    page.keyboard.press("ArrowLeft")
    assert frame(stage)["playhead"] < on > held
    page.keyboard.press("Space")
    wait_for(lambda: frame(stage)["playhead"] > on, "playing on")
    page.keyboard.press("l")
    wait_for(lambda: (frame(stage)["call"] or {}).get("number") == 30, "the newest call")


def test_still_frames_for_who_wants_no_motion(
    saved: str, open_page: Callable[..., Watched]
) -> None:
    page = open_page(reduced_motion="reduce").page
    page.goto(saved)
    stage = page.locator(".wb-stage")
    wait_for(lambda: frame(stage)["marks"], "a frame with chunks")
    before, op = pixels(stage), frame(stage)["call"]["op"]
    page.wait_for_timeout(500)
    assert pixels(stage) == before and frame(stage)["call"]["op"] == op


@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 16])
def test_any_number_of_ranks(tmp_path: Path, open_page: Callable[..., Watched], ranks: int) -> None:
    """Also none that communicate: a single rank has nothing to send, and the page says so."""
    events = training(3, ranks=ranks)
    to_html(Store.from_frame(events, {"experiment": f"ranks: {ranks}"}), tmp_path / "run.html")
    page = open_page().page
    page.goto((tmp_path / "run.html").as_uri())
    stage = page.locator(".wb-stage")
    if ranks > 1:
        sees_chunks_move(stage)
    else:
        wait_for(lambda: "no chunk was recorded" in stage.inner_text(), "the words for it")


def test_a_failed_run_says_why(tmp_path: Path, open_page: Callable[..., Watched]) -> None:
    error = 'rank 2 (process 7) was killed </script> by "SIGKILL" in iteration 3.\nMore of it.'
    to_html(Store.from_frame(training(3), {"error": error}), tmp_path / "run.html")
    page = open_page().page
    page.goto((tmp_path / "run.html").as_uri())
    stage = page.locator(".wb-stage")
    wait_for(lambda: stage.locator(".wb-state").inner_text() == "✕ Failed", "the state")
    assert stage.locator(".wb-say").inner_text() == error.splitlines()[0]
