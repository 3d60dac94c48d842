"""Ranks that come and go while a run trains: what is trained is as if uninterrupted."""

from __future__ import annotations

import random
from typing import Any

import polars as pl
import pytest

import workbench as wb
from tests.live import LONG, gone, lenet, over_in_the_end, training, until
from tests.pairwise import first
from tests.recovery.lasting import ended, generations, wait_for
from tests.recovery.test_policies import assert_as_sequential, experiment, kinds
from workbench.runs.member_table import Event, Mark, MemberTable


def lasting(strategy: str, ranks: int | tuple[int, int], **fields: Any) -> wb.Experiment:
    """Return a run that goes on until it is stopped, of few iterations per second."""
    long = {"iterations": LONG, "batch_size": 12, "pad_compute": "10 ms", "recovery": "shrink"}
    return experiment(strategy, ranks, **{**long, **fields})


@pytest.mark.parametrize("policy", first(1, ["shrink", "replace"]))
@pytest.mark.parametrize(
    ("strategy", "options"),
    first(1, [("data_parallel", {}), ("ddp", {"bucket_cap_mb": 0.05}), ("fusion", {})]),
    ids=str,
)
def test_a_rank_leaves_for_good_and_another_joins_at_a_boundary(
    strategy: str, options: dict[str, Any], policy: str
) -> None:
    run = wb.run(lasting(strategy, 3, options=options, recovery=policy))
    training(run, 2)
    removed = run.pids[1]
    run.remove_rank(1)
    wait_for(run, 1)
    assert generations(run)[0].members == (0, 2) and gone([removed])
    assert run.add_rank() == 1
    wait_for(run, 2)
    assert_as_sequential(run, ended(run), {0, 1, 2}, stopped=True)
    left, joined = generations(run)
    assert left.lost == {"1": "removed"} and left.fresh == ()
    assert joined.lost == {} and joined.fresh == (1,) and joined.members == (0, 1, 2)
    assert joined.failed_in == joined.iteration

    rows = kinds(run, "restore").filter(pl.col("generation") == 2)
    received = rows.filter(pl.col("name") == "received")
    assert received["rank"].to_list() == [1], "the others have it all"
    faults = kinds(run, "fault").filter(pl.col("rank") == -1)
    assert faults.select("name", "peer").rows() == [("remove", 1), ("add", 1)]
    notices = kinds(run, "detect").filter(pl.col("rank") == -1)
    assert notices.select("name", "peer").rows() == [("ended", 1), ("arrived", 1)]
    detection = run.detection()
    assert [one.fault for one in detection.each] == ["remove"] and not detection.missed
    assert not [one for one in detection.false_alarms if one.name != "stalled"], detection
    first_left, then_joined = run.recovery()
    assert first_left.words.startswith("rank 1 was removed in iteration")
    assert then_joined.words.startswith("rank 1 joined in iteration")
    assert then_joined.joined == (1,) and then_joined.samples_repeated == 0
    assert then_joined.first_ms is not None and then_joined.first_ms > 0
    updates = kinds(run, "optimizer").group_by("rank", "iteration").len()
    assert updates["len"].max() == 1, "no gradient is applied twice"


@pytest.mark.full
@pytest.mark.parametrize("strategy", first(1, ["local_sgd", "diloco", "gossip"]))
def test_replicas_that_differ_take_in_another_where_they_agree(strategy: str) -> None:
    options = {} if strategy == "gossip" else {"every": 4}
    run = wb.run(lasting(strategy, 3, options=options, optimizer="sgd"))
    training(run, 2)
    run.remove_rank(2)
    wait_for(run, 1, 5)
    run.add_rank()
    wait_for(run, 2, 5)
    result = ended(run)
    assert len(set(result.digests.values())) == 1 and set(result.digests) == {0, 1, 2}
    assert len(result.losses) > generations(run)[1].iteration
    joined = generations(run)[1]
    assert joined.fresh == (2,) and joined.failed_in == joined.iteration
    if strategy != "gossip":
        assert joined.iteration % 4 == 0, "at the end of a round"
    assert run.recovery()[1].samples_repeated == 0


@pytest.mark.full
@pytest.mark.parametrize("policy", ["shrink", "replace", "wait", "quorum"])
@pytest.mark.parametrize("strategy", ["data_parallel", "ddp", "local_sgd"])
def test_ranks_that_are_told_to_go_leave_at_a_boundary_of_all(strategy: str, policy: str) -> None:
    """Two of four, rank 0 among them, one after the other: nothing is given up or taken twice."""
    options = {"every": 3} if strategy == "local_sgd" else {}
    run = wb.run(lasting(strategy, 4, recovery=policy, options=options))
    with over_in_the_end(run):
        training(run, 2)
        for number, rank in enumerate((2, 0), 1):
            run.preempt(rank)
            wait_for(run, number)
            assert [*generations(run)[number - 1].lost] == [str(rank)]
            if policy != "replace":
                pid = run.pids[rank]
                until(lambda pid=pid: gone([pid]), 20, "its end")
        result = ended(run)
    for one in generations(run):
        assert one.failed_in == one.iteration
    assert [one.samples_repeated for one in run.recovery()] == [0, 0]
    assert len(set(result.digests.values())) == 1
    updates = kinds(run, "optimizer").group_by("rank", "iteration").len()
    assert updates["len"].max() == 1
    faults = kinds(run, "fault")
    assert faults.filter(name="preempted")["rank"].to_list() == [2, 0]
    detection = run.detection()
    assert not detection.missed, detection


@pytest.mark.full
@pytest.mark.parametrize("seed", range(4))
def test_ranks_come_and_go_at_any_moment_and_some_are_killed(seed: int) -> None:
    draw = random.Random(seed)
    strategy = draw.choice(["data_parallel", "ddp", "fusion"])
    run = wb.run(lasting(strategy, 4))
    with over_in_the_end(run):
        training(run, 2)
        for number in range(1, 9):
            members = [*run._supervisor.regrouping.team.members]
            act = draw.choice(["add", "remove", "kill"])
            if len(members) == 4 or (act != "add" and len(members) > 2):
                victim = draw.choice(members)
                run.kill(victim) if act == "kill" else run.remove_rank(victim)
            else:
                run.add_rank()
            wait_for(run, number, draw.randrange(3))
        result = ended(run)
    assert_as_sequential(run, result, {*generations(run)[-1].members}, stopped=True)
    updates = kinds(run, "optimizer").group_by("rank", "iteration").len()
    assert updates["len"].max() == 1, "no gradient is applied twice"


def test_a_rank_that_dies_before_it_joins_is_named_and_gone_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = wb.run(lasting("data_parallel", 2))
    ranks, note = run._ranks, run._ranks.note
    monkeypatch.setattr(  # just as it reports
        ranks, "note", lambda rank, what: run.kill(rank) if what == "arrived" else note(rank, what)
    )
    training(run, 2)
    run.remove_rank(0)
    wait_for(run, 1)
    pid = run.pids[0]
    assert run.add_rank() == 0
    until(lambda: run.pids[0] != pid and gone([run.pids[0]]), 60, "it comes, and dies")
    until(lambda: not run._supervisor.regrouping.table.outside, 60, "it is noticed")
    here = run.iteration
    until(lambda: run.iteration > here + 3, 60, "the other trains")
    assert_as_sequential(run, ended(run), {1}, stopped=True)
    notices = kinds(run, "detect").filter(pl.col("rank") == -1, pl.col("peer") == 0)
    assert notices["name"].to_list() == ["ended", "killed"]
    assert generations(run)[-1].members == (1,)


def test_a_strategy_whose_ranks_cannot_come_or_go_is_refused_by_name() -> None:
    exp = experiment("data_parallel", 2, recovery="shrink", iterations=LONG)
    with over_in_the_end(wb.run(exp)) as run:
        training(run, 1)
        with pytest.raises(wb.SpecError, match=r"all 2 ranks .* room for more: ranks=\(1, 3\)"):
            run.add_rank()
        with pytest.raises(wb.SpecError, match=r"remove_rank\(7\): it does not train; ranks \[0"):
            run.remove_rank(7)
        run.remove_rank(1)
        with pytest.raises(wb.SpecError, match="about to leave, and the run needs 1"):
            run.remove_rank(0)
    with pytest.raises(wb.SpecError, match=r"add_rank\(\): the run is over"):
        run.add_rank()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "take recovery='shrink', 'replace', 'wait' or 'quorum'"),
        (
            {"recovery": "replace", "options": {"examples": "partitioned"}},
            "are lost with the rank that has them",
        ),
    ],
)
def test_a_run_whose_ranks_cannot_change_says_so(fields: dict[str, Any], words: str) -> None:
    run = wb.run(lenet(**fields))
    for change in (run.add_rank, lambda: run.remove_rank(1)):
        with pytest.raises(wb.SpecError, match=words):
            change()
    assert run.wait(timeout=60).ok


def test_a_number_is_given_once() -> None:
    one = MemberTable()
    assert [one.want(4, (0, 2)) for _ in range(3)] == [1, 3, None]
    assert one.expect() == [1, 3] and one.expect() == [] and one.want(4, (0, 2)) is None
    one.note(Event.ARRIVE, 3)
    one.note(Event.FORGET, 1)
    assert one.waiting == {3} and one.outside == {3} and one.want(4, (0, 2)) == 1
    assert one.tell(2, (0, 2), 1) and not one.tell(0, (0, 2), 1)
    assert one.marked(Mark.TOLD) == {2}
