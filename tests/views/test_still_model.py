"""The still picture of a model that is cut inside its layers: every part is drawn once."""

from __future__ import annotations

import json
import re

import pytest

import workbench as wb
from tests.live import lenet
from workbench.front_end.svg import INK
from workbench.views.stills import svg_tensor_parallel as tensor_parallel
from workbench.views.stills.still import select
from workbench.views.stills.svg import svg

DARK = re.compile(rf'width="([\d.]+)" height="([\d.]+)" fill="{INK["ink-2"]}"')


@pytest.fixture(scope="module")
def run() -> wb.Run:
    run = wb.run(lenet(strategy="tensor_parallel", ranks=3, iterations=2))
    assert run.wait(timeout=60).ok
    return run


def test_the_picture_is_the_scene_that_was_asked_for(run: wb.Run) -> None:
    assert "Which rank has which part of which layer" in svg(select(run.store, "model"))
    other = svg(select(run.store, "collectives"))
    assert "Which rank has which part" not in other, "unasked, the ring of its all-reduces"


def test_the_dark_parts_of_a_layer_make_up_one_layer(run: wb.Run) -> None:
    model = json.loads(run.store.metadata["model"])
    cut = tensor_parallel.select(model)
    assert cut is not None and cut.ranks == 3
    whole = tensor_parallel.WIDE * tensor_parallel.HIGH
    split = [layer for layer in cut.layers if layer["how"] != "whole"]
    assert {layer["how"] for layer in split} == {"column", "row"}
    for layer in split:
        one = tensor_parallel.Cut(3, (layer,), 0, 0, {})
        boxes = [(float(w), float(h)) for w, h in DARK.findall("".join(tensor_parallel.marks(one)))]
        assert sum(w * h for w, h in boxes) == pytest.approx(whole, rel=0.02)


def test_blocks_that_are_alike_are_drawn_once() -> None:
    def shard(layer: str, how: str = "column") -> dict[str, object]:
        runs = [[[0, 2]], [[2, 4]]]
        return {"layer": layer, "how": how, "words": f"{how}: 4", "runs": runs, "size": 4}

    names = ("blocks.0.a", "blocks.0.b", "blocks.1.a", "blocks.1.b", "head")
    exchange = {"name": "blocks.0.a, b", "collective": "all_reduce", "pass": "forward"}
    model = {"shards": [*map(shard, names)], "exchanges": [{**exchange, "nbytes": 4096}]}
    cut = tensor_parallel.select(model)
    assert cut is not None
    assert [layer["layer"] for layer in cut.layers] == ["blocks.0.a", "blocks.0.b", "head"]
    assert cut.alike == 2 and "the 2 layers of further blocks" in tensor_parallel.words(cut)
    assert cut.sent == {"blocks.0.a": ["forward: all-reduce of 4.1 kB"]}
    assert tensor_parallel.select({"layers": []}) is None
