"""The still picture of the timeline: drawn where a cell asks for it, from the run's own rows."""

from __future__ import annotations

import re

import polars as pl

import workbench as wb
from workbench.views.jupyter import show
from workbench.views.scenes.timeline import COMPUTING
from workbench.views.stills.still import select
from workbench.views.stills.svg import svg


def test_a_cell_that_asks_for_the_timeline_gets_its_picture() -> None:
    exp = wb.Experiment(ranks=2, iterations=6, pad_compute="5 ms")
    run = wb.run(exp)
    run.wait(60, progress=False)

    timeline, default = select(run.store, "timeline"), select(run.store)
    assert timeline.scene is not None and timeline.scene.name == "timeline" and not timeline.trains
    assert default.scene is None and default.trains, "nobody asked for it"

    one = timeline.selected
    rows = run.events.filter(pl.col("kind") == "forward", iteration=one.iteration)
    drawn = [bar for bar in one.bars if bar[1] == "forward"]
    took = (rows["end_ns"] - rows["start_ns"]).to_list()
    assert sorted(round((end - start) * 1e6) for _, _, start, end in drawn) == sorted(took)
    picture = svg(timeline)
    assert picture.count(f'fill="{COMPUTING["forward"]}"') == len(drawn) + 1, "and one in the key"
    widths = [
        float(x) for x in re.findall(r'<rect x="[\d.]+" y="[\d.]+" width="([\d.]+)"', picture)
    ]
    assert max(widths) <= 944 - 72 + 1, "inside the picture"

    stored = show(run, "timeline")._repr_mimebundle_()
    assert stored is not None and stored[0]["image/svg+xml"] == picture


def test_a_scene_without_anything_to_show_leaves_the_picture_as_it_is() -> None:
    run = wb.run(wb.Experiment(ranks=2, iterations=2))
    run.wait(60, progress=False)
    assert svg(select(run.store, "pipeline")) == svg(select(run.store))
    assert svg(select(run.store, "nothing of that name")) == svg(select(run.store))
