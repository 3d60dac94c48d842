"""A rank that is frozen or cut off is waited for up to the timeout, then evicted."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import polars as pl
import pytest

import workbench as wb
from tests.live import LONG, gone, lenet, over_in_the_end, training, until
from tests.pairwise import first
from tests.recovery.lasting import ended, recovered
from tests.recovery.test_policies import assert_as_sequential, experiment, kinds
from workbench.rank.unreachable import cut_off
from workbench.shared_memory.control_block import Control
from workbench.store.recoveries import recoveries_of


@pytest.mark.parametrize("strategy", first(1, ["data_parallel", "ddp", "fusion"]))
def test_a_rank_that_the_user_freezes_for_too_long_is_evicted(strategy: str) -> None:
    freeze = wb.Freeze(rank=1, at_iteration=4, seconds=600)
    run = wb.run(experiment(strategy, 3, recovery="wait", timeout="2 s", faults=freeze))
    pid = run.pids[1]
    result = run.wait(timeout=90)
    assert_as_sequential(run, result, {0, 2})
    (recovery,) = recoveries_of(run.store.metadata)
    assert recovery.lost == {"1": "evicted"} and recovery.members == (0, 2)
    fault = kinds(run, "fault").row(0, named=True)
    notices = kinds(run, "detect").filter(pl.col("peer") == 1, pl.col("rank") == -1)
    assert notices["name"].to_list() == ["evicted", "killed"]
    waited = (notices["start_ns"][0] - fault["start_ns"]) / 1e9
    assert waited >= 2, "waited for, up to the timeout"
    assert gone([pid]) and run.control_state.frozen == ()


def test_a_rank_that_is_back_in_time_has_missed_nothing() -> None:
    exp = experiment("data_parallel", 3, recovery="wait", timeout="60 s", iterations=LONG)
    run = wb.run(exp)
    training(run, 2)
    run.freeze(1)
    time.sleep(0.3)
    run.thaw(1)
    os.kill(run.pids[2], signal.SIGSTOP)
    run.link(0, 1, down=True)
    time.sleep(0.3)
    run.link(0, 1, down=False)
    os.kill(run.pids[2], signal.SIGCONT)
    at = run.iteration
    until(lambda: run.done or run.iteration > at + 2, 60, "they train")
    assert_as_sequential(run, ended(run), {0, 1, 2}, stopped=True)
    assert recoveries_of(run.store.metadata) == []


def test_of_a_partition_the_larger_part_goes_on() -> None:
    exp = experiment("data_parallel", 4, recovery="wait", timeout="2 s", iterations=LONG)
    run = wb.run(exp)
    training(run, 2)
    for other in (0, 2, 3):
        run.link(1, other, down=True, both=True)
    assert_as_sequential(run, recovered(run), {0, 2, 3}, stopped=True)
    assert [one.lost for one in recoveries_of(run.store.metadata)] == [{"1": "evicted"}]


@pytest.mark.full
def test_a_cut_link_that_is_not_used_costs_no_rank() -> None:
    exp = experiment("data_parallel", 4, recovery="wait", timeout="2 s", iterations=LONG)
    with over_in_the_end(wb.run(exp)) as run:
        training(run)
        run.link(0, 2, down=True, both=True)  # the ring is 0 -> 1 -> 2 -> 3 -> 0
        begin = time.monotonic()
        while time.monotonic() - begin < 5:
            here = run.iteration
            until(lambda at=here: run.iteration > at, 30, "the ranks train")
        run.stop()
        result = run.wait(timeout=60)
    assert set(result.digests) == {0, 1, 2, 3} and not recoveries_of(run.store.metadata)


@pytest.mark.full
def test_a_link_that_is_cut_is_waited_for_by_this_policy_only() -> None:
    run = wb.run(experiment("data_parallel", 2, recovery="shrink", timeout="1 s", iterations=LONG))
    training(run, 2)
    run.link(0, 1, down=True)
    with pytest.raises(wb.RunTimeout, match="no progress for"):
        run.wait(timeout=60)


@pytest.mark.parametrize(
    ("ranks", "cut", "evicted"),
    [
        (4, [], []),
        (3, [(0, 1)], [1]),  # in one direction; of equals the higher
        (5, [(a, b) for a in (0, 1, 2) for b in (3, 4)], [4, 3]),
        (5, [(a, b) for a in (0, 1) for b in (2, 3, 4)], [1, 0]),
        (4, [(a, b) for a in (0, 1) for b in (2, 3)], [3, 2]),
        (4, [(0, 1), (2, 3)], [3, 1]),
    ],
)
def test_those_go_without_which_no_link_is_cut(
    ranks: int, cut: list[tuple[int, int]], evicted: list[int]
) -> None:
    control = Control.create(ranks)
    for a, b in cut:
        control.set_link(a, b, down=True)
    assert cut_off(control, range(ranks)) == evicted


@pytest.mark.full
def test_a_freeze_by_the_user_stops_the_clocks_of_every_other_policy() -> None:
    exp = experiment("data_parallel", 2, recovery="shrink", timeout="0.5 s", iterations=LONG)
    run = wb.run(exp)
    training(run, 2)
    run.freeze(1)
    time.sleep(2.5)
    run.thaw(1)
    assert_as_sequential(run, ended(run), {0, 1}, stopped=True)


@pytest.mark.parametrize("fields", [{"strategy": "fsdp"}, {"strategy": "pipeline"}])
def test_what_does_not_fit_is_refused_by_name(fields: dict[str, Any]) -> None:
    with pytest.raises(wb.SpecError, match="'wait' goes on with what survivors have in memory"):
        lenet(recovery="wait", **fields)
