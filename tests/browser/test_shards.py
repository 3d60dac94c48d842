"""The scene of a sharded model, from real runs: every state is a row's, the keyboard is enough."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import workbench as wb
from tests.browser.conftest import Watched, frame, let_draw, marks, opened_page, wait_for
from tests.browser.test_overview import CLASHES
from tests.live import lenet
from tests.pairwise import first

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
RANKS = 3


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, pl.DataFrame]:
    run = wb.run(
        lenet(
            strategy="fsdp",
            ranks=RANKS,
            iterations=4,
            batch_size=12,
            network=wb.Network(latency="1 ms", bandwidth="200 Mbit/s"),
        )
    )
    run.wait(timeout=90)
    file = tmp_path_factory.mktemp("sharded") / "run.html"
    run.to_html(file)
    return Path(file).as_uri(), run.events


def test_a_layer_is_whole_exactly_where_its_rows_say_so(
    saved: tuple[str, pl.DataFrame], open_page: Callable[..., Watched]
) -> None:
    uri, events = saved
    stage = opened_page(open_page().page, uri, "shards")
    origin = events["start_ns"].min()
    rows = events.with_columns(pl.col("name", "phase").cast(pl.String))
    rows = rows.filter(pl.col("name").is_in(["gathered", "freed", "held"])).sort("end_ns")
    first, last = rows["end_ns"].min(), rows["end_ns"].max()
    assert isinstance(origin, int) and isinstance(first, int) and isinstance(last, int)
    checked = 0
    for part in (0.2, 0.35, 0.5, 0.65, 0.8, 0.93):
        t = first + int(part * (last - first)) - origin
        stage.evaluate("(root, t) => root.stage.goto(t)", t)
        now = frame(stage)
        upto = rows.filter(pl.col("end_ns") - origin <= t)
        for mark in marks(now, "layer"):
            own = upto.filter(
                rank=mark["rank"],
                phase=mark["layer"],
            ).filter(pl.col("name") != "held")
            whole = own.height > 0 and own["name"][-1] == "gathered"
            assert (mark["held"] > 0) == whole, mark
            checked += 1
        for mark in marks(now, "held"):
            own = upto.filter(rank=mark["rank"], name="held")["value"]
            assert mark["held"] == own[-1] and mark["peak"] == own.max()
    assert checked == 6 * RANKS * 5


def test_keys_step_from_gather_to_gather_and_choose_a_rank(
    saved: tuple[str, pl.DataFrame], open_page: Callable[..., Watched]
) -> None:
    stage = opened_page(open_page().page, saved[0], "overview")
    stage.focus()
    stage.page.keyboard.press("9")
    wait_for(lambda: frame(stage)["scene"] == "shards", "key 9 opens it")
    stage.evaluate("root => root.stage.show('sharding/1')")
    stage.focus()
    stage.page.keyboard.press(" ")
    before = frame(stage)["t"]
    stage.page.keyboard.press("ArrowRight")
    wait_for(lambda: frame(stage)["t"] > before, "one on")
    spot = stage.locator(".wb-co-spots button").nth(1)
    spot.focus()
    wait_for(lambda: "rank 1" in stage.locator(".wb-co-tip").inner_text(), "its words")
    spot.press("Enter")
    wait_for(lambda: "Rank 1" in stage.locator(".wb-say").inner_text(), "the sentence is of it")


@pytest.mark.parametrize("width", first(1, [640, 960]))
def test_nothing_lies_over_anything_else(
    width: int, saved: tuple[str, pl.DataFrame], open_page: Callable[..., Watched]
) -> None:
    page = open_page().page
    page.set_viewport_size({"width": width, "height": 1000})
    stage = opened_page(page, saved[0], "shards")
    stage.evaluate("root => root.stage.show('sharding/2')")
    let_draw(page, 600)
    assert stage.evaluate(CLASHES) == []
    assert stage.evaluate("root => root.scrollWidth <= root.clientWidth")
