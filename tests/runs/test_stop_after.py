"""A run that its experiment stops after a time of training: it ends well, on one iteration."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import workbench as wb
from tests.live import PATIENCE, lenet, of, training
from tests.pairwise import first
from tests.runs.steered import hold
from workbench.runs.conducting import STOPPED

MANY = 100_000  # iterations: more than there is time for


@pytest.mark.parametrize("strategy", first(2, ["gossip", "data_parallel", "ddp", "pipeline"]))
def test_all_ranks_stop_after_one_iteration_and_a_hold_does_not_count(strategy: str) -> None:
    exp = lenet(strategy=strategy, ranks=3, iterations=MANY, stop_after="0.6 s")
    with wb.run(exp) as run:
        training(run, 0)
        hold(run)
        time.sleep(1)
        assert not run.done and STOPPED not in run.store.metadata
        run.resume()
        result = run.wait(PATIENCE)
    assert result.ok and 0 < len(result.losses) < MANY
    assert run.store.metadata[STOPPED] == "after 0.6 s"
    updates = of(run.events, kind="optimizer")
    last = [of(updates, rank=rank)["iteration"].max() for rank in range(3)]
    assert last == [len(result.losses) - 1] * 3


def test_workers_that_do_not_wait_stop_too_and_iterations_are_still_a_limit() -> None:
    exp = lenet(
        strategy="parameter_server",
        options={"consistency": "asp"},
        ranks=3,
        iterations=MANY,
        stop_after="0.3 s",
    )
    assert wb.run(exp).wait(PATIENCE).ok
    run = wb.run(exp.replace(iterations=2, stop_after="10 min"))
    assert len(run.wait(PATIENCE).losses) == 2 and STOPPED not in run.store.metadata


def test_a_run_that_is_resumed_has_its_time_again(tmp_path: Path) -> None:
    kept = wb.Checkpoint(folder=str(tmp_path))
    exp = lenet(ranks=2, iterations=MANY, stop_after="0.3 s", checkpoint=kept)
    before = wb.run(exp).wait(PATIENCE).losses
    after = wb.run(exp.replace(resume=str(tmp_path))).wait(PATIENCE).losses
    assert after[: len(before)] == before and len(before) < len(after) < MANY
