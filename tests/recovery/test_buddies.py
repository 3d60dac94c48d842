"""A lost rank of a divided model is replaced from the next rank's copy: no bit differs."""

from __future__ import annotations

import functools
import random
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import workbench as wb
from tests.live import LONG, lenet, training
from tests.pairwise import first
from tests.recovery.lasting import recovered
from workbench.store.recoveries import recoveries_of

ALL = 9
DIVIDED: list[tuple[str, int, dict[str, Any]]] = [
    ("pipeline", 3, {}),
    ("tensor_parallel", 2, {}),
    ("fsdp", 3, {}),
    ("pipeline", 4, {"schedule": "gpipe", "replicas": 2}),
    ("pipeline", 2, {"schedule": "interleaved_1f1b", "stages_per_rank": 2}),
    ("fsdp", 2, {"units": "whole"}),
    ("zero", 3, {}),
    ("zero", 2, {"zero": 2, "accumulate": 2}),
]


def divided(strategy: str, ranks: int, options: dict[str, Any], **fields: Any) -> wb.Experiment:
    """Return a run with Adam, which has a state."""
    base = {"optimizer": "adam", "iterations": ALL}
    return lenet(strategy=strategy, ranks=ranks, options=options, **{**base, **fields})


@functools.cache
def _whole(text: str) -> wb.Result:
    return wb.run(wb.Experiment.from_yaml(text)).wait(timeout=90)


def assert_as_uninterrupted(exp: wb.Experiment, result: wb.Result) -> None:
    whole = _whole(exp.replace(recovery="abort", faults=(), checkpoint=None).to_yaml())
    assert result.losses == whole.losses and result.digests == whole.digests


@pytest.mark.parametrize("every", first(1, [1, 3]))
@pytest.mark.parametrize(("strategy", "ranks", "options"), first(1, DIVIDED), ids=str)
def test_a_replaced_rank_goes_on_with_its_buddys_copy(
    strategy: str, ranks: int, options: dict[str, Any], every: int
) -> None:
    kills = [wb.Kill(rank=0, at_iteration=3), wb.Kill(rank=ranks - 1, at_iteration=7)]
    options = {**options, "buddy_every": every}
    exp = divided(strategy, ranks, options, recovery="replace", faults=kills)
    run = wb.run(exp)
    result = run.wait(timeout=90)
    assert_as_uninterrupted(exp.replace(options=options), result)
    recoveries, measured = recoveries_of(run.store.metadata), run.recovery()
    assert [one.fresh for one in recoveries] == [(0,), (ranks - 1,)]
    assert {one.sources for one in measured} == {("buddy",)}
    assert all(one.iteration % every == 0 for one in recoveries)
    assert all(one.iterations_lost <= every for one in measured)
    rows = run.events.filter(pl.col("kind").cast(pl.String) == "restore")
    received = rows.filter(pl.col("name").cast(pl.String) == "received")
    assert received.sort("generation")["rank"].to_list() == [0, ranks - 1]


@pytest.mark.full
@pytest.mark.parametrize("seed", first(1, range(12)))
def test_lost_at_any_moment_it_takes_nothing_along(seed: int) -> None:
    draw = random.Random(seed)
    strategy, ranks, options = draw.choice(DIVIDED)
    options = {**options, "buddy_every": draw.choice([1, 2, 5])}
    exp = divided(strategy, ranks, options, recovery="replace", iterations=LONG)
    run = wb.run(exp)
    training(run, 2)
    time.sleep(draw.uniform(0, 0.3))
    run.kill(draw.randrange(ranks))
    result = recovered(run)
    assert_as_uninterrupted(exp.replace(iterations=len(result.losses)), result)


@pytest.mark.full
@pytest.mark.parametrize("strategy", first(1, ["fsdp", "tensor_parallel", "pipeline"]))
def test_lost_before_the_first_copy_it_takes_nothing_along(strategy: str) -> None:
    exp = divided(strategy, 2, {}, recovery="replace", iterations=3)
    result = wb.run(exp.replace(faults=wb.Kill(rank=1, at_iteration=0))).wait(timeout=90)
    assert_as_uninterrupted(exp, result)


@pytest.mark.full
@pytest.mark.parametrize("strategy", first(1, ["tensor_parallel", "fsdp", "pipeline"]))
def test_lost_as_a_resumed_run_begins_it_takes_nothing_along(strategy: str, tmp_path: Path) -> None:
    exp = divided(strategy, 2, {}, iterations=2)
    wb.run(exp.replace(checkpoint=wb.Checkpoint(folder=str(tmp_path), every=2))).wait(timeout=90)
    resumed = exp.replace(resume=str(tmp_path), iterations=4)
    whole = wb.run(resumed).wait(timeout=90)
    kill = wb.Kill(rank=1, at_iteration=2)
    result = wb.run(resumed.replace(recovery="replace", faults=kill)).wait(timeout=90)
    assert result.losses == whole.losses and result.digests == whole.digests


@pytest.mark.full
def test_neighbors_lost_at_once_go_back_to_the_checkpoint_or_end_the_run(tmp_path: Path) -> None:
    """Each had the other's copy, or none has any."""
    kills = [wb.Kill(rank=rank, at_iteration=5) for rank in (0, 1)]
    exp = divided("fsdp", 2, {"buddy_every": 0}, recovery="replace", faults=kills[:1])
    with pytest.raises(wb.PeerLost, match=r"what ranks \[0, 1\] trained is lost") as failed:
        wb.run(exp).wait(timeout=60)
    assert (failed.value.rank, failed.value.how, failed.value.code) == (0, "killed", -9)
    assert failed.value.doing == "iteration 6"
    plan = wb.Checkpoint(folder=str(tmp_path), every=2, background=False)
    run = wb.run(exp.replace(checkpoint=plan))
    assert_as_uninterrupted(exp, run.wait(timeout=90))
    (recovery,) = recoveries_of(run.store.metadata)
    assert recovery.iteration == 4


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"strategy": "pipeline", "recovery": "shrink"},
            "recovery='replace' or recovery='restart'",
        ),
        ({"strategy": "fsdp", "recovery": "wait"}, "recovery='replace' or recovery='restart'"),
        ({"strategy": "fsdp", "options": {"buddy_every": -1}}, "must be 0"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(wb.SpecError, match=words):
        lenet(**fields)


def test_a_schedule_without_flush_has_no_boundary() -> None:
    exp = lenet(strategy="pipeline", options={"schedule": "pipedream"}, recovery="replace")
    with pytest.raises(wb.SpecError, match="no copy holds them"):
        wb.run(exp)
