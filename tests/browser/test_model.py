"""The model's scene from a real pipeline: what crosses each cut is what the rows say, blocks open
and fold with pointer and keyboard, and a split is drawn in a notebook without a run.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from playwright.sync_api import Locator, Page

import workbench as wb
from tests import notebook_files
from tests.browser.conftest import Watched, frame, let_draw, marks, opened_page, pixels, wait_for
from tests.browser.test_lab import RUN_ALL, SAVE, open_notebook
from tests.browser.test_overview import CLASHES
from tests.live import lenet
from tests.pairwise import first

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
MICROBATCHES, LIMIT = 4, 60_000_000
Open = Callable[..., Watched]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, pl.DataFrame]:
    """A page of a pipeline that is over, and its rows."""
    page = tmp_path_factory.mktemp("model") / "run.html"
    exp = wb.Experiment(
        strategy="pipeline",
        task="char_transformer",
        ranks=3,
        iterations=4,
        batch_size=8,
        memory_limit=f"{LIMIT} B",
        network=wb.Network(latency="3 ms"),
        options={"microbatches": MICROBATCHES},
    )
    run = wb.run(exp)
    run.wait(timeout=90)
    run.to_html(page)
    return page.as_uri(), run.events


def stage_of(page: Page, uri: str) -> Locator:
    return opened_page(page, uri, "model")


@pytest.mark.full
def test_cuts_messages_and_memory_are_those_of_the_rows(
    saved: tuple[str, pl.DataFrame], open_page: Open
) -> None:
    uri, events = saved
    stage = stage_of(open_page().page, uri)
    rows = events.with_columns(pl.col("kind", "name").cast(pl.String))
    sends = rows.filter((pl.col("kind") == "send") & (pl.col("stage") >= 0))
    stage.evaluate("(root) => root.stage.goto(root.stage.known().table.to)")
    now = frame(stage)
    assert len(marks(now, "cut")) == 2
    for cut in marks(now, "cut"):
        mine = sends.filter(pl.col("iteration") == cut["iteration"])
        down = mine.filter((pl.col("name") == "activation") & (pl.col("stage") == cut["cut"]))
        up = mine.filter((pl.col("name") == "gradient") & (pl.col("stage") == cut["cut"] + 1))
        assert cut["activation"] == down["nbytes"].sum() == MICROBATCHES * cut["planned"]
        assert cut["gradient"] == up["nbytes"].sum() > 0
        assert cut["each"] == cut["planned"]
    most = rows.filter((pl.col("kind") == "metric") & (pl.col("name") == "memory"))
    for held in marks(now, "memory"):
        assert held["most"] == most.filter(pl.col("rank") == held["rank"])["value"].max()
        assert held["limit"] == LIMIT
    origin, count = events["start_ns"].min(), 0
    arrived = {
        (row["peer"], row["rank"], row["op"]): row["end_ns"]
        for row in rows.filter(pl.col("kind") == "recv").iter_rows(named=True)
    }
    for row in sends.filter(pl.col("iteration") >= 1).iter_rows(named=True):
        start, end = row["start_ns"], arrived[row["rank"], row["peer"], row["op"]]
        middle = (start + end) / 2 - origin
        stage.evaluate("(root, t) => root.stage.goto(t)", middle)
        messages = [
            (mark["rank"], mark["peer"], mark["op"], mark["microbatch"], mark["share"])
            for mark in marks(frame(stage), "comet")
        ]
        key = (row["rank"], row["peer"], row["op"], row["microbatch"])
        share = next(mark[4] for mark in messages if mark[:4] == key)
        assert share == pytest.approx(0.5, abs=1e-3)
        count += 1
    assert count == 3 * 2 * 2 * MICROBATCHES


@pytest.mark.parametrize(("width", "scheme"), first(1, [(672, "light"), (992, "dark")]))
def test_blocks_open_and_the_keyboard_is_enough(
    saved: tuple[str, pl.DataFrame], open_page: Open, width: int, scheme: str
) -> None:
    watched = open_page(color_scheme=scheme, viewport={"width": width, "height": 1100})
    page, stage = watched.page, stage_of(watched.page, saved[0])
    scene = stage.locator(".wb-scene-model")
    stage.evaluate("(root) => root.stage.goto(root.stage.known().table.to)")
    folded = frame(stage)
    assert "layers are folded into 4 blocks: blocks.0 to blocks.3" in scene.inner_text()
    assert sum(len(mark["layers"]) for mark in marks(folded, "layer")) == 52
    let_draw(page, 300)
    assert stage.evaluate(CLASHES) == []
    # One block is opened and folded by keyboard alone.
    scene.locator(".wb-co-spots [tabindex='0']").focus()
    tip = scene.locator(".wb-co-tip")
    assert tip.inner_text().startswith("stage 0 on rank 0")
    for _ in range(12):
        page.keyboard.press("ArrowDown")
        if tip.inner_text().startswith("blocks.0"):
            break
    assert "open it: click" in tip.inner_text()
    page.keyboard.press("Enter")
    assert len(marks(frame(stage), "layer")) > len(marks(folded, "layer"))
    assert "blocks.0" not in [m["name"] for m in marks(frame(stage), "layer") if m["folded"]]
    page.keyboard.press("Enter")  # its handle has the focus
    assert len(marks(frame(stage), "layer")) == len(marks(folded, "layer"))
    # All of them; the line above still shows every cut.
    scene.get_by_role("button", name="Open blocks").click()
    assert len(marks(frame(stage), "layer")) == 52
    let_draw(page, 300)
    assert stage.evaluate(CLASHES) == []
    before = pixels(stage)
    scene.locator("[aria-label='cut 1 of 2']").focus()
    assert ", as planned" in tip.inner_text()
    page.keyboard.press("Enter")
    wait_for(lambda: pixels(stage) != before, "what is chosen")
    stage.focus()
    page.keyboard.press("1")
    page.keyboard.press("6")
    assert stage.get_attribute("data-scene") == "model"


@pytest.mark.full
def test_the_scene_is_offered_where_the_model_is_known(open_page: Open, tmp_path: Path) -> None:
    run = wb.run(lenet(ranks=2, iterations=3))
    run.wait(timeout=60)
    run.to_html(tmp_path / "run.html")
    page = open_page().page
    stage = stage_of(page, (tmp_path / "run.html").as_uri())
    stage.focus()
    page.keyboard.press("6")
    assert stage.get_attribute("data-scene") == "overview"
    assert stage.get_by_role("tab", name="Model").is_hidden()


@pytest.fixture
def lab_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "notebooks"
    folder.mkdir()
    source = "import workbench as wb\n\nwb.split('lenet_digits', stages=3)"
    notebook_files.write(folder / "split.ipynb", [source])
    return folder


@pytest.mark.full
def test_a_split_is_drawn_in_a_notebook(lab: str, lab_folder: Path, open_page: Open) -> None:
    page = open_page().page
    open_notebook(page, lab.format("split.ipynb"))
    page.evaluate(RUN_ALL)
    stage = page.locator(".jp-OutputArea-output .wb-stage").first
    stage.wait_for()
    wait_for(lambda: frame(stage)["scene"] == "model" and frame(stage)["marks"], "the model")
    assert len(marks(frame(stage), "stage")) == 3
    assert "12 layers in 3 stages" in stage.locator(".wb-say").inner_text()
    assert not stage.locator(".wb-time").is_visible() and not stage.get_by_role("tab").count()
    page.evaluate(SAVE)

    def table() -> bool:
        (cell,) = notebook_files.read(lab_folder / "split.ipynb")
        return any("<table>" in out["data"].get("text/html", "") for out in cell["outputs"])

    wait_for(table, "the saved notebook has the table")
