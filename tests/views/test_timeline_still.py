"""The still picture of the timeline: drawn where a cell asks for it, from the run's own rows."""

from __future__ import annotations

import math
import re
from pathlib import Path

import polars as pl

import workbench as wb
from tests.synthetic import loss_row, table
from workbench.views.jupyter import show
from workbench.views.scenes import timeline
from workbench.views.scenes.timeline import COMPUTING
from workbench.views.stills.still import select
from workbench.views.stills.svg import svg


def test_a_cell_that_asks_for_the_timeline_gets_its_picture() -> None:
    exp = wb.Experiment(ranks=2, iterations=6, pad_compute="5 ms")
    run = wb.run(exp)
    run.wait(60, progress=False)

    still, default = select(run.store, "timeline"), select(run.store)
    assert still.scene is not None and still.scene.name == "timeline" and not still.trains
    assert default.scene is None and default.trains, "it was not asked for"

    one = still.selected
    rows = run.events.filter(pl.col("kind") == "forward", iteration=one.iteration)
    drawn = [bar for bar in one.bars if bar[1] == "forward"]
    took = (rows["end_ns"] - rows["start_ns"]).to_list()
    assert sorted(round((end - start) * 1e6) for _, _, start, end in drawn) == sorted(took)
    picture = svg(still)
    assert picture.count(f'fill="{COMPUTING["forward"]}"') == len(drawn) + 1, "and one in the key"
    widths = [
        float(x) for x in re.findall(r'<rect x="[\d.]+" y="[\d.]+" width="([\d.]+)"', picture)
    ]
    assert max(widths) <= 944 - 72 + 1, "inside the picture"

    stored = show(run, "timeline")._repr_mimebundle_()
    assert stored is not None and stored[0]["image/svg+xml"] == picture


def test_a_thread_that_listens_while_its_rank_computes_makes_no_rank_wait() -> None:
    """AD-PSGD: a passive rank's thread waits for the next question all the time."""

    def each(rank: int, kind: str, start: int, end: int, group: str = "") -> dict[str, object]:
        row = loss_row(0, start * 1_000_000, math.nan) | {"kind": kind, "name": "", "op": -1}
        more = {"group": group, "collective": "p2p" if group else "", "peer": 1 - rank}
        return row | more | {"rank": rank, "end_ns": end * 1_000_000}

    rows = [each(rank, "forward", 0, 40) for rank in (0, 1)]
    rows += [each(rank, "backward", 45, 80) for rank in (0, 1)]
    rows += [each(1, "wait", 0, 90, "default"), each(1, "wait", 41, 43, "control")]
    rows += [each(0, "send", 10, 12, "default"), each(0, "send", 20, 22, "control")]
    rows += [each(0, "wait", 10, 30) | {"collective": "all_reduce", "group": "default"}]
    selected = timeline.select(table(rows).lazy(), {})
    assert selected is not None
    bars = {
        (rank, kind, round(start), round(end))
        for rank, kind, start, end in selected.bars
        if kind not in COMPUTING
    }
    assert bars == {
        (1, "wait", 40, 45),  # and nothing of it while the rank computes
        (1, "wait", 80, 90),
        (1, "wait", 41, 43),
        (0, "send", 10, 12),
        (0, "wait", 10, 30),  # of a collective: as it is
    }


def test_a_scene_without_anything_to_show_leaves_the_picture_as_it_is() -> None:
    run = wb.run(wb.Experiment(ranks=2, iterations=2))
    run.wait(60, progress=False)
    assert svg(select(run.store, "pipeline")) == svg(select(run.store))
    assert svg(select(run.store, "nothing of that name")) == svg(select(run.store))


def test_a_job_that_records_no_iterations_shows_its_collectives() -> None:
    """A script of one's own under torchrun: the engine sees its calls, and no forward pass."""

    def call(rank: int, op: int, kind: str, start_ms: int, end_ms: int) -> dict[str, object]:
        row = loss_row(-1, start_ms * 1_000_000, math.nan) | {"kind": kind, "name": "", "op": op}
        return row | {"rank": rank, "end_ns": end_ms * 1_000_000, "group": "default"}

    rows = [
        call(rank, op, kind, 20 * op + 5 * rank * (kind == "collective"), 20 * op + 10)
        for op in range(12)
        for rank, kind in ((0, "collective"), (0, "wait"), (1, "collective"))
    ]
    bars = timeline.select(table(rows).lazy(), {})
    assert bars is not None and bars.iteration == -1 and bars.ranks == (0, 1)
    assert bars.whole_ms == 70, "the last four calls"
    longest = {kind: max(e - s for _, k, s, e in bars.bars if k == kind) for kind in ("wait",)}
    assert longest == {"wait": 10}
    drawn = "".join(timeline.draw(bars))
    assert "its collectives" in drawn and "forward" not in drawn and "Iteration" not in drawn
    assert ">0<" in drawn and ">20 ms<" in drawn and ">60 ms<" in drawn, "a round axis"


def test_where_checkpoints_are_written_the_timeline_shows_one(tmp_path: Path) -> None:
    plan = wb.Checkpoint(folder=str(tmp_path), every=3)
    run = wb.run(wb.Experiment(ranks=2, iterations=10, pad_compute="10 ms", checkpoint=plan))
    run.wait(60, progress=False)
    one = select(run.store, "timeline").selected
    assert one.checkpoint and one.iteration in (3, 6, 9), "the iteration after a third one"
    assert "checkpoint" in {kind for _, kind, _, _ in one.bars}
    assert all(0 <= start <= end <= one.whole_ms for _, _, start, end in one.bars)
