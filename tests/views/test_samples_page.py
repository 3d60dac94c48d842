"""The picture of a partition without a run: what a page is told, the still one, and its sliders."""

from __future__ import annotations

import json
import re
from typing import Any
from xml.etree import ElementTree

import pytest

import workbench as wb
from workbench.interface.app.partition import MOST, START, PartitionPage, _checked
from workbench.studies.partition_explorer import Explore
from workbench.views.jupyter import ModelStage
from workbench.views.pages.samples_page import samples_page
from workbench.views.stills.svg_samples import columns, svg

CASES = [
    wb.partition(),
    wb.partition(10, 4, 4),
    wb.partition(30, 10, 4, shuffle=True, epochs=2),
    wb.partition(300, 128, 16),
    wb.partition(600, 256, 64),
    wb.partition(1, 1, 1),
    wb.partition(9, 4, 2, sampler="workbench"),
]


def test_a_page_is_told_the_samples_and_that_there_is_no_run() -> None:
    partition = wb.partition(10, 4, 4)
    header = json.loads(json.dumps(samples_page(partition.facts, partition.words, number=3).header))
    run = header["run"]
    assert run["alone"] and run["scene"] == "samples" and run["ranks"] == 4 and header["seq"] == 3
    assert run["samples"] == json.loads(json.dumps(partition.facts)) | {"words": partition.words}
    assert header["rows"] == 0 and not run["id"]
    assert run["samples"]["minibatches"][2]["repeated"] == [[], [], [0], [0]]
    assert [law["holds"] for law in run["samples"]["laws"]] == [False, False, True, True]


def test_no_more_than_a_page_holds() -> None:
    facts = wb.partition(5000, 10, 2).facts
    assert len(facts["minibatches"]) == 64 and facts["more"] == 436
    facts = wb.partition(9000, 1000, 2).facts
    assert len(facts["minibatches"]) == 4 and facts["more"] == 5


@pytest.mark.parametrize("partition", CASES, ids=lambda one: f"{one.samples} over {one.ranks}")
def test_the_still_picture_has_every_sample_that_fits(partition: wb.Partition) -> None:
    drawn = svg(partition.facts, partition.words)
    root = ElementTree.fromstring(drawn)
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    texts = [(one.text or "", one) for one in root.iter() if one.tag.endswith("text")]
    for text, one in texts:
        size = float(one.get("font-size", 0))
        assert size >= 11 and 0 <= float(one.get("y", 0)) <= height, text
        if one.get("text-anchor") == "start":
            assert float(one.get("x", 0)) + len(text) * size * 0.5 <= width, text
    shown = sum(bool(re.match(r"(epoch \d+ · )?minibatch \d+ [✓≠]$", text)) for text, _ in texts)
    assert shown >= 1
    takers = [
        taker
        for one in partition.facts["minibatches"][:shown]
        for c in columns(one)
        for taker in c.takers
    ]
    dealt = [i for one in partition.minibatches[:shown] for ids in one.of for i in ids]
    assert len(takers) == len(dealt)
    hatched = drawn.count('fill="url(#wb-again')
    assert hatched == sum(len(at) for one in partition.minibatches[:shown] for at in one.repeated)
    if (left := len(partition.minibatches) - shown) > 0:
        assert f"{left} more minibatches" in drawn


def test_a_notebook_gets_the_picture_and_keeps_a_still_one() -> None:
    partition = wb.partition(10, 4, 4)
    data, _ = partition._repr_mimebundle_()
    assert data["text/html"] == partition._repr_html_() and data["text/plain"] == repr(partition)
    assert "<img" in data["text/html"] and "every sample once" in data["text/html"]


def test_sliders_make_another_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[dict[str, Any]] = []
    monkeypatch.setattr(
        ModelStage, "send", lambda self, content, buffers=None: messages.append(content)
    )
    sliders = wb.partition(10, 4, 4).explore()
    assert (
        isinstance(sliders, Explore)
        and sliders.partition.minibatches == wb.partition(10, 4, 4).minibatches
    )
    sliders.controls["shuffle"].value = True
    assert sliders.partition == wb.partition(10, 4, 4, shuffle=True)
    assert messages[-1]["run"]["samples"]["minibatches"][0]["of"] == [
        list(ids) for ids in sliders.partition.minibatches[0].of
    ]
    assert messages[-1]["seq"] > 1, "a page takes what has a higher number"
    sliders.controls["drop_last"].value = True
    sliders.controls["sampler"].value = "workbench"  # which has no drop_last
    assert sliders.controls["drop_last"].disabled and sliders.partition.sampler == "workbench"
    assert wb.partition.explore(samples=200).controls["samples"].max >= 200  # type: ignore[attr-defined]


# ---- the web app's page


def test_the_web_page_takes_what_a_form_holds_and_nothing_else() -> None:
    page = PartitionPage()
    page.heard({"type": "values", "values": START | {"samples": 24, "batch_size": 8, "ranks": 2}})
    assert page.form.state["code"] == "wb.partition()" and not page.form.state["refused"]
    for wrong in (
        START | {"samples": MOST["samples"] + 1},
        START | {"ranks": 0},
        START | {"seed": -1},
        START | {"shuffle": 1},
        START | {"sampler": "mine"},
        START | {"samples": [1, 2]},
        {"samples": 3},
        None,
        START | {"more": 1},
        START | {"samples": True},
    ):
        page.form.tell(refused="")
        page.heard({"type": "values", "values": wrong})
        assert page.form.state["refused"], wrong
    assert page.form.state["code"] == "wb.partition()", "what is refused is not drawn"


def test_what_is_checked_is_what_is_drawn() -> None:
    assert _checked(START) == START and wb.partition(**START).options
