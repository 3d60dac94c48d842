"""The pipeline's scene, from real runs: every bar is a row, the parts of idle time are the whole,
the keyboard is enough, and live it shows which rank holds up which.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from playwright.sync_api import Locator, Page

import workbench as wb
from tests.browser.conftest import (
    Watched,
    frame,
    keys_step_and_change_the_scene,
    let_draw,
    marks,
    open_scene,
    opened_page,
    pixels,
    wait_for,
)
from tests.browser.test_overview import CLASHES, Viewer
from tests.live import LONG, lenet
from tests.pairwise import first

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
RANKS, MICROBATCHES = 4, 8
KINDS = {"F": "forward", "B": "backward", "I": "backward", "W": "weight_grad"}


def experiment(**fields: Any) -> wb.Experiment:
    options = {"schedule": "1f1b", "microbatches": MICROBATCHES, **fields.pop("options", {})}
    return lenet(
        **{
            "strategy": "pipeline",
            "ranks": RANKS,
            "iterations": 6,
            "pad_compute": "10 ms",
            "options": options,
            **fields,
        }
    )


def saved_page(folder: Path, exp: wb.Experiment) -> tuple[str, pl.DataFrame]:
    run = wb.run(exp)
    run.wait(timeout=90)
    run.to_html(folder / "run.html")
    return (folder / "run.html").as_uri(), run.events


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, pl.DataFrame]:
    """A page of a run that is over, and its rows."""
    return saved_page(tmp_path_factory.mktemp("piped"), experiment())


def stage_of(page: Page, uri: str) -> Locator:
    return opened_page(page, uri, "pipeline")


def hold_at(stage: Locator, iteration: int, part: float) -> dict[str, Any]:
    """Hold the view so far into an iteration."""
    stage.evaluate("(root, key) => root.stage.show(key)", f"pass/{iteration}")

    def shown() -> bool:
        return any(mark["iteration"] == iteration for mark in marks(frame(stage), "action"))

    wait_for(shown, f"iteration {iteration}")
    actions = marks(frame(stage), "action")
    start, end = min(m["start"] for m in actions), max(m["end"] for m in actions)
    stage.evaluate("(root, t) => root.stage.goto(t)", start + part * (end - start))
    return frame(stage)


@pytest.mark.full
def test_every_bar_is_a_row_and_idle_time_fills_what_is_left(
    saved: tuple[str, pl.DataFrame], open_page: Callable[..., Watched]
) -> None:
    uri, events = saved
    stage = stage_of(open_page().page, uri)
    origin = events["start_ns"].min()
    assert isinstance(origin, int)
    for iteration in (1, 4):
        now = hold_at(stage, iteration, 1)
        bars = marks(now, "action")
        assert len(bars) == 2 * RANKS * MICROBATCHES
        assert len(marks(now, "plan")) == len(bars)
        for bar in bars:
            place = {name: bar[name] for name in ("rank", "stage", "microbatch", "iteration")}
            row = events.filter(kind=KINDS[bar["kind"]], **place)
            assert row.height == 1
            assert row["start_ns"][0] - origin == bar["start"]
            assert row["end_ns"][0] - origin == bar["end"]
        start, end = min(b["start"] for b in bars), max(b["end"] for b in bars)
        idle = marks(now, "idle")
        for rank in range(RANKS):
            busy = sum(b["end"] - b["start"] for b in bars if b["rank"] == rank)
            rest = sum(i["end"] - i["start"] for i in idle if i["rank"] == rank)
            assert busy + rest == end - start


def test_what_is_on_its_way_is_two_rows(
    saved: tuple[str, pl.DataFrame], open_page: Callable[..., Watched]
) -> None:
    uri, events = saved
    stage = stage_of(open_page().page, uri)
    origin, kind = events["start_ns"].min(), pl.col("kind").cast(pl.String)
    assert isinstance(origin, int)
    sends = events.filter(kind == "send", pl.col("stage") >= 0, pl.col("iteration") == 2)
    count = 0
    for send in sends.iter_rows(named=True):
        ends = {"rank": send["peer"], "peer": send["rank"], "op": send["op"]}
        recv = events.filter(kind == "recv", **ends)
        moment = (send["start_ns"] + recv["end_ns"][0]) // 2 - origin
        stage.evaluate("(root, t) => root.stage.goto(t)", moment)
        for mark in marks(frame(stage), "hop"):
            assert 0 <= mark["share"] <= 1
            own = (mark["rank"], mark["peer"], mark["op"])
            count += own == (send["rank"], send["peer"], send["op"])
    assert count >= sends.height // 2, f"{count} of {sends.height}"


@pytest.mark.parametrize(("width", "scheme"), first(1, [(672, "dark"), (992, "light")]))
def test_nothing_overlaps_and_the_keyboard_is_enough(
    saved: tuple[str, pl.DataFrame], open_page: Callable[..., Watched], width: int, scheme: str
) -> None:
    watched = open_page(color_scheme=scheme, viewport={"width": width, "height": 1100})
    page, stage = watched.page, stage_of(watched.page, saved[0])
    for part in (0.2, 0.6, 1):
        hold_at(stage, 3, part)
        let_draw(page, 300)
        assert stage.evaluate(CLASHES) == [], part
    text = stage.locator(".wb-scene-pipeline .wb-pl-words").inner_text()
    assert "warm-up and drain" in text and "the planned time" in text and "formula" in text
    hold_at(stage, 3, 0.5)
    before = pixels(stage)
    stage.locator(".wb-scene-pipeline .wb-co-spots button").first.focus()
    tip = stage.locator(".wb-scene-pipeline .wb-co-tip")
    assert "stage 0 on rank 0" in tip.inner_text()
    page.keyboard.press("ArrowDown")
    assert "stage 1 on rank 1" in tip.inner_text()
    page.keyboard.press("Enter")
    let_draw(page, 300)
    chosen = stage.locator(".wb-scene-pipeline .wb-pl-chosen").inner_text()
    assert "on stage 1:" in chosen and "than planned" in chosen
    assert pixels(stage) != before, "what is chosen is seen"
    keys_step_and_change_the_scene(page, stage, "5", "pipeline")


@pytest.mark.full
def test_the_pointer_chooses_an_action_and_scrubs(
    saved: tuple[str, pl.DataFrame], open_page: Callable[..., Watched]
) -> None:
    page = open_page().page
    stage = stage_of(page, saved[0])
    now = hold_at(stage, 3, 0.9)
    bar = next(m for m in marks(now, "action") if (m["stage"], m["kind"]) == (2, "B"))
    canvas = stage.locator("canvas.wb-pl")
    at = {"x": bar["x"] + bar["w"] / 2, "y": bar["y"] + bar["h"] / 2}
    canvas.hover(position=at)
    tip = stage.locator(".wb-scene-pipeline .wb-co-tip")
    words = f"backward of microbatch {bar['microbatch']} on stage 2"
    assert words in tip.inner_text() and "its gradient left stage 3" in tip.inner_text()
    canvas.click(position=at)
    chosen = stage.locator(".wb-scene-pipeline .wb-pl-chosen")
    wait_for(lambda: words in chosen.inner_text(), "the chosen action in words")
    canvas.click(position={"x": bar["x"], "y": 8})
    assert abs(frame(stage)["t"] - bar["start"]) < 2e6, "the axis leads to its moment"
    score = stage.locator("canvas.wb-score")
    score.click(position={"x": 96, "y": 20})
    wait_for(lambda: marks(frame(stage), "action")[0]["iteration"] == 0, "the first iteration")


@pytest.mark.full
def test_replicas_stages_and_collectives_have_their_places(
    open_page: Callable[..., Watched], tmp_path: Path
) -> None:
    options = {"schedule": "interleaved_1f1b", "stages_per_rank": 2, "replicas": 2}
    uri, events = saved_page(tmp_path, experiment(iterations=3, options=options))
    page = open_page().page
    stage = stage_of(page, uri)
    now = hold_at(stage, 1, 1)
    assert {mark["rank"] for mark in marks(now, "action")} == {0, 1}
    assert {mark["stage"] for mark in marks(now, "action")} == {0, 1, 2, 3}
    mesh = stage.locator(".wb-pl-mesh")
    rows = mesh.locator("button")
    assert rows.count() == 2 and mesh.locator("[data-rank]").all_inner_texts() == list("0123")
    assert "pipeline: activations" in mesh.inner_text() and "all-reduced" in mesh.inner_text()
    joined = events.filter(
        pl.col("kind").cast(pl.String) == "collective",
        pl.col("group").cast(pl.String) == "replicas 1",
        iteration=1,
        rank=1,
    )
    assert f"{joined.height} tensors" in str(mesh.locator("b").nth(1).get_attribute("title"))
    assert re.match(r"[\d.]+ k?B\n[\d.]+ .?s$", mesh.locator("b").nth(1).inner_text())
    rows.nth(0).focus()
    page.keyboard.press("ArrowDown")
    wait_for(lambda: {m["rank"] for m in marks(frame(stage), "action")} == {2, 3}, "replica 1")
    assert [rows.nth(n).get_attribute("aria-pressed") for n in (0, 1)] == ["false", "true"]
    mesh.locator("[data-rank='1']").click()
    wait_for(lambda: {m["rank"] for m in marks(frame(stage), "action")} == {0, 1}, "replica 0")
    assert mesh.locator("[data-rank].on").all_inner_texts() == ["1"], "and the rank is chosen"
    assert stage.evaluate(CLASHES) == []
    t = frame(stage)["t"]
    page.keyboard.press("2")
    assert frame(stage)["call"]["group"].startswith("replicas")
    page.keyboard.press("5")
    assert frame(stage)["t"] == t, "the moment is kept"


@pytest.mark.full
def test_the_scene_is_offered_where_there_are_stages(
    open_page: Callable[..., Watched], tmp_path: Path
) -> None:
    uri, _ = saved_page(tmp_path, lenet(ranks=2, iterations=3))
    page = open_page().page
    page.goto(uri)
    stage = page.locator(".wb-stage")
    wait_for(lambda: stage.evaluate("(root) => root.stage.known().table.rows"), "its rows")
    stage.focus()
    page.keyboard.press("5")
    assert stage.get_attribute("data-scene") != "pipeline"


@pytest.fixture
def live(open_page: Callable[..., Watched]) -> Iterator[tuple[wb.Run, Viewer]]:
    run = wb.run(experiment(iterations=LONG))
    viewer = Viewer(open_page().page, run, 992)
    yield run, viewer
    run.stop()
    run.wait(timeout=90, check=False)


@pytest.mark.full
def test_live_a_frozen_stage_is_waited_for(live: tuple[wb.Run, Viewer]) -> None:
    run, viewer = live
    stage = viewer.stage
    viewer.until(lambda: viewer.knows("k.table.rows > 2000"), "rows")
    open_scene(stage, "pipeline")
    iterations: set[int] = set()

    def goes_on() -> bool:
        iterations.update(mark["iteration"] for mark in marks(frame(stage), "action"))
        return len(iterations) > 1

    viewer.until(goes_on, "one iteration after another")
    run.freeze(2)
    sentence = stage.locator(".wb-say")
    viewer.until(lambda: "You froze rank 2" in sentence.inner_text(), "a sentence")
    assert stage.evaluate(CLASHES) == []
    run.thaw(2)
    viewer.until(lambda: "You froze" not in sentence.inner_text(), "they go on")
    struck = run.events.filter(kind="fault", name="freeze")["end_ns"][0]
    moment = struck + 1_000_000 - frame(stage)["playhead"] + frame(stage)["t"]
    stage.evaluate("(root, t) => root.stage.goto(t)", moment)
    waits = {mark["rank"] for mark in marks(frame(stage), "idle") if mark["why"] == "fault"}
    assert waits and waits != {2}, "others waited, and it is said why"
