"""The still picture of a split model: a box a layer, as wide as it lasts; the cuts between them."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

import workbench as wb
from workbench.studies.split import Split
from workbench.views.stills.svg_model import EDGE, LEAST, WIDTH, svg

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def split() -> Split:
    return wb.split("char_transformer", stages=3, microbatch=2)


def test_boxes_are_the_layers_and_lines_the_cuts(split: Split) -> None:
    picture = ET.fromstring(svg(split.facts, split.memory, "a <split> model"))
    layers = split.profile.layers
    groups = [g for g in picture.iter(f"{SVG}g") if g.find(f"{SVG}rect") is not None]
    assert [g.findtext(f"{SVG}title") for g in groups] == [layer.name for layer in layers]
    boxes = [g.find(f"{SVG}rect") for g in groups]
    starts = [float(box.get("x")) for box in boxes]  # type: ignore[union-attr, arg-type]
    free = WIDTH - 2 * EDGE - LEAST * len(layers)
    for i, (start, end) in enumerate(zip(starts, [*starts[1:], WIDTH - EDGE], strict=True)):
        share = layers[i].seconds / split.profile.seconds
        assert end - start == pytest.approx(LEAST + free * share, abs=0.11)
    hues = [box.get("fill") for box in boxes]  # type: ignore[union-attr]
    changes = [i for i in range(1, len(hues)) if hues[i] != hues[i - 1]]
    assert changes == list(split.cut.starts[1:])
    lines = [one for one in picture.iter(f"{SVG}line") if one.get("stroke-dasharray")]
    assert [float(one.get("x1")) for one in lines] == [starts[i] for i in changes]  # type: ignore[arg-type]
    over = [v for v in split.profile.values for use in v.uses if use > v.maker + 1]
    assert len(list(picture.iter(f"{SVG}path"))) == len(over) > 0


def test_the_table_has_the_picture_above(split: Split) -> None:
    html = split._repr_html_()
    assert html.startswith("<img alt=") and html.count("><table>") == 1
