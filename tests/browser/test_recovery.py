"""The scene of recoveries, from a real run: its phases are those that run.recovery() measures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import workbench as wb
from tests.browser.conftest import Watched, frame, let_draw, marks, opened_page, wait_for
from tests.browser.test_overview import CLASHES
from tests.live import lenet
from workbench.analysis.recovery import PHASES, Recoveries

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Recoveries]:
    kill = wb.Kill(rank=1, at_iteration=4)
    run = wb.run(lenet(ranks=3, iterations=8, recovery="replace", faults=kill))
    run.wait(timeout=90)
    file = tmp_path_factory.mktemp("recovered") / "run.html"
    run.to_html(file)
    return Path(file).as_uri(), run.recovery()


def test_its_phases_are_those_that_are_measured(
    saved: tuple[str, Recoveries], open_page: Callable[..., Watched]
) -> None:
    stage = opened_page(open_page().page, saved[0], "recovery")
    one, drawn = saved[1][0], marks(frame(stage), "phase")
    begun = next(mark["start"] for mark in marks(frame(stage), "lost"))
    for phase in PHASES:
        last = max(mark["end"] for mark in drawn if mark["phase"] == phase)
        assert (last - begun) / 1e6 == pytest.approx(getattr(one, f"{phase}_ms"), abs=0.01)
    words = stage.locator(".wb-rc-one").inner_text()
    assert "Rank 1 was killed in iteration 5" in words and "rank 1 in a new process" in words
    assert f"{one.samples_repeated} samples repeated" in words
    assert f"{100 * saved[1].goodput:.1f} %" in stage.locator(".wb-rc-good").inner_text()

    stage.locator(".wb-rc-head").click()
    wait_for(lambda: abs(frame(stage)["t"] - begun) < 1, "the playhead is there")
    wait_for(lambda: "has not noticed" in stage.locator(".wb-say").inner_text(), "its sentence")
    stage.focus()
    stage.page.keyboard.press("ArrowRight")
    noticed = begun + 1e6 * (one.detect_ms or 0)
    wait_for(lambda: abs(frame(stage)["t"] - noticed) < 10, "a phase on")
    let_draw(stage.page, 600)
    assert stage.evaluate(CLASHES) == []
    assert stage.evaluate("root => root.scrollWidth <= root.clientWidth")
