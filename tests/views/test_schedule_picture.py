"""The picture of a plan: every action is in it, where and as long as planned; a cycle is drawn."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

import workbench as wb
from tests.pictures import in_image
from workbench.training.pipelines.checks import Deadlock
from workbench.training.pipelines.schedule_picture import LEFT, RIGHT, WIDTH, picture
from workbench.training.pipelines.theory import Times

SVG = "{http://www.w3.org/2000/svg}"
SIZES = {"zbv": 2, "interleaved_1f1b": 2}


@pytest.mark.parametrize("name", ["1f1b", "zb_h1", "pipedream", *SIZES])
def test_every_action_is_drawn_on_its_stage_s_strip(name: str) -> None:
    schedule = wb.schedule(name, ranks=4, microbatches=8, stages_per_rank=SIZES.get(name, 1))
    drawing = ET.fromstring(in_image(schedule._repr_html_()))
    bars = {}
    for group in drawing.iter(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        bars[group.find(f"{SVG}title").text.split(":")[0]] = rect
    assert set(bars) == {str(one) for row in schedule.rows for one in row}
    assert len({rect.get("y") for rect in bars.values()}) == schedule.stages
    ends = [float(rect.get("x")) + float(rect.get("width")) for rect in bars.values()]
    assert max(ends) == pytest.approx(WIDTH - RIGHT, abs=1)
    assert min(float(rect.get("x")) for rect in bars.values()) == LEFT


def test_what_an_image_cannot_tell_of_its_marks_is_said_below_it() -> None:
    page = wb.schedule("gpipe", ranks=2, microbatches=2)._repr_html_()
    assert "<svg" not in page, "inline, it would be left out of a notebook that is not trusted"
    rows = re.findall(r"rank \d: .*", page)
    assert rows[0].startswith("rank 0: 0F0 0 to 1, 0F1 1 to 2, ")
    assert rows[1].startswith("rank 1: 1F0 1 to 2, 1F1 2 to 3, ")


def test_it_says_the_bubble_and_the_formula() -> None:
    schedule = wb.schedule("1f1b", ranks=4, microbatches=8)
    assert "Ranks idle 27.3 % of the time (formula 27.3 %)" in picture(schedule)
    slow = picture(schedule, Times([0.01, 0.01, 0.013, 0.01], 0.01, 0.01))
    assert "formula" not in slow and re.search(
        r"0F1: forward of microbatch 1, 10.0 to 20.0 ms", slow
    )
    assert "no flush" in picture(wb.schedule("pipedream", ranks=2, microbatches=2))


def test_which_action_waits_for_which_is_drawn() -> None:
    with pytest.raises(Deadlock) as refused:
        wb.schedule([["0F0", "0B0", "0F1", "0B1"], ["1F0", "1F1", "1B0", "1B1"]])
    page = refused.value._repr_html_()
    drawing = ET.fromstring(in_image(page))
    assert "1F1" in page.split("<pre>")[1], "what an image cannot be searched for is said below it"
    assert len([one for one in drawing.iter(f"{SVG}path") if one.get("marker-end")]) == 2
    assert "0B0 waits for 1B0, 1F1 waits for 0F1" in drawing.find(f"{SVG}title").text
