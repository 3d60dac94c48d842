"""The still picture of a pipeline: its bars are the rows of one iteration, in true time."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import polars as pl
import pytest

import workbench as wb
from tests.synthetic import training
from tests.views.test_still import words
from workbench.store.event_store import Store
from workbench.training.pipelines import bubble
from workbench.training.pipelines.idle import WHYS
from workbench.training.pipelines.schedule import Schedule
from workbench.training.pipelines.schedule_picture import HUES
from workbench.views.stills.pipeline import Bar, Piped, _span
from workbench.views.stills.still import select
from workbench.views.stills.svg import svg
from workbench.views.stills.svg_pipeline import LEFT, MOST, RIGHT, marks


def experiment(schedule: str = "1f1b") -> wb.Experiment:
    return wb.Experiment(
        strategy="pipeline",
        ranks=2,
        iterations=4,
        pad_compute="12 ms",  # what runs in it never takes as long, on a busy machine too
        options={"schedule": schedule, "microbatches": 4},
    )


def piped(store: Store) -> Piped:
    selected = select(store).selected
    assert selected is not None
    return selected


@pytest.fixture(scope="module")
def store() -> Store:
    run = wb.run(experiment())
    run.wait(60)
    return run.store


def test_bars_are_the_newest_iterations_rows_in_true_time(store: Store) -> None:
    still, p = piped(store), pl.col
    kinds = p("kind").cast(pl.String).is_in(["forward", "backward", "weight_grad"])
    rows = store.events.filter(kinds & (p("iteration") == 3))
    assert len(still.bars) == rows.height == 2 * 2 * 4
    start, end = rows["start_ns"].min(), rows["end_ns"].max()
    assert isinstance(start, int) and isinstance(end, int)
    for bar in still.bars:
        kind = "forward" if bar.what == "F" else "backward"
        own = rows.filter(kind=kind, stage=bar.stage, microbatch=bar.microbatch).row(0, named=True)
        assert bar.start * (end - start) == pytest.approx(own["start_ns"] - start, abs=1)
        assert bar.end * (end - start) == pytest.approx(own["end_ns"] - start, abs=1)
        assert own["rank"] == bar.place
    took = (rows["end_ns"] - rows["start_ns"]).sum()
    assert sum(still.idle) == pytest.approx(2 - took / (end - start), abs=1e-6)
    assert "Iteration 4" in still.words and "the schedule alone costs 20 %" in still.words


def test_the_picture_has_a_row_a_stage_and_says_how_idle_it_was(store: Store) -> None:
    still = piped(store)
    texts = words(svg(select(store)))
    assert "stage 0" in texts and "stage 1" in texts and "Where the time went" in texts
    assert f"{still.idle[0] * 100:.0f} %" in texts and "backward" in texts
    for mark in marks(still):
        node = ET.fromstring(mark)
        if node.tag == "rect" and float(node.attrib["x"]) >= LEFT:
            assert float(node.attrib["x"]) + float(node.attrib["width"]) <= RIGHT + 0.1


def test_idle_time_is_split_as_the_bubble_is(store: Store) -> None:
    """By idle.py, with every gap of every rank; the shares are the bubble's of that iteration."""
    still = piped(store)
    facts = json.loads(store.metadata["pipeline"])
    schedule = Schedule.from_facts(facts)
    assert schedule is not None
    pads = [one * 1e6 for one in facts["pads_ms"]]
    parts = bubble.measure(store.events, schedule, pads_ns=pads, last=1).parts
    for place, row in enumerate(parts.sort("rank").iter_rows(named=True)):
        for why in WHYS:
            took = sum(w.end - w.start for w in still.waits if (w.place, w.why) == (place, why))
            assert took == pytest.approx(row[f"{why}_ns"] / row["whole_ns"], abs=1e-9)
        assert sum(w.end - w.start for w in still.waits if w.place == place) == pytest.approx(
            still.idle[place]
        )
    texts = words(svg(select(store)))
    assert "warm-up and drain" in texts and "communication" in texts and "all-reduce" not in texts


def test_the_all_reduce_over_replicas_comes_after_the_last_backward() -> None:
    exp = experiment().replace(ranks=4, options={"replicas": 2, "microbatches": 4})
    run = wb.run(exp)
    run.wait(60)
    still = piped(run.store)
    assert {rank for rank, _, _ in still.joins} == {0, 1, 2, 3} and still.whole < 1
    assert {bar.place for bar in still.bars} == {0, 1, 2, 3}, "both replicas are drawn"
    assert {bar.stage for bar in still.bars if bar.place in (1, 3)} == {1}
    assert {wait.place for wait in still.waits} == {0, 1, 2, 3}
    assert {f"rank {rank}" for rank in range(4)} <= {*words(svg(select(run.store)))}
    for rank, start, end in still.joins:
        last = max(bar.end for bar in still.bars if bar.place == rank)
        assert last <= start + 1e-9 and start < end <= 1
    assert max(bar.end for bar in still.bars) == pytest.approx(still.whole)
    assert "all-reduce" in words(svg(select(run.store)))


@pytest.mark.parametrize(
    ("joins", "long"),
    [
        ([], 100),
        ([(100, 110), (101, 108)], 110),
        ([(100, 170)], 115),
        ([(130, 170)], 145),  # late, on busy cores: it is seen to begin
        ([(500, 600)], 200),  # too late
    ],
)
def test_a_picture_is_as_long_as_it_takes_to_see_an_all_reduce_begin(
    joins: list[tuple[int, int]], long: int
) -> None:
    assert _span(100, joins) == long


def test_without_flush_an_iteration_ends_where_the_next_begins() -> None:
    run = wb.run(experiment("pipedream"))
    run.wait(60)
    still = piped(run.store)
    assert still.bars and all(0 <= bar.start <= bar.end <= 1 for bar in still.bars)
    assert "Iteration 3" in still.words, "it is not known where the last one ends"
    assert min(still.idle) < 0.5


def test_places_are_there_before_rows_and_a_run_without_stages_keeps_its_ring(
    store: Store,
) -> None:
    facts = store.metadata["pipeline"]
    empty = Store.from_frame(training(3).clear(), {"pipeline": facts})
    assert piped(empty) == Piped(2, (0, 1))
    texts = words(svg(select(empty)))
    assert "stage 1" in texts and "No iteration is complete yet." in texts
    assert select(Store.from_frame(training(3), {"experiment": ""})).selected is None
    assert json.loads(facts)["ranks"] == 2


def test_many_ranks_and_several_stages_a_rank_fit() -> None:
    bars = tuple(Bar(0, stage, "W", 3, 0.1, 0.4) for stage in (0, 20))
    many = Piped(20, (*range(20), 0), bars, (0.5,) * 20, "x")
    drawn = [ET.fromstring(mark) for mark in marks(many)]
    assert any(node.text == f"{20 - MOST} more ranks" for node in drawn)
    hues = [node for node in drawn if node.attrib.get("fill") == HUES[3]]
    tops = [float(node.attrib["y"]) for node in hues]
    assert len(set(tops)) == 2 and all(
        float(n.attrib["height"]) <= tops[1] - tops[0] + 0.1 for n in hues
    )
