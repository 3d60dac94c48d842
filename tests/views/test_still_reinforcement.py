"""The still picture of a run with actors, and the facts that its page gets."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

import workbench as wb
from tests.training.reinforcement.played import done, game, metric, roles, sent
from tests.views.test_still import words
from workbench.store.table import EMPTY
from workbench.views.pages.facts import facts
from workbench.views.stills.reinforcement import Played, select
from workbench.views.stills.still import select as select_still
from workbench.views.stills.svg import svg
from workbench.views.stills.svg_reinforcement import LEFT, WIDE, marks

SMALL = {"rows": 5, "columns": 4, "channels": 2, "hidden": 8}


def test_a_run_with_actors_shows_what_they_did_and_sent() -> None:
    run, _ = done(game("ape_x", 4, iterations=20, task_options=SMALL))
    run_facts, still = facts(run.store.metadata), select_still(run.store)
    assert run_facts["roles"] == roles(run) and run_facts["roles"]["actors"] == [2, 3]
    assert still.scene is not None and still.scene.name == "reinforcement"
    assert isinstance(still.selected, Played)
    frames = metric(run.events, "frames").group_by("rank").max()["value"].sum()
    came = metric(run.events, "inserted")["value"].sum()
    assert still.selected.roles == (
        ("actors", 2, f"{frames:,.0f} frames"),
        ("replays", 1, f"{came:,.0f} came in"),
        ("learners", 1, "20 updates"),
    )
    for kind, nbytes in still.selected.sent:
        assert nbytes == sent(run.events, kind)["nbytes"].sum()
    assert [kind for kind, _ in still.selected.sent] == [
        "experience",
        "minibatch",
        "priorities",
        "parameters",
    ]
    assert "2 actors" in words(svg(still)) and "learner" in words(svg(still))


@pytest.mark.full
def test_gorilas_picture_is_that_of_actors_and_no_row_is_after_the_last_iteration() -> None:
    run, _ = done(game("gorila", 5, iterations=20, learners=2, task_options=SMALL))
    still = select_still(run.store)
    assert still.scene is not None and still.scene.name == "reinforcement"
    assert [role for role, *_ in still.selected.roles] == [
        "actors",
        "replays",
        "learners",
        "servers",
    ]
    assert run.events["iteration"].max() == 19, "of 20 iterations the last is 19"


@pytest.mark.parametrize("bundled", [False, True])
def test_bars_are_as_long_as_their_kinds_have_bytes(bundled: bool) -> None:
    parts = (("bundles", 3, "x"),) if bundled else (("actors", 1, "x"), ("replays", 2, "y"))
    still = Played((*parts, ("servers", 1, "z")), (("parameters", 400), ("gradients", 100)))
    root = ET.fromstring(f"<svg>{''.join(marks(still))}</svg>")
    bars = [float(one.get("width", "")) for one in root.iter("rect") if one.get("height") == "5"]
    assert bars == pytest.approx([WIDE, WIDE, WIDE, WIDE / 4], abs=0.1)
    boxes = [one for one in root.iter("rect") if one.get("rx")]
    assert len(boxes) == len(parts) + 1
    last = boxes[-1]
    assert float(last.get("x", "")) + float(last.get("width", "")) == pytest.approx(
        LEFT + WIDE, abs=0.2
    )


def test_a_run_without_actors_has_none() -> None:
    assert select(EMPTY.lazy(), {"roles": None}) is None
    run = wb.run(wb.Experiment(task="lenet_digits", ranks=1, iterations=1, threads=1))
    run.wait(timeout=90)
    assert facts(run.store.metadata)["roles"] is None
