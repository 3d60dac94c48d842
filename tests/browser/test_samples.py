"""The samples' scene: of real runs what the rows say, of samplers what they yield; in a notebook
with sliders, and in the web app.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page

import workbench as wb
from tests import notebook_files
from tests.browser.conftest import Watched, frame, let_draw, marks, opened_page, pixels, wait_for
from tests.browser.test_lab import RUN_ALL, SAVE, open_notebook
from tests.browser.test_overview import CLASHES
from tests.live import lenet
from tests.pairwise import first
from workbench.rank.batches import Minibatches, partition

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
RANKS, BATCH, ITERATIONS = 3, 20, 24
Open = Callable[..., Watched]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any]:
    """A page of a run that is over, and its rows."""
    page = tmp_path_factory.mktemp("samples") / "run.html"
    run = wb.run(lenet(ranks=RANKS, batch_size=BATCH, iterations=ITERATIONS))
    run.wait(timeout=60)
    run.to_html(page)
    return page.as_uri(), run.events


def at_the_load(stage: Locator, events: Any, iteration: int) -> dict[str, Any]:
    """The frame just after the last rank has begun to load that iteration's samples."""
    rows = events.filter((events["kind"] == "load") & (events["iteration"] == iteration))
    moment = int(rows["start_ns"].max() - events["start_ns"].min())
    stage.evaluate("(root, t) => root.stage.goto(t)", moment + 1)
    return frame(stage)


@pytest.mark.parametrize(("width", "scheme"), first(1, [(672, "light"), (992, "dark")]))
def test_each_mark_is_a_sample_that_a_rank_took(
    saved: tuple[str, Any], open_page: Open, width: int, scheme: str
) -> None:
    uri, events = saved
    page = open_page(color_scheme=scheme, viewport={"width": width, "height": 1000}).page
    stage = opened_page(page, uri, "samples")
    whole = Minibatches(1437, BATCH, 0)
    for iteration in (0, 5, ITERATIONS - 1):
        now = at_the_load(stage, events, iteration)
        assert {mark["minibatch"] for mark in marks(now, "here") if mark["rank"] >= 0} >= {
            iteration
        }
        own = [mark for mark in marks(now, "sample") if mark["minibatch"] == iteration]
        for rank in range(RANKS):
            samples = sorted((m["number"], m["sample"]) for m in own if m["rank"] == rank)
            assert [one for _, one in samples] == partition(
                whole.ids(iteration), rank, RANKS
            ).tolist()
        assert not any(mark["later"] or mark["again"] or mark["extra"] for mark in own)
        alone = [m["sample"] for m in marks(now, "alone") if m["minibatch"] == iteration]
        assert alone == whole.ids(iteration).tolist()
        later = {m["minibatch"] for m in marks(now, "sample") if m["later"]}
        assert all(minibatch >= iteration for minibatch in later)
        assert f"Minibatch {iteration}: 20 samples over 3 ranks, 7, 7 and 6" in words(stage)
        let_draw(page, 300)
        assert stage.evaluate(CLASHES) == []


def words(stage: Locator) -> str:
    let_draw(stage.page, 400)  # texts change four times per second
    return stage.locator(".wb-say").inner_text()


def test_the_keyboard_is_enough(saved: tuple[str, Any], open_page: Open) -> None:
    page = open_page().page
    stage = opened_page(page, saved[0], "overview")
    stage.focus()
    page.keyboard.press("8")
    assert stage.get_attribute("data-scene") == "samples"
    stage.evaluate("(root) => root.stage.goto(0)")
    scene, tip = stage.locator(".wb-scene-samples"), stage.locator(".wb-scene-samples .wb-co-tip")
    wait_for(lambda: scene.locator("[tabindex='0']").count(), "its parts")
    scene.locator(".wb-co-spots [tabindex='0']").focus()
    assert tip.inner_text().startswith("one process · minibatch 0: 20 samples")
    page.keyboard.press("ArrowDown")
    assert tip.inner_text().startswith("rank 0 · minibatch 0: 7 samples")
    before = pixels(stage)
    scene.get_by_role("button", name="Later").click()
    wait_for(lambda: pixels(stage) != before, "the step")
    wait_for(lambda: "minibatches 4 to 7 of 24" in scene.inner_text(), "its words")
    scene.get_by_role("button", name="To the playhead").click()
    let_draw(page, 300)
    assert "minibatches 0 to 3 of 24" in scene.inner_text()
    stage.focus()
    stage.locator(".wb-unit").select_option("iteration")
    stage.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert {mark["minibatch"] for mark in marks(frame(stage), "here")} & {1}


@pytest.mark.full
def test_a_run_of_one_process_has_no_such_scene(open_page: Open, tmp_path: Path) -> None:
    run = wb.run(lenet(strategy="sequential", ranks=1, iterations=2))
    run.wait(timeout=60)
    run.to_html(tmp_path / "run.html")
    stage = opened_page(open_page().page, (tmp_path / "run.html").as_uri(), "samples")
    assert stage.get_attribute("data-scene") == "overview"
    tab = stage.get_by_role("tab", name="Samples")
    wait_for(tab.is_hidden, "tabs of what the run has")


@pytest.fixture
def lab_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "notebooks"
    folder.mkdir()
    sources = ["import workbench as wb\nwb.partition(10, 4, 4)", SLIDERS]
    notebook_files.write(folder / "partition.ipynb", sources)
    return folder


SLIDERS = "sliders = wb.partition(10, 4, 4).explore()\nsliders"


def drawn(stage: Locator) -> dict[str, Any]:
    return wait_for(lambda: (now := frame(stage))["marks"] and now, "samples")  # type: ignore[return-value]


@pytest.mark.full
def test_a_notebook_draws_it_and_sliders_change_it(
    lab: str, lab_folder: Path, open_page: Open
) -> None:
    page: Page = open_page().page
    open_notebook(page, lab.format("partition.ipynb"))
    page.evaluate(RUN_ALL)
    stages = page.locator(".jp-OutputArea-output .wb-stage")
    stages.nth(1).wait_for()
    now = drawn(stages.first)
    again = [(m["rank"], m["sample"]) for m in marks(now, "sample") if m["again"]]
    assert now["scene"] == "samples" and again == [(2, 0), (3, 1)]
    assert not stages.first.locator(".wb-time").is_visible()
    second = stages.nth(1)
    assert len(marks(drawn(second), "minibatch")) == 3
    page.locator(".jp-OutputArea-output .widget-readout").first.fill("16")
    page.keyboard.press("Enter")
    wait_for(lambda: len(marks(frame(second), "minibatch")) == 4, "another partition")
    assert not [m for m in marks(frame(second), "sample") if m["again"]]
    page.evaluate(SAVE)

    def still() -> bool:
        first, _ = notebook_files.read(lab_folder / "partition.ipynb")
        return any("<img" in out["data"].get("text/html", "") for out in first["outputs"])

    wait_for(still, "the saved notebook has the picture")


@pytest.mark.full
def test_the_web_app_has_a_page_of_it(web_app: str, open_page: Open) -> None:
    page = open_page().page
    page.goto(web_app)
    page.get_by_role("link", name="Which sample goes to which rank?").click()
    stage = page.locator(".wb-stage")
    stage.wait_for()
    assert len([m for m in marks(drawn(stage), "sample") if m["again"]]) == 2
    page.locator("#of-samples").fill("24")
    page.locator("#of-batch_size").fill("8")
    page.locator("#of-ranks").fill("2")
    wait_for(lambda: "each sample once" in stage.locator(".wb-say").inner_text(), "24 samples")

    def of_rank_1() -> list[int]:  # one draw follows each of the three fields
        samples = marks(frame(stage), "sample")
        return [m["sample"] for m in samples if m["minibatch"] == 1 and m["rank"]]

    wait_for(lambda: of_rank_1() == [9, 11, 13, 15], "two ranks' shares")
    code = page.locator(".deal-code")
    assert code.inner_text() == "wb.partition()"
    page.locator("#of-ranks").fill("1000")
    wait_for(lambda: "from 1 to 64" in page.locator(".notice").inner_text(), "why it cannot be")
    page.locator("#of-ranks").fill("4")
    page.get_by_label("drop_last").check()
    wait_for(lambda: "drop_last=True" in code.inner_text(), "what was chosen")
    assert page.locator(".notice").inner_text() == ""
