"""The scene of a run with actors, from real runs: what is on its way is rows, ages and bytes are
those of the run, the keyboard is enough, and nothing lies over anything.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import workbench as wb
from tests.browser.conftest import (
    Watched,
    frame,
    let_draw,
    marks,
    opened_page,
    pixels,
    sees_chunks_move,
    wait_for,
)
from tests.browser.test_overview import CLASHES, Viewer
from tests.live import LONG
from tests.pairwise import first
from tests.training.reinforcement.played import game

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
SCENE = ".wb-scene-reinforcement"
SMALL = {"rows": 5, "columns": 4, "channels": 2, "hidden": 8}


def played(strategy: str = "ape_x", ranks: int = 4, iterations: int = 40, **more: object) -> wb.Run:
    return wb.run(
        game(strategy, ranks, iterations, task_options=SMALL, pad_environment="1 ms", **{**more})
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, pl.DataFrame]:
    """Of a run that is over its page and its rows."""
    run, file = played(), tmp_path_factory.mktemp("played") / "run.html"
    run.wait(timeout=90)
    run.to_html(file)
    text = pl.col("kind", "group", "name", "collective").cast(pl.String)
    return file.as_uri(), run.events.with_columns(text)


def test_what_moves_is_rows_and_ages_and_bytes_are_those_of_the_run(
    saved: tuple[str, pl.DataFrame], open_page: Callable[..., Watched]
) -> None:
    uri, events = saved
    stage = opened_page(open_page().page, uri, "reinforcement")
    sees_chunks_move(stage)
    rows = events.filter(pl.col("group") == "default", pl.col("collective") == "p2p")
    sends, recvs = (rows.filter(pl.col("kind") == kind) for kind in ("send", "recv"))
    middles = ((sends["start_ns"] + sends["end_ns"]) / 2 - events["start_ns"].min()).sort()
    comets = behind = 0
    for moment in [float(middles[i]) for i in range(9, len(middles), len(middles) // 25)]:
        stage.evaluate("(root, t) => root.stage.goto(t)", moment)
        now = frame(stage)
        for comet in marks(now, "comet"):
            way = {"rank": comet["rank"], "peer": comet["peer"], "op": comet["op"]}
            left = sends.filter(**way)
            came = recvs.filter(rank=comet["peer"], peer=comet["rank"], op=comet["op"])
            assert left["start_ns"].min() <= now["playhead"] < came["end_ns"].max()
            assert comet["kind"] == left["name"][0]
            comets += 1
        done = events.filter(pl.col("end_ns") <= now["playhead"])
        updates = done.filter(pl.col("kind") == "optimizer")["iteration"].max()
        newest = 0 if updates is None else int(str(updates)) + 1
        for actor in marks(now, "actor"):
            pulls = done.filter(pl.col("kind") == "pull", pl.col("rank") == actor["rank"])
            assert actor["behind"] == newest - (pulls["version"].max() or 0)
            behind = max(behind, actor["behind"])
    assert comets >= 15 and behind > 0, (comets, behind)
    stage.evaluate("(root) => root.stage.goto(root.stage.known().table.to)")
    ways = pl.DataFrame(marks(frame(stage), "way"))
    for kind in ("experience", "minibatch", "priorities", "parameters"):
        drawn = ways.filter(kind=kind)["nbytes"].sum()
        assert drawn == sends.filter(pl.col("name") == kind)["nbytes"].sum(), kind


@pytest.mark.full
@pytest.mark.parametrize(("width", "scheme"), first(1, [(672, "dark"), (992, "light")]))
def test_nothing_overlaps_and_the_keyboard_is_enough(
    saved: tuple[str, pl.DataFrame], open_page: Callable[..., Watched], width: int, scheme: str
) -> None:
    watched = open_page(color_scheme=scheme, viewport={"width": width, "height": 1100})
    page, stage = watched.page, opened_page(watched.page, saved[0], "reinforcement")
    for part in (0.1, 0.5, 0.9):
        stage.evaluate("(r, f) => r.stage.goto(r.stage.known().table.to * f)", part)
        let_draw(page, 300)
        assert stage.evaluate(CLASHES) == [], part
    before = pixels(stage)
    spots = stage.locator(f"{SCENE} .wb-co-spots button")
    assert [spots.nth(i).get_attribute("aria-label") for i in range(4)] == [
        "actor 2",
        "actor 3",
        "replay 1",
        "learner 0",
    ]
    spots.first.focus()
    tip = stage.locator(f"{SCENE} .wb-co-tip")
    assert "actor 2:" in tip.inner_text() and "frames" in tip.inner_text()
    page.keyboard.press("Enter")
    wait_for(lambda: pixels(stage) != before, "what is chosen")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert "replay 1:" in tip.inner_text() and "transitions" in tip.inner_text()
    stage.focus()
    at = frame(stage)["playhead"]
    page.keyboard.press("ArrowLeft")
    assert frame(stage)["playhead"] < at


@pytest.mark.full
def test_bundles_are_one_place_and_their_experience_stays(
    open_page: Callable[..., Watched], tmp_path: Path
) -> None:
    run = played("gorila", 3, 20, bundle=True)
    run.wait(timeout=90)
    run.to_html(tmp_path / "run.html")
    stage = opened_page(open_page().page, (tmp_path / "run.html").as_uri(), "reinforcement")
    stage.evaluate("(root) => root.stage.goto(root.stage.known().table.to)")
    now = frame(stage)
    assert [one["rank"] for one in marks(now, "bundle")] == [1, 2]
    assert {one["kind"] for one in marks(now, "way")} >= {"gradients", "parameters"}
    assert not {"experience", "minibatch"} & {one["kind"] for one in marks(now, "way")}


@pytest.mark.full
def test_live_an_actor_that_is_killed_is_crossed_out(open_page: Callable[..., Watched]) -> None:
    run = played(iterations=LONG)
    viewer = Viewer(open_page().page, run, 992)
    try:
        viewer.until(lambda: viewer.knows("k.table.rows > 2000"), "rows")
        viewer.stage.evaluate("(root) => root.stage.open('reinforcement')")
        viewer.until(lambda: marks(frame(viewer.stage), "comet"), "messages on the move")
        run.kill(3)
        sentence = viewer.stage.locator(".wb-say")
        viewer.until(lambda: "Actor 3 is lost" in sentence.inner_text(), "a sentence")
    finally:
        run.stop()
        run.wait(timeout=60, check=False)
