"""The disagreement of replicas: right by hand-made sketches, piece by piece, and drawn."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import workbench as wb
from tests.live import lenet
from workbench.analysis import replicas
from workbench.analysis.curves import MIXED, Curves, select
from workbench.analysis.replica_charts import EMPTY, cell
from workbench.training.gossip.disagreement import disagreement as by_iteration
from workbench.views.pages.figures import figure
from workbench.views.stills.still import select as select_still
from workbench.views.stills.svg import svg


def sketch_rows(sketches: np.ndarray, ends: np.ndarray) -> pl.DataFrame:
    """Rows of (rank, iteration, number) sketches, each told at ``ends`` (rank, iteration)."""
    rows = [
        (rank, iteration, chunk, float(value), int(ends[rank, iteration]))
        for (rank, iteration, chunk), value in np.ndenumerate(sketches)
    ]
    return pl.DataFrame(rows, schema=replicas.ROWS, orient="row")


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_distances_are_those_from_the_mean_of_the_sketches(ranks: int) -> None:
    draw = np.random.default_rng(ranks)
    sketches, ends = draw.normal(size=(ranks, 6, 8)), draw.integers(0, 9, (ranks, 6)).cumsum(1)
    rows = sketch_rows(sketches, ends).sample(fraction=1, shuffle=True, seed=1)
    curve = replicas.disagreement(rows, {})
    due = np.linalg.norm(sketches - sketches.mean(0), axis=2)
    np.testing.assert_allclose(curve["rms"], np.sqrt((due**2).mean(0)), rtol=1e-12)
    np.testing.assert_allclose(curve["furthest"], due.max(0), rtol=1e-12)
    np.testing.assert_allclose(curve["nearest"], due.min(0), rtol=1e-12)
    assert curve["end_ns"].to_list() == ends.max(0).tolist()
    assert curve["alone"].is_nan().all()


def test_what_some_rank_has_not_done_is_left_out() -> None:
    draw = np.random.default_rng(0)
    rows = sketch_rows(draw.normal(size=(3, 4, 8)), np.arange(12).reshape(3, 4))
    late = rows.filter(~((pl.col("rank") == 1) & (pl.col("iteration") > 1)))
    assert replicas.disagreement(late, {})["iteration"].to_list() == [0, 1]
    half = rows.filter(
        ~((pl.col("rank") == 1) & (pl.col("iteration") == 3) & (pl.col("chunk") > 4))
    )
    assert replicas.disagreement(half, {})["iteration"].to_list() == [0, 1, 2]
    assert replicas.disagreement(rows.clear(), {}).height == 0


def test_nothing_is_told_before_every_rank_has_begun() -> None:
    """The mean of some of them would be another."""
    rows = sketch_rows(np.random.default_rng(0).normal(size=(4, 3, 8)), np.arange(12).reshape(4, 3))
    peers = {"edges": [[a, b, 0.25] for a in range(4) for b in range(4) if a != b]}
    early = rows.filter(pl.col("rank") < 3)
    assert replicas.distances_of(early, peers) is None
    assert replicas.disagreement(early, peers).height == 0
    assert replicas.disagreement(rows, peers).height == 3


def test_on_their_own_time_they_are_compared_as_they_were_at_one_moment() -> None:
    sketches = np.arange(8.0).reshape(2, 4, 1) * np.ones(8)
    ends = np.array([[1, 2, 3, 4], [10, 20, 30, 40]])  # rank 0 is done before rank 1 begins
    curve = replicas.disagreement(sketch_rows(sketches, ends), {"synchronous": False})
    apart = np.abs(sketches[0, 3, 0] - sketches[1, :, 0]) / 2 * np.sqrt(8)
    np.testing.assert_allclose(curve["rms"], apart)


def test_mixing_alone_falls_by_its_rate_from_the_top_on() -> None:
    sizes = np.array([1.0, 4.0, 3.0, 1.0, 1.0])
    sketches = np.stack([sizes, -sizes])[:, :, None] * np.ones(8)
    ends = np.arange(10).reshape(2, 5)
    curve = replicas.disagreement(sketch_rows(sketches, ends), {"rate": 0.5, "every": 2})
    top = 4 * np.sqrt(8)
    due = [np.nan, top, top * 0.5**0.5, top * 0.5, top * 0.5**1.5]
    np.testing.assert_allclose(curve["alone"], due, rtol=1e-12)
    for rate in (None, 0.0, 1.0):
        rows = replicas.disagreement(sketch_rows(sketches, ends), {"rate": rate})
        assert rows["alone"].is_nan().all()


@pytest.fixture(scope="module")
def run() -> Any:
    gossip_run = wb.run(lenet(strategy="gossip", ranks=3, iterations=6, options={"spread": 0.01}))
    gossip_run.wait(timeout=60)
    return gossip_run


def test_the_curve_of_a_run_is_its_disagreement_piece_by_piece(run: wb.Run) -> None:
    whole = select(run.store, MIXED)
    own = by_iteration(run.events).group_by("iteration", maintain_order=True)
    rms = own.agg(pl.col("distance").pow(2).mean().sqrt())["distance"]
    np.testing.assert_allclose(whole["rms"], rms, rtol=1e-9)
    assert whole["iteration"].to_list() == list(range(6))
    pieces = replicas.Mixed(run.store)
    assert not pieces.active
    events = run.events
    for at in range(0, events.height, 50):
        pieces.of_frame(events.slice(at, 50))
    assert pieces.active
    facts = replicas.facts(run.store.metadata)
    assert_frame_equal(replicas.disagreement(pieces.rows, facts), whole)


def test_it_is_offered_live_and_only_where_replicas_mix(run: wb.Run) -> None:
    live = wb.run(lenet(strategy="gossip", iterations=4))
    curves = Curves(live.store)
    curves.update()  # from here on by raw batches
    live.wait(timeout=60)
    curves.update()
    assert MIXED in curves.offered
    assert_frame_equal(curves.select(MIXED), select(live.store, MIXED))
    plain = wb.run(lenet(iterations=3))
    plain.wait(timeout=60)
    others = Curves(plain.store)
    others.update()
    assert MIXED not in others.offered and others.select(MIXED).height == 0


def test_the_chart_is_logarithmic_where_a_theory_foretells_a_fall(run: wb.Run) -> None:
    drawn = figure(run.store, MIXED)
    assert [trace.name for trace in drawn.data][-1] == "mixing alone"
    # Of three in a ring every other is a neighbor: one mixing leaves nothing.
    facts = json.loads(run.store.metadata["peers"])
    assert drawn.layout.yaxis.type == ("log" if facts["rate"] and facts["rate"] > 0 else None)
    draw = np.random.default_rng(0)
    rows = sketch_rows(draw.normal(size=(3, 4, 8)), np.arange(12).reshape(3, 4))
    assert cell(replicas.disagreement(rows, {"rate": 0.5})).chart.up["type"] == "log"
    assert "type" not in cell(replicas.disagreement(rows, {})).chart.up
    assert EMPTY in cell(replicas.disagreement(rows.clear(), {})).title


def test_the_still_picture_has_every_rank_and_which_sent_to_which(run: wb.Run) -> None:
    still = select_still(run.store)
    assert still.selected is not None and len(still.selected.distances) == 3
    last = by_iteration(run.events).filter(pl.col("iteration") == 5).sort("rank")["distance"]
    assert still.selected.distances == pytest.approx(last.to_list())
    assert sum(nbytes for *_, nbytes in still.selected.sent) == sum(run.result.bytes_sent.values())
    text = svg(still)
    assert "Who mixed with whom" in text and "full bar" in text
    assert f"rank {int(last.arg_max())} is furthest" in text
    plain = wb.run(lenet(iterations=3))
    plain.wait(timeout=60)
    assert select_still(plain.store).selected is None
