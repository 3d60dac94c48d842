"""The still picture of a run that recovered."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

import workbench as wb
from tests.live import lenet
from tests.views.test_still import words
from workbench.front_end.svg import INK
from workbench.store.table import EMPTY
from workbench.views.stills.recovery import NEWEST, Waterfall, select
from workbench.views.stills.still import select as select_still
from workbench.views.stills.svg import svg
from workbench.views.stills.svg_recovery import LEFT, WIDE, marks


def test_a_run_that_recovered_shows_what_it_measures() -> None:
    kill = wb.Kill(rank=1, at_iteration=3)
    run = wb.run(lenet(ranks=3, iterations=6, recovery="shrink", faults=kill))
    run.wait(timeout=90)
    still, recoveries = select_still(run.store), run.recovery()
    assert still.scene is not None and still.scene.name == "recovery"
    assert isinstance(still.selected, Waterfall)
    ((name, ends),) = still.selected.rows
    assert name == "rank 1 lost in iteration 4" and ends[-1] == recoveries[0].first_ms
    texts = words(svg(still))
    assert any("Goodput" in one for one in texts) and not any("fail" in one for one in texts)


@pytest.mark.parametrize("last", [3.0, None])
def test_each_phase_is_as_long_as_it_took(last: float | None) -> None:
    still = Waterfall((("rank 1 lost in iteration 3", (1.0, 2.0, 2.5, 2.75, last)),), "", 2)
    root = ET.fromstring(f"<svg>{''.join(marks(still))}</svg>")
    boxes = [one for one in root.iter("rect") if one.get("height") == "14.0"]
    lengths = [float(one.get("width", "")) for one in boxes]
    scale = 3.0
    assert lengths == pytest.approx(
        [WIDE * ms / scale for ms in (1, 1, 0.5, 0.25, 0.25)[: 4 + (last is not None)]], abs=0.11
    )
    assert all(float(one.get("x", "")) >= LEFT for one in boxes)


@pytest.mark.parametrize("received", [True, False])
def test_a_restore_is_orange_where_something_was_received(received: bool) -> None:
    rows = (("rank 1 lost in iteration 3", (1.0, 2.0, 2.5, 2.75, 3.0)),)
    drawn = "".join(marks(Waterfall(rows, "", 0, (received,))))
    assert (INK["comm"] in drawn) is received


@pytest.mark.parametrize("received", [(True, True), (False, True), (False, False)])
def test_every_color_of_a_phase_is_in_the_key(received: tuple[bool, bool]) -> None:
    rows = tuple((f"rank {rank} joined", (1.0, 2.0, 2.5, 2.75, 3.0)) for rank in (1, 2))
    root = ET.fromstring(f"<svg>{''.join(marks(Waterfall(rows, '', 0, received)))}</svg>")
    boxes = [*root.iter("rect")]
    bars = {one.get("fill") for one in boxes if one.get("height") == "14.0"}
    assert bars == {one.get("fill") for one in boxes if one.get("height") == "10.0"}


def test_a_planned_change_is_not_a_loss_in_the_picture() -> None:
    left = {"lost": {"1": "removed"}, "failed_in": 4, "iteration": 4, "members": [0], "fresh": []}
    still = select(EMPTY.lazy(), {"recoveries": [{**left, "generation": 1, "state": "memory"}]})
    assert still is not None and still.rows[0][0] == "rank 1 left in iteration 5"


def test_the_newest_are_drawn_and_a_run_without_losses_has_none() -> None:
    assert select(EMPTY.lazy(), {"recoveries": []}) is None
    one = {"lost": {"1": "killed"}, "failed_in": 1, "iteration": 1, "members": [0, 1], "fresh": [1]}
    many = [{**one, "generation": i + 1, "state": "memory"} for i in range(NEWEST + 2)]
    still = select(EMPTY.lazy(), {"recoveries": many})
    assert still is not None and (len(still.rows), still.left_out) == (NEWEST, 2)
