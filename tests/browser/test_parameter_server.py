"""The parameter server's scene, from a real run: every mark is rows, the wall stops a worker that
reaches it, the keyboard is enough, and live it shows which rank holds up which.
"""

from __future__ import annotations

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
    sees_chunks_move,
    wait_for,
)
from tests.browser.test_overview import CLASHES, Viewer
from tests.live import LONG, lenet
from tests.pairwise import first

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
BOUND, SERVERS = 3, 2


def experiment(**fields: Any) -> wb.Experiment:
    options = {"servers": SERVERS, "consistency": "ssp", "staleness": BOUND}
    return lenet(
        **{
            "strategy": "parameter_server",
            "ranks": 6,
            "iterations": 40,
            "pad_compute": "10 ms",
            "faults": (wb.Jitter(probability=0.2, factor=4),),
            "options": options,
            **fields,
        }
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, pl.DataFrame]:
    """A page of a run that is over, and its rows."""
    page = tmp_path_factory.mktemp("served") / "run.html"
    run = wb.run(experiment())
    run.wait(timeout=90)
    run.to_html(page)
    return page.as_uri(), run.events


def stage_of(page: Page, uri: str) -> Locator:
    return opened_page(page, uri, "server")


def moments(events: pl.DataFrame, many: int) -> list[float]:
    """Moments of the run, ns from its first row, when pushes or pulls were on their way."""
    flying = events.filter(pl.col("kind").cast(pl.String).is_in(["push", "pull"]))
    middles = ((flying["start_ns"] + flying["end_ns"]) / 2 - events["start_ns"].min()).sort()
    return [float(middles[i]) for i in range(7, len(middles), max(1, len(middles) // many))]


def of_messages(
    rows: pl.DataFrame, way: tuple[str, str], moment: pl.Expr
) -> dict[tuple[int, int, int], int]:
    """(sender, receiver, number of the message) -> a moment of its rows; ``way``: of which."""
    moments = rows.group_by(*way, "op").agg(moment)
    return {(sender, receiver, op): at for sender, receiver, op, at in moments.iter_rows()}


def test_pushes_and_pulls_move_and_each_is_two_rows(
    saved: tuple[str, pl.DataFrame], open_page: Callable[..., Watched]
) -> None:
    """At least 20 of them: where each is follows from when it left and when it arrived."""
    uri, events = saved
    stage = stage_of(open_page().page, uri)
    sees_chunks_move(stage)
    rows = events.filter(pl.col("group").cast(pl.String) == "default").filter(
        pl.col("collective").cast(pl.String) == "p2p"
    )
    kind = pl.col("kind").cast(pl.String)
    sends, receives = rows.filter(kind == "send"), rows.filter(kind == "recv")
    left = of_messages(sends, ("rank", "peer"), pl.col("start_ns").min())
    outer = {
        (row["kind"], row["rank"], row["peer"], row["iteration"]): row
        for row in events.filter(kind.is_in(["push", "pull"])).iter_rows(named=True)
    }
    there = of_messages(receives, ("peer", "rank"), pl.col("end_ns").max())
    matched = {"push": 0, "pull": 0}
    for moment in moments(events, 60):
        stage.evaluate("(root, t) => root.stage.goto(t)", moment)
        for mark in marks(now := frame(stage), "comet"):
            key = (mark["rank"], mark["peer"], mark["op"])
            worker, server = sorted(key[:2], reverse=True)
            row = outer[mark["kind"], worker, server, mark["iteration"]]
            push = mark["kind"] == "push"
            start = row["start_ns"] if push else left[key]
            end = max(row["end_ns"], there[key]) if push else row["end_ns"]
            share = (now["playhead"] - start) / (end - start)
            assert mark["share"] == pytest.approx(share, abs=1e-3), mark
            assert mark["version"] == row["version"] and mark["playhead"] == now["playhead"]
            matched[mark["kind"]] += 1
    assert matched["push"] >= 20 and matched["pull"] >= 20, matched


@pytest.mark.full
def test_w_at_time_t_and_the_wall(
    saved: tuple[str, pl.DataFrame], open_page: Callable[..., Watched]
) -> None:
    """At any playhead: the version that each process holds, and which worker may start what."""
    uri, events = saved
    stage = stage_of(open_page().page, uri)
    kind, blocked = pl.col("kind").cast(pl.String), 0
    pulls, applies = events.filter(kind == "pull"), events.filter(kind == "apply")
    for moment in moments(events, 40):
        stage.evaluate("(root, t) => root.stage.goto(t)", moment)
        now = frame(stage)
        until = pl.col("end_ns") <= now["playhead"]
        applied = applies.filter(until)
        for shard in marks(now, "shard"):
            mine = applied.filter(pl.col("rank") == shard["rank"])
            assert shard["version"] == (mine["version"].max() or 0)
        for worker in marks(now, "worker"):
            for server, version in enumerate(worker["versions"]):
                own = (pl.col("rank") == worker["rank"]) & (pl.col("peer") == server)
                held = pulls.filter(until & own)["version"]
                assert version == (held[-1] if len(held) else -1)
            in_by_all = applied.group_by("rank", "peer").len()
            pairs = SERVERS * len(marks(now, "worker"))
            least = in_by_all["len"].min() if len(in_by_all) == pairs else 0
            assert worker["limit"] == least + BOUND
            assert worker["iteration"] <= worker["limit"]
            if worker["doing"] == "blocked":
                assert worker["iteration"] == worker["limit"]
                blocked += 1
    assert blocked >= 3


@pytest.mark.parametrize(("width", "scheme"), first(1, [(672, "dark"), (992, "light")]))
def test_nothing_overlaps_and_the_keyboard_is_enough(
    saved: tuple[str, pl.DataFrame], open_page: Callable[..., Watched], width: int, scheme: str
) -> None:
    watched = open_page(color_scheme=scheme, viewport={"width": width, "height": 1100})
    page, stage = watched.page, stage_of(watched.page, saved[0])
    for part in (0.2, 0.5, 0.8):
        stage.evaluate("(r, f) => r.stage.goto(r.stage.known().table.to * f)", part)
        let_draw(page, 300)
        # What lies over the canvas on purpose: the buttons of workers and shards have no text.
        assert stage.evaluate(CLASHES) == [], part
    before = pixels(stage)
    stage.locator(".wb-scene-server .wb-co-spots button").first.focus()
    tip = stage.locator(".wb-scene-server .wb-co-tip")
    assert "worker 2" in tip.inner_text() and "of shard 1" in tip.inner_text()
    page.keyboard.press("Enter")
    wait_for(lambda: pixels(stage) != before, "what is chosen")
    page.keyboard.press("ArrowDown")
    assert "worker 3" in tip.inner_text()
    for _ in range(4):
        page.keyboard.press("ArrowDown")
    assert "shard 1 at" in tip.inner_text() and "worker 5 holds" in tip.inner_text()
    keys_step_and_change_the_scene(page, stage, "4", "server")


@pytest.mark.full
def test_the_scene_is_offered_where_there_is_a_server(
    open_page: Callable[..., Watched], tmp_path: Path
) -> None:
    run = wb.run(lenet(ranks=2, iterations=3))
    run.wait(timeout=60)
    run.to_html(tmp_path / "run.html")
    page = open_page().page
    page.goto((tmp_path / "run.html").as_uri())
    stage = page.locator(".wb-stage")
    wait_for(lambda: stage.evaluate("(root) => root.stage.known().table.rows"), "its rows")
    wait_for(lambda: stage.get_by_role("tab", name="Collectives").count() == 1, "its views")
    assert stage.get_by_role("tab", name="Parameter server").count() == 0
    stage.focus()
    page.keyboard.press("4")
    assert stage.get_attribute("data-scene") != "server"


@pytest.fixture
def live(open_page: Callable[..., Watched]) -> Iterator[tuple[wb.Run, Viewer]]:
    run = wb.run(experiment(iterations=LONG, faults=()))
    viewer = Viewer(open_page().page, run, 992)
    yield run, viewer
    run.stop()
    run.wait(timeout=90, check=False)


@pytest.mark.full
def test_live_a_frozen_worker_is_waited_for_at_the_wall(live: tuple[wb.Run, Viewer]) -> None:
    run, viewer = live
    stage = viewer.stage
    viewer.until(lambda: viewer.knows("k.table.rows > 4000"), "rows")
    open_scene(stage, "server")
    places: set[tuple[Any, ...]] = set()

    def moves() -> bool:
        for mark in marks(frame(stage), "comet"):
            places.add((mark["rank"], mark["peer"], mark["op"], round(mark["share"], 1)))
        return len(places) > 20

    viewer.until(moves, "pushes and pulls on the move")
    run.freeze(4)

    def stopped() -> bool:
        doing = {mark["rank"]: mark["doing"] for mark in marks(frame(stage), "worker")}
        return all(doing.get(rank) == "blocked" for rank in (2, 3, 5))

    viewer.until(stopped, "the others stand at the wall")
    sentence = stage.locator(".wb-say")
    viewer.shows(sentence, "stand at the wall", "worker 4", "frozen by you")
    assert stage.evaluate(CLASHES) == []
    run.thaw(4)
    viewer.until(lambda: not stopped(), "they go on")
