"""``wb.walk``: steps of a lecturer's own, refused before anything is shown, or sent to the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.views.feeding import HELLO
from tests.views.test_jupyter import listening
from workbench.front_end.assets import scene_manifests
from workbench.views.walks import checked_steps

RUN = wb.plan("all_reduce", "ring", ranks=4, nbytes="1 MB")
STEP = {"title": "A rank", "text": "This is rank {rank}.", "mark": "rank", "rank": 2}
COUNT = {"say": "It sends {n} times.", "take": "count", "kind": "send", "by": ["rank"]}
YAML = """
- {title: A rank, text: 'This is rank {rank}.', mark: rank, rank: 2, playhead: 0.25}
- title: Its lane
  text: The same rank, in time.
  scene: timeline
  mark: lanes
  number: {say: 'It sends {n} times.', take: count, kind: send, by: [rank]}
"""


def test_steps_are_read_from_python_from_yaml_and_from_a_file(tmp_path: Path) -> None:
    steps = checked_steps(YAML, "collectives")
    assert [step["scene"] for step in steps] == ["collectives", "timeline"]
    assert steps[1]["number"] == COUNT
    (tmp_path / "steps.yaml").write_text(YAML)
    assert checked_steps(tmp_path / "steps.yaml", "collectives") == steps
    assert checked_steps([STEP, {**STEP, "number": COUNT}], "collectives")[1]["number"] == COUNT


@pytest.mark.parametrize("one", scene_manifests(), ids=lambda one: one.name)
def test_the_steps_of_each_scene_are_steps(one: Any) -> None:
    steps = one.walk["steps"]
    assert checked_steps(steps, one.name) == [{**step, "scene": one.name} for step in steps]
    assert len(steps) >= 3 and all("number" in step for step in steps)
    assert ("knob" in steps[-1]) == (one.name != "pair")  # whose ranks are of two runs


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"scene": "ringg"}, "steps[1].scene"),
        ({"mark": "shard"}, "steps[1].mark"),
        ({"mark": ["rank", "shard"]}, "steps[1].mark"),
        ({"rank": "one"}, "steps[1].rank"),
        ({"playhead": 1.5}, "steps[1].playhead"),
        ({"of": "iteration"}, "steps[1].of"),
        ({"title": None}, "steps[1].title"),
        ({"hue": "red"}, "steps[1].hue"),
        ({"number": "ranks"}, "steps[1].number"),
        ({"number": {**COUNT, "say": "Often."}}, "steps[1].number.say"),
        ({"number": {**COUNT, "kind": "sendd"}}, "steps[1].number.kind"),
        ({"number": {**COUNT, "take": "median"}}, "steps[1].number.take"),
        ({"number": {**COUNT, "fact": "ranks"}}, "steps[1].number"),
        ({"number": {"say": "{n}", "field": "x", "mark": "shard"}}, "steps[1].number.mark"),
        ({"knob": {"words": "Slow it", "target": "shard"}}, "steps[1].knob.target"),
        ({"knob": {"target": "rank"}}, "steps[1].knob"),
    ],
)
def test_a_bad_step_is_refused_by_its_place(wrong: dict[str, Any], path: str) -> None:
    with pytest.raises(wb.SpecError) as refused:
        wb.walk(RUN, [STEP, {**STEP, **wrong}], scene="collectives")
    [problem] = refused.value.problems
    assert str(problem).startswith((f"{path} = ", f"{path}: ")), problem


def test_a_list_that_is_not_a_walk_is_refused() -> None:
    for steps, words in (([], "expected a list"), ("title: x\n", "expected a list")):
        with pytest.raises(wb.SpecError, match=words):
            wb.walk(RUN, steps)
    with pytest.raises(wb.SpecError, match="this walk has 1 steps"):
        wb.walk(RUN, [STEP], scene="collectives", step=2)
    with pytest.raises(wb.SpecError, match="this walk has 6 steps"):
        wb.walk(RUN, scene="collectives", step=7)
    with pytest.raises(wb.SpecError, match=r"there are overview, collectives"):
        wb.walk(RUN, scene="ringg")


def first_facts(stage: Any) -> dict[str, Any]:
    """Return the facts of the run in the first message that the page of this stage gets."""
    client = listening(stage)
    stage._handle_custom_msg(HELLO, [])
    client.until(lambda: client.table.height == len(RUN.store))
    stage.close()
    return dict(client.headers[0]["run"])


def test_the_page_is_told_of_it_once(tmp_path: Path) -> None:
    stage = wb.walk(RUN, YAML, scene="collectives", step=2)
    stage.to_html(tmp_path / "walk.html")
    run = first_facts(stage)
    assert (run["walk"]["at"], len(run["walk"]["steps"])) == (1, 2)
    assert "walk" not in first_facts(RUN.view("collectives"))
    own = first_facts(wb.walk(RUN, scene="collectives", step=3))
    assert (own["walk"]["at"], own["walk"]["scene"], own["walk"]["steps"]) == (
        2,
        "collectives",
        None,
    )
