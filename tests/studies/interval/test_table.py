"""The arithmetic of wb.interval on runs that are made up, and on rows that are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import workbench as wb
from workbench.studies.interval.cases import cases, kills
from workbench.studies.interval.reading import Measured, iteration_seconds, measure
from workbench.studies.interval.table import Costs, best_of, costs_of, table_of
from workbench.studies.interval.words import sentences

MS = 1_000_000
THERE = Path("/there")


def replayed(every: int, costs: Costs, iterations: int, seed: int) -> Measured:
    """Return what a run would measure on a machine without noise: its kills, one after another."""
    t, lost = costs.iteration, []
    for kill in kills(iterations, 4, costs.mtbf / t, seed):
        lost.append(kill.at_iteration % every * t)
    checkpoints = (costs.checkpoint,) * ((iterations - 1) // every)
    recovery = (costs.restart,) * len(lost)
    seconds = iterations * t + sum(checkpoints) + sum(lost) + sum(recovery)
    return Measured(every, iterations, seconds, checkpoints, tuple(lost), recovery)


@pytest.mark.parametrize("checkpoint", [0.002, 0.02, 0.1])
@pytest.mark.parametrize("mtbf", [2.0, 8.0])
def test_the_best_interval_of_replayed_runs_is_youngs_within_two_times(
    checkpoint: float, mtbf: float
) -> None:
    costs = Costs(iteration=0.01, checkpoint=checkpoint, restart=0.3, mtbf=mtbf)
    every = sorted({max(1, round(costs.young * times)) for times in 2.0 ** np.arange(-4, 4.1, 0.5)})
    runs = [replayed(one, costs, 20_000, seed) for seed in range(5) for one in every]
    table = table_of(runs, costs_of(runs, costs.iteration, mtbf))
    best = best_of(table)
    assert best is not None and costs.young / 2 <= best <= 2 * costs.young
    assert table["seconds"].to_numpy() == pytest.approx(table["expected_s"].to_numpy(), rel=0.15)
    assert costs_of(runs, costs.iteration, mtbf) == costs
    parts = sum(table[name].to_numpy() for name in ("checkpoint_s", "lost_s", "recovery_s"))
    assert table["seconds"].to_numpy() == pytest.approx(costs.iteration + parts, rel=0.02)


def test_failures_are_a_seeds_own_and_come_as_often_as_asked() -> None:
    drawn = [len(kills(100_000, 4, 50.0, seed)) for seed in range(3)]
    assert drawn == pytest.approx([2000] * 3, rel=0.1) and len({*drawn}) == 3
    assert kills(500, 4, 50.0, 1) == kills(500, 4, 50.0, 1)
    more = kills(1000, 4, 50.0, 1)
    assert more[: len(kills(500, 4, 50.0, 1))] == kills(500, 4, 50.0, 1)
    assert {one.rank for one in more} == {0, 1, 2, 3}
    at = [one.at_iteration for one in kills(1000, 4, 0.5, 1)]
    assert at == sorted({*at})  # two in one iteration are one
    gaps = np.diff([one.at_iteration for one in kills(100_000, 4, 50.0, 1)])
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.1)  # as exponential times are


def test_intervals_of_one_seed_have_the_same_failures() -> None:
    plan = wb.Checkpoint(folder="c", every=7, keep=3, background=False)
    exp = wb.Experiment(iterations=100, checkpoint=plan)
    plan_cases = cases(exp, (2, 5), (0, 1), THERE, 0.1, 2.0)
    assert [one.name for one in plan_cases] == [
        "every 2, seed 0",
        "every 5, seed 0",
        "every 2, seed 1",
        "every 5, seed 1",
    ]
    first, second, other, _ = (one.experiment for one in plan_cases)
    assert first.faults == second.faults != other.faults and first.recovery == "restart"
    plans = [one.experiment.checkpoint for one in plan_cases]
    assert [one.every for one in plans if one] == [2, 5, 2, 5]
    assert len({one.folder for one in plans if one}) == 4
    assert {(one.keep, one.background) for one in plans if one} == {(3, False)}
    with pytest.raises(wb.WorkbenchError, match="nothing would get done"):
        cases(exp, (2,), (0,), THERE, 0.1, 0.1)
    with pytest.raises(wb.WorkbenchError, match="ends a run after 100"):
        cases(exp.replace(iterations=5000), (2,), (0,), THERE, 0.1, 2.0)


# ---- reading rows


def rows(*each: tuple[str, str, int, int, int, int, int]) -> pl.LazyFrame:
    """Return an event table: kind, name, rank, generation, iteration, start, end (ms)."""
    names = ("kind", "name", "rank", "generation", "iteration", "start_ns", "end_ns")
    frame = pl.DataFrame([dict(zip(names, one, strict=True)) for one in each])
    in_ns = frame.with_columns(pl.col("start_ns", "end_ns") * MS, peer=pl.lit(-1))
    return in_ns.lazy()


RECOVERED = (
    '[{"generation": 1, "lost": {"1": "killed"}, "failed_in": 3, "iteration": 2, '
    '"members": [0, 1], "fresh": [1], "state": "checkpoint"}]'
)
RUN = rows(
    ("forward", "", 0, 0, 0, 0, 10),
    ("forward", "", 0, 0, 1, 10, 20),
    ("checkpoint", "copy", 0, 0, 2, 20, 21),
    ("checkpoint", "copy", 1, 0, 2, 20, 22),
    ("checkpoint", "write", 0, 0, 2, 21, 400),
    ("checkpoint", "wait", 0, 0, 2, 21, 26),
    ("checkpoint", "wait", 1, 0, 2, 22, 25),
    ("forward", "", 0, 0, 2, 26, 36),
    ("checkpoint", "copy", 0, 0, 3, 36, 38),  # not whole as the rank was killed: lost work
    ("fault", "kill", 1, 0, 3, 40, 40),
    ("forward", "", 0, 0, 3, 40, 44),
    ("forward", "", 0, 1, 2, 140, 150),
    ("checkpoint", "copy", 0, 1, 3, 150, 157),
    ("forward", "", 0, 1, 3, 157, 170),
    ("checkpoint", "copy", 0, 1, 4, 170, 175),  # the last one, after training
)


def test_a_runs_time_is_taken_apart() -> None:
    measured = measure(RUN, {"recoveries": RECOVERED}, 1, 4)
    assert measured is not None and measured.seconds == pytest.approx(0.170)
    assert measured.checkpoints == pytest.approx((0.006, 0.007))
    assert measured.lost == pytest.approx((0.014,)) and measured.recovery == pytest.approx((0.100,))
    useful = measured.seconds - sum(measured.checkpoints) - 0.114
    assert useful == pytest.approx(0.043)
    [row] = table_of([measured], None).to_dicts()
    assert row["failures"] == 1 and row["seconds"] == pytest.approx(0.170 / 4)
    assert row["expected_s"] is None


def test_without_failures_nothing_is_lost_and_without_rows_nothing_is_known() -> None:
    measured = measure(RUN.filter(pl.col("generation") == 0), {}, 1, 4)
    assert measured is not None and (measured.lost, measured.recovery) == ((), ())
    assert measure(RUN.filter(pl.col("kind") == "fault"), {}, 1, 4) is None


def test_an_iterations_time_leaves_checkpoints_out() -> None:
    alone = RUN.filter(pl.col("generation") == 0, pl.col("kind") != "fault")
    assert iteration_seconds(alone) == pytest.approx(0.011)  # of 16 - 6 and 14 - 2
    assert iteration_seconds(alone.filter(pl.col("iteration") < 2)) is None


def test_an_iterations_time_is_that_of_those_without_a_checkpoint() -> None:
    """A checkpoint of one rank may take longer than another one needs for all of an iteration."""
    forward = [("forward", "", 0, 0, i, 10 * i, 10 * i + 9) for i in range(8)]
    waits = [("checkpoint", "wait", 1, 0, i, 10 * i - 13, 10 * i) for i in (3, 4, 5, 6)]
    assert iteration_seconds(rows(*forward, *waits)) == pytest.approx(0.010)


def test_sentences_say_how_near_to_young_it_is_and_what_is_missing() -> None:
    costs = Costs(iteration=0.01, checkpoint=0.02, restart=0.3, mtbf=2.0)
    near = [replayed(every, costs, 3000, 0) for every in (2, 28, 400)]
    text = " ".join(sentences(table_of(near, costs), costs))
    assert "Young: a checkpoint every 283 ms of training, 28.3 iterations" in text
    assert "every 28 iterations" in text and "within a factor of 2 of Young's" in text
    outside = sentences(table_of(near[:1], costs), costs)
    assert "a factor of 14.1 from Young's" in outside[2] and "sweep around it" in outside[3]
    none = [Measured(5, 100, 1.0, (0.02,))]
    assert "No failure was drawn" in " ".join(sentences(table_of(none, costs), costs))
    assert sentences(table_of([], None), None) == []


def test_a_checkpoints_cost_is_the_median_of_intervals() -> None:
    runs = [
        Measured(1, 9, 1.0, (5.0,) * 8),
        Measured(3, 9, 1.0, (1.0,)),
        Measured(4, 9, 1.0, (2.0,)),
    ]
    costs = costs_of(runs, 0.1, 2.0)
    assert costs is not None and (costs.checkpoint, costs.restart) == (2.0, 0.0)
    assert costs_of([], 0.1, 2.0) is costs_of(runs, None, 2.0) is None
