"""The scene of replicas that mix, from real runs: what is on its way is rows, distances are those
that run.disagreement() estimates, the keyboard is enough, and nothing lies over anything.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from playwright.sync_api import Page

import workbench as wb
from tests.browser.conftest import (
    Watched,
    frame,
    keys_step_and_change_the_scene,
    let_draw,
    marks,
    opened_page,
    pixels,
    sees_chunks_move,
    wait_for,
)
from tests.browser.test_overview import CLASHES, Viewer
from tests.live import LONG, lenet
from tests.pairwise import first

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
RUNS: dict[str, dict[str, Any]] = {
    "gossip": {"network": wb.Network(latency="2 ms"), "options": {"spread": 0.01}},
    "local_sgd": {"network": wb.Network(latency="2 ms"), "options": {"every": 4}},
}
Saved = dict[str, tuple[str, pl.DataFrame, pl.DataFrame]]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """Of each run that is over its page, its rows and its disagreement."""
    folder, result = tmp_path_factory.mktemp("mixed"), {}
    for strategy, fields in RUNS.items():
        run = wb.run(lenet(strategy=strategy, ranks=4, iterations=14, **fields))
        run.wait(timeout=90)
        run.to_html(folder / f"{strategy}.html")
        result[strategy] = ((folder / f"{strategy}.html").as_uri(), run.events, run.disagreement())
    return result


def moments(events: pl.DataFrame, many: int) -> list[float]:
    """Moments of the run, ns from its first row, when something of the training was on its way."""
    text = {name: pl.col(name).cast(pl.String) for name in ("kind", "group")}
    flying = events.filter((text["kind"] == "send") & (text["group"] == "default"))
    middles = ((flying["start_ns"] + flying["end_ns"]) / 2 - events["start_ns"].min()).sort()
    return [float(middles[i]) for i in range(3, len(middles), max(1, len(middles) // many))]


@pytest.mark.parametrize("strategy", first(1, [*RUNS]))
def test_what_moves_is_rows_and_distances_are_those_of_the_run(
    saved: Saved, open_page: Callable[..., Watched], strategy: str
) -> None:
    uri, events, apart = saved[strategy]
    stage = opened_page(open_page().page, uri, "peers")
    sees_chunks_move(stage)
    text = {name: pl.col(name).cast(pl.String) for name in ("kind", "group", "name")}
    rows = events.filter(text["group"] == "default")
    sends, recvs = (rows.filter(text["kind"] == kind) for kind in ("send", "recv"))
    done = (
        events.filter(text["name"] == "sketch")
        .group_by("rank", "iteration")
        .agg(pl.col("end_ns").max())
        .group_by("iteration")
        .agg(pl.col("end_ns").max(), many=pl.len())
        .filter(pl.col("many") == 4)
    )
    message = strategy == "gossip"
    comets = compared = 0
    for moment in moments(events, 30):
        stage.evaluate("(root, t) => root.stage.goto(t)", moment)
        now = frame(stage)
        for comet in marks(now, "comet"):
            assert comet["message"] == message
            way = {"rank": comet["rank"], "peer": comet["peer"], "op": comet["op"]}
            left = sends.filter(**way)
            came = recvs.filter(rank=comet["peer"], peer=comet["rank"], op=comet["op"])
            assert left["start_ns"].min() <= now["playhead"] < came["end_ns"].max()
            if message:
                start, end = int(left["start_ns"].min()), int(came["end_ns"].max())
                assert comet["share"] == pytest.approx((now["playhead"] - start) / (end - start))
            comets += 1
        by_all = done.filter(pl.col("end_ns") <= now["playhead"])["iteration"].max()
        for peer in marks(now, "peer"):
            assert peer["iteration"] == (-1 if by_all is None else by_all)
            if by_all is not None:
                expected = apart.filter(iteration=by_all, rank=peer["rank"])["distance"][0]
                assert peer["distance"] == pytest.approx(expected, rel=1e-6, abs=1e-12)
                compared += 1
    assert comets >= 20 and compared >= 20, (comets, compared)


@pytest.mark.full
@pytest.mark.parametrize(("width", "scheme"), first(1, [(672, "dark"), (992, "light")]))
@pytest.mark.parametrize("strategy", first(1, [*RUNS]))
def test_nothing_overlaps_and_the_keyboard_is_enough(
    saved: Saved, open_page: Callable[..., Watched], strategy: str, width: int, scheme: str
) -> None:
    watched = open_page(color_scheme=scheme, viewport={"width": width, "height": 1100})
    page, stage = watched.page, opened_page(watched.page, saved[strategy][0], "peers")
    for part in (0.2, 0.5, 0.8):
        stage.evaluate("(r, f) => r.stage.goto(r.stage.known().table.to * f)", part)
        let_draw(page, 300)
        assert stage.evaluate(CLASHES) == [], part
    before = pixels(stage)
    stage.locator(".wb-scene-peers .wb-co-spots button").first.focus()
    tip = stage.locator(".wb-scene-peers .wb-co-tip")
    assert "rank 0:" in tip.inner_text() and "random projections" in tip.inner_text()
    page.keyboard.press("Enter")
    wait_for(lambda: pixels(stage) != before, "what is chosen")
    page.keyboard.press("ArrowDown")
    assert "rank 1:" in tip.inner_text() and "mixes with ranks" in tip.inner_text()
    keys_step_and_change_the_scene(page, stage, "7", "peers")


@pytest.mark.full
def test_the_scene_is_offered_where_replicas_mix(
    open_page: Callable[..., Watched], tmp_path: Path
) -> None:
    run = wb.run(lenet(iterations=3))
    run.wait(timeout=60)
    run.to_html(tmp_path / "run.html")
    page: Page = open_page().page
    page.goto((tmp_path / "run.html").as_uri())
    stage = page.locator(".wb-stage")
    wait_for(lambda: stage.evaluate("(root) => root.stage.known().table.rows"), "its rows")
    assert not stage.get_by_role("tab", name="Peers").is_visible()
    stage.focus()
    page.keyboard.press("7")
    assert stage.get_attribute("data-scene") != "peers"


@pytest.mark.full
def test_live_a_frozen_neighbor_is_waited_for(open_page: Callable[..., Watched]) -> None:
    run = wb.run(lenet(strategy="gossip", ranks=4, iterations=LONG, **RUNS["gossip"]))
    viewer = Viewer(open_page().page, run, 992)
    try:
        viewer.until(lambda: viewer.knows("k.table.rows > 3000"), "rows")
        viewer.stage.evaluate("(root) => root.stage.open('peers')")
        places: set[tuple[Any, ...]] = set()

        def moves() -> bool:
            for mark in marks(frame(viewer.stage), "comet"):
                places.add((mark["rank"], mark["peer"], mark["op"], round(mark["share"], 1)))
            return len(places) > 20

        viewer.until(moves, "messages on the move")
        run.freeze(2)
        sentence = viewer.stage.locator(".wb-say")
        viewer.until(lambda: "waits for rank 2" in sentence.inner_text(), "a sentence")
        run.thaw(2)
    finally:
        run.stop()
        run.wait(timeout=90, check=False)
