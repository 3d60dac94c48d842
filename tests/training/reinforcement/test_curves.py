"""What a run with actors shows: returns, frames, ages and bytes, in charts and in comparisons."""

from __future__ import annotations

import time
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest

import workbench as wb
from tests.training.reinforcement.played import done, game, metric
from workbench.analysis import actors
from workbench.analysis.actor_charts import CHARTS, EMPTY, cell
from workbench.analysis.comparison import compared, first_reached
from workbench.analysis.curves import KINDS_SENT, PLAYED, Curves, select
from workbench.analysis.measures import MEASURES
from workbench.analysis.metric_rows import ROWS
from workbench.studies.comparison.comparison import Comparison
from workbench.studies.comparison.still import svg
from workbench.studies.comparison.trials import CURVE
from workbench.views.pages.figures import figure

SECOND = 10**9


def rows(metrics: list[tuple[int, str, float, float]]) -> pl.DataFrame:
    """Metrics (rank, name, value, seconds)."""
    each = [(rank, 0, name, value, round(at * SECOND)) for rank, name, value, at in metrics]
    return pl.DataFrame(each, schema=ROWS, orient="row")


# -- the columns --


def test_frames_are_those_of_all_actors_and_a_return_knows_how_many_came_before() -> None:
    events = rows(
        [
            (3, "frames", 10, 1.0),
            (4, "frames", 4, 1.5),
            (3, "return", 1.0, 1.7),
            (3, "frames", 20, 2.0),
            (4, "return", -1.0, 2.5),
        ]
    )
    assert actors.frames(events.sample(fraction=1, shuffle=True), 0)["frames"].to_list() == [
        10, 14, 24
    ]  # fmt: skip
    returns = actors.returns(events, SECOND)
    assert returns.schema == actors.RETURNS
    assert returns["seconds"].to_list() == pytest.approx([0.7, 1.5])
    assert returns["frames"].to_list() == [14, 24] and returns["rank"].to_list() == [3, 4]
    assert returns["mean"].to_list() == [1.0, 0.0]


def test_the_mean_is_of_the_newest_episodes() -> None:
    episodes = [(0, "return", float(at >= 5), at + 0.5) for at in range(5 + actors.EPISODES)]
    mean = actors.returns(rows([(0, "frames", 1, 0.0), *episodes]), 0)["mean"]
    assert mean[4] == 0 and mean[-1] == 1 and 0 < mean[10] < 1


def test_speed_and_ages_are_means_over_pieces_of_the_run() -> None:
    steady = [(0, "frames", 8.0 * n, n * 0.01) for n in range(1, 2001)]  # 800 per second
    aged = [(1, "sample age", 4.0, 3.0), (1, "sample age", 6.0, 3.01), (0, "policy lag", 2.0, 9.0)]
    table = actors.ages(rows(steady + aged), 0)
    assert table.schema == actors.AGES and table.height <= actors.PIECES
    assert table["frames_per_s"].to_numpy() == pytest.approx(800, rel=0.06)
    assert table["age"].fill_nan(None).drop_nulls().to_list() == [5.0]
    assert table["lag"].fill_nan(None).drop_nulls().to_list() == [2.0]
    assert actors.ages(rows([]), 0).is_empty()


# -- of a run --


@pytest.fixture(scope="module")
def played() -> wb.Run:
    fields = {"pull_every": 8, "pad_environment": "1 ms", "iterations": 60}
    return done(game("ape_x", 4, **fields))[0]


def test_a_runs_own_rows_piece_by_piece_or_at_once(played: wb.Run) -> None:
    live = Curves(played.store)
    live.update()
    assert {*PLAYED, KINDS_SENT} <= {*live.offered}
    for name in (*PLAYED, KINDS_SENT):
        assert live.select(name).equals(select(played.store, name), null_equal=True)
    episodes = metric(played.events, "return").filter(pl.col("iteration") >= 0)
    assert sorted(live.select("returns")["value"]) == sorted(episodes["value"])
    assert live.select(KINDS_SENT).equals(played.bytes_by_kind())


def test_batches_as_they_come_give_what_the_store_gives() -> None:
    run = wb.run(game("ape_x", 4, pull_every=8, pad_environment="1 ms", iterations=60))
    curves = Curves(run.store)
    while not run.done:
        time.sleep(0.05)
        curves.update()
    curves.update()
    for name in ("returns", KINDS_SENT):
        late = select(run.store, name)
        assert curves.select(name).equals(late) and late.height, name


def test_other_strategies_offer_none_of_it() -> None:
    run = wb.run(wb.Experiment(ranks=2, iterations=3))
    run.wait(timeout=90)
    curves = Curves(run.store)
    curves.update()
    assert not {*PLAYED, KINDS_SENT} & {*curves.offered}
    assert curves.select(KINDS_SENT).is_empty() and curves.select("returns").is_empty()


@pytest.mark.parametrize("name", CHARTS)
def test_each_chart_shows_what_it_says(played: wb.Run, name: str) -> None:
    columns = select(played.store, name)
    chart = cell(name, columns)
    assert EMPTY in cell(name, columns.clear()).title and EMPTY not in chart.title
    assert all(len(trace.x) == len(trace.y) for trace in chart.traces)
    drawing = figure(played.store, name, "dark")
    assert len(drawing.data) == len(chart.traces)
    if name == KINDS_SENT:
        sent, formula = chart.traces
        assert list(sent.x) == ["experience", "minibatch", "priorities", "parameters", "gradients"]
        assert sent.y[-1] == formula.y[-1] == 0, "Ape-X sends no gradient"


# -- compared --


def curve(returns: list[float | None], apart: float = 1.0) -> pl.DataFrame:
    n = range(len(returns))
    columns = {
        "iteration": n,
        "updates": [float(i) for i in n],
        "seconds": [apart * i for i in n],
        "loss": [1.0] * len(returns),
        "nbytes": [100 * i for i in n],
        "frames": [4 * i for i in n],
        "return": returns,
    }
    return pl.DataFrame(columns, schema=CURVE)


def test_what_plays_is_compared_by_returns_over_seconds_frames_and_bytes() -> None:
    seeds = [curve([None, -1.0, 0.0, 1.0]), curve([None, -1.0, 1.0, 1.0], apart=2.0)]
    cells = compared({"Ape-X": seeds, "alone": curve([None, -1.0, -1.0, 0.0])}, smooth=None)
    assert [one.chart.x for one in cells] == [
        "seconds", "frames of all actors", "bytes sent by all ranks"
    ]  # fmt: skip
    low, high, line, alone = cells[1].traces
    assert line.name == "Ape-X" and list(alone.x) == [4, 8, 12]
    assert low.y.min() == -1 and (low.y <= high.y).all() and not np.isnan(line.y).any()
    ElementTree.fromstring(svg(cells, "both"))
    with pytest.raises(ValueError, match=r"no axis 'epochs'; there are .*frames"):
        compared({"a": seeds}, by=["epochs"])


def test_beside_one_that_does_not_play_losses_are_compared() -> None:
    plain = curve([None, None])
    cells = compared({"plays": curve([None, 1.0]), "does not": plain}, by=["iterations"])
    assert cells[0].chart.y == "loss"


def test_where_a_return_is_first_reached() -> None:
    first = first_reached(curve([None, -1.0, 0.9, 0.2]), 0.9)
    assert first["seconds"] == 2 and first["frames"] == 8 and first["bytes"] == 200
    assert set(first_reached(curve([None, -1.0]), 0.9).values()) == {None}


@pytest.fixture(scope="module")
def both() -> Comparison:
    experiments = {
        "alone": game("sequential", iterations=40),
        "Ape-X": game("ape_x", 3, iterations=40, pull_every=8),
    }
    return wb.compare(experiments).wait(timeout=240)


@pytest.mark.full
def test_a_comparison_of_strategies_shows_returns(both: Comparison) -> None:
    for table in (each for curves in both.curves().values() for each in curves):
        known = table.drop_nulls("return")
        assert table.schema == CURVE and known.height
        assert known["frames"].is_sorted() and known["return"].is_between(-1, 1).all()
    assert len(both.figure().layout.annotations) == 3
    assert {"Returns" in one.text for one in both.figure("frames").layout.annotations} == {True}
    assert both.reached(-1.0)["frames"].null_count() == 0
    measured = both.runs
    assert set(measured["algorithm"]) == {""}, "no all-reduce, no schedule"
    assert measured["score"].is_between(-1, 1).all() and (measured["frames_per_s"] > 0).all()
    assert (measured["sample_age"] > 0).all() and "policy_lag" in MEASURES
