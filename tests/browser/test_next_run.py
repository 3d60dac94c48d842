"""What a page is offered later, the knobs of its next run and its tabs: nothing moves by that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Watched, let_draw, wait_for
from tests.browser.recorded_runs import empty_stage, take
from tests.browser.test_collectives import held
from tests.browser.test_frame import box

pytestmark = pytest.mark.browser

TRIALS = {"names": [], "at": 0, "words": "", "refused": False}
SAMPLES = {
    "n": 2,
    "batch_size": 2,
    "ranks": 4,
    "sampler": "",
    "minibatches": [
        {
            "epoch": 0,
            "number": 0,
            "sequential": [0, 1],
            "of": [[0], [1], [], []],
            "repeated": [[]] * 4,
        }
    ],
}
LEARN = "(root, facts) => { Object.assign(root.stage.known().run, facts); }"


def test_the_picture_stays_where_it_is_while_the_next_run_starts(
    tmp_path: Path, open_page: Callable[..., Watched]
) -> None:
    page = open_page().page
    stage = held(tmp_path, page)
    knob = {"name": "ranks", "label": "Ranks", "now": 4, "values": [2, 4]}
    tops, turned = set(), []
    for starting in ("", "2 ranks", ""):
        stage.evaluate(LEARN, {"trials": TRIALS | {"knobs": [knob], "starting": starting}})
        let_draw(page, 600)
        tops.add(box(stage, ".wb-ring")[1])
        turned.append(stage.locator(".wb-knobs select").is_enabled())
        assert bool(starting) == ("starts" in stage.locator(".wb-knobs").inner_text())
    assert len(tops) == 1 and turned == [True, False, True]


def test_arrows_lead_through_the_values_of_a_knob_and_enter_starts_the_run(
    open_page: Callable[..., Watched],
) -> None:
    page, sent = open_page().page, list[dict[str, Any]]()
    stage = empty_stage(page, lambda message: sent.append(message))
    take(stage, "worker_replaced")
    knob = {"name": "ranks", "label": "Ranks", "now": 2, "values": [2, 3, 4]}
    stage.evaluate(LEARN, {"trials": TRIALS | {"knobs": [knob], "starting": ""}})
    row, select = stage.locator(".wb-knobs"), stage.locator(".wb-knobs select")
    wait_for(select.is_visible, "the knob")
    select.focus()
    for value in ("3", "4"):
        page.keyboard.press("ArrowDown")
        assert select.input_value() == value
    wait_for(lambda: "Enter starts" in row.inner_text(), "what starts it")

    def asked() -> list[dict[str, Any]]:
        return [one["args"] for one in sent if one.get("verb") == "run_with"]

    assert not asked()
    page.keyboard.press("Enter")
    wait_for(asked, "the wish to run")
    assert asked()[0] == {"ranks": 4}


def test_a_tab_that_is_offered_later_comes_when_the_pointer_has_left_the_row(
    tmp_path: Path, open_page: Callable[..., Watched]
) -> None:
    page = open_page().page
    stage = held(tmp_path, page)
    late = stage.locator(".wb-tabs [data-scene=samples]")
    stage.locator(".wb-tabs [data-scene=timeline]").hover()
    stage.evaluate(LEARN, {"samples": SAMPLES})
    let_draw(page, 600)
    assert not late.is_visible()
    page.mouse.move(1, 1)
    wait_for(late.is_visible, "the tab")
