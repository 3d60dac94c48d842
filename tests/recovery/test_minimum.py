"""A run with a minimum and a maximum of ranks begins with those that come, and others join."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

import workbench as wb
from tests.live import LONG, gone, lenet, until
from tests.recovery.lasting import ended, generations, wait_for
from tests.recovery.test_elastic import lasting
from tests.recovery.test_policies import assert_as_sequential, experiment, kinds
from workbench.runs.starting import Starter

Signaled = Callable[[dict[int, signal.Signals]], None]


@pytest.fixture
def at_start(monkeypatch: pytest.MonkeyPatch) -> Signaled:
    """Return a function that has processes signaled before they know which rank they are."""
    order = Starter._order

    def signaled(to: dict[int, signal.Signals]) -> None:
        def signal_first(starter: Any, handle: Any, team: Any) -> None:
            if handle.rank in to:
                os.kill(handle.pid, to.pop(handle.rank))
            order(starter, handle, team)

        monkeypatch.setattr(Starter, "_order", signal_first)

    return signaled


def test_training_begins_with_those_that_came_and_a_late_one_joins(at_start: Signaled) -> None:
    at_start({2: signal.SIGSTOP})
    run = wb.run(lasting("data_parallel", (2, 3), grace="0.5 s"))
    until(lambda: run.done or (run.iteration < LONG and run.iteration > 3), 60, "two ranks train")
    assert run._supervisor.regrouping.team.members == (0, 1)
    os.kill(run.pids[2], signal.SIGCONT)
    wait_for(run, 1)
    assert_as_sequential(run, ended(run), {0, 1, 2}, stopped=True)
    (joined,) = generations(run)
    assert joined.fresh == (2,) and joined.lost == {} and run.result.lost == []
    notices = kinds(run, "detect").filter(pl.col("rank") == -1)
    assert notices.select("name", "peer").rows() == [("absent", 2), ("arrived", 2)]
    assert run.recovery().absent == {2: "had not started within 0.5 s"}
    assert "training began without rank 2, which had not" in repr(run.recovery())


def test_a_rank_that_never_starts_is_named_and_gone_without(at_start: Signaled) -> None:
    at_start({1: signal.SIGKILL, 2: signal.SIGSTOP})
    exp = experiment("data_parallel", (2, 4), recovery="replace", grace="0.5 s")
    run = wb.run(exp)
    pids = [*run.pids.values()]
    result = run.wait(timeout=90)
    assert_as_sequential(run, result, {0, 3})
    assert result.lost == [1, 2] and gone(pids)
    notices = kinds(run, "detect").filter(pl.col("rank") == -1)
    assert set(notices.select("name", "peer").rows()) == {("killed", 1), ("absent", 2)}
    words = {1: "was killed by SIGKILL", 2: "had not started within 0.5 s"}
    assert run.recovery().absent == words and not generations(run)


def test_where_too_few_come_the_run_ends_and_says_which_is_missing(at_start: Signaled) -> None:
    at_start({1: signal.SIGKILL})
    run = wb.run(experiment("data_parallel", (3, 3), recovery="shrink"))
    pids = [*run.pids.values()]
    words = r"^2 ranks can start, and the run needs 3 \(ranks=\(3, 3\)\): rank 1 was killed by"
    with pytest.raises(wb.TooFewRanks, match=words) as caught:
        run.wait(timeout=60)
    assert caught.value.rank == 1 and gone(pids)


def test_below_the_minimum_the_run_ends() -> None:
    kills = [wb.Kill(rank=0, at_iteration=2), wb.Kill(rank=2, at_iteration=4)]
    run = wb.run(experiment("ddp", (2, 3), recovery="shrink", grace="100 s", faults=kills))
    with pytest.raises(wb.TooFewRanks, match=r"^1 rank can go on, and .* Lost: rank 2 \(killed\)"):
        run.wait(timeout=60)
    assert [one.members for one in generations(run)] == [(1, 2)]


def test_no_rank_is_removed_below_the_minimum() -> None:
    run = wb.run(lasting("data_parallel", (2, 2)))
    with pytest.raises(wb.SpecError, match=r"2 ranks train .* and the run needs 2"):
        run.remove_rank(1)
    assert ended(run).ok


def test_a_pair_is_the_minimum_and_the_maximum() -> None:
    exp = lenet(ranks=(2, 6), recovery="shrink", grace="2 s")
    assert (exp.min_ranks, exp.ranks) == (2, 6)
    assert exp == lenet(ranks=6, min_ranks=2, recovery="shrink", grace="2 s")
    assert wb.Experiment.from_yaml(exp.to_yaml()) == exp
    assert wb.Experiment.from_json(exp.to_json()) == exp
    text = "strategy: ddp\nranks: [1, 3]\nrecovery: wait\n"
    assert wb.Experiment.from_yaml(text).ranks == 3
    assert exp.replace(ranks=(3, 4)).min_ranks == 3 and exp.replace(ranks=5).min_ranks == 2


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"ranks": (6, 2)}, r"ranks = \(6, 2\): the minimum, 6, is above the maximum, 2"),
        ({"ranks": (2, 3, 4)}, r"the fewest and the most, such as \(2, 6\)"),
        ({"ranks": (2.5, 4)}, "the fewest and the most"),
        ({"ranks": (True, 4)}, "the fewest and the most"),
        ({"ranks": (0, 4)}, "min_ranks"),
        ({"ranks": (2, 10**6)}, "ranks = 1000000"),
        ({"ranks": (2, 4), "recovery": "abort"}, r"ranks=\(2, 4\) may come and go. ranks come"),
        ({"ranks": (2, 4), "strategy": "fsdp"}, "takes something along that no other has"),
        (
            {"ranks": (2, 4), "recovery": "replace", "options": {"examples": "partitioned"}},
            "examples",
        ),
        ({"ranks": (2, 4), "grace": "soon"}, "grace"),
    ],
)
def test_impossible_numbers_are_refused_before_anything_starts(
    fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(wb.SpecError, match=words):
        lenet(**{"recovery": "shrink", **fields})
