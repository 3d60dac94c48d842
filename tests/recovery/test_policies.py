"""A run that loses ranks goes on, by its recovery policy, and trains what it would have trained."""

from __future__ import annotations

import functools
import json
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import workbench as wb
from tests.live import LONG, gone, lenet, over_in_the_end, training, until
from tests.pairwise import first
from tests.recovery.lasting import recovered
from workbench.experiment.team import Team
from workbench.rank.batches import Minibatches
from workbench.runs.regrouping import Regrouping
from workbench.shared_memory.control_block import Control
from workbench.store.recoveries import recoveries_of

REPLICAS: list[tuple[str, dict[str, Any]]] = [
    ("data_parallel", {}),
    ("ddp", {"bucket_cap_mb": 0.05}),
    ("fusion", {"threshold": "100 KB"}),
    ("ddp", {"accumulate": 2}),
]
ALL = 9


def experiment(strategy: str, ranks: int | tuple[int, int], **fields: Any) -> wb.Experiment:
    """Return a run with Adam, which has a state."""
    return lenet(
        strategy=strategy,
        ranks=ranks,
        **{"optimizer": "adam", "iterations": ALL, "dtype": "float64", **fields},
    )


@functools.cache
def sequential(iterations: int = ALL, batch_size: int = 16) -> list[float]:
    exp = experiment("sequential", 1, iterations=iterations, batch_size=batch_size)
    return wb.run(exp).wait(timeout=90).losses


def kinds(run: wb.Run, *names: str) -> pl.DataFrame:
    """Return the rows of these kinds, in order of time."""
    rows = run.events.with_columns(pl.col("kind").cast(pl.String), pl.col("name").cast(pl.String))
    return rows.filter(pl.col("kind").is_in(names)).sort("start_ns")


def assert_as_sequential(
    run: wb.Run, result: wb.Result, ranks: set[int], *, stopped: bool = False
) -> None:
    """Assert that nothing was lost or done twice, and that all replicas are the same. ``stopped``:
    the run was ended before its last iteration.
    """
    done = len(result.losses) if stopped else run.experiment.iterations
    alone = sequential(done, run.experiment.batch_size)
    assert result.losses == pytest.approx(alone, rel=1e-12, abs=1e-12)
    assert set(result.digests) == ranks and len(set(result.digests.values())) == 1
    assert_every_sample_once(run)


def assert_every_sample_once(run: wb.Run) -> None:
    """Assert that in each iteration the ranks took each sample of its minibatch once, by what they
    logged; an iteration that was tried again counts as it was done in the end.
    """
    exp, facts = run.experiment, json.loads(run.store.metadata["samples"])
    minibatches = Minibatches(facts["n"], exp.batch_size, exp.seed, buffer=exp.shuffle_buffer)
    recoveries = recoveries_of(run.store.metadata)
    parts = {
        rank: json.loads(run.store.metadata.get(f"samples {rank}", "[]"))
        for rank in (recoveries[-1].members if recoveries else run.result.digests)
    }
    for iteration in range(min(exp.iterations, *map(len, parts.values()))):
        whole, counts = minibatches.ids(iteration).tolist(), Counter[int]()
        if any(iteration < one.iteration for one in recoveries):
            continue  # of a rank that was lost since, the last words may be missing
        for part in [each[iteration] for each in parts.values()]:
            counts.update(whole[slice(*part["slice"])] if isinstance(part, dict) else part)
        assert counts == Counter(whole), f"iteration {iteration}"


@pytest.mark.parametrize(
    ("strategy", "options", "policy"),
    first(
        2,
        [
            (*REPLICAS[0], "shrink"),
            (*REPLICAS[1], "replace"),
            (*REPLICAS[0], "replace"),
            (*REPLICAS[1], "shrink"),
            *((*one, policy) for one in REPLICAS[2:] for policy in ("shrink", "replace")),
        ],
    ),
    ids=str,
)
def test_what_is_trained_is_what_an_uninterrupted_run_trains(
    strategy: str, options: dict[str, Any], policy: str
) -> None:
    kill = wb.Kill(rank=1, at_iteration=4)
    exp = experiment(strategy, 3, options=options, recovery=policy, faults=kill)
    run = wb.run(exp)
    result = run.wait(timeout=90)
    left = {0, 2} if policy == "shrink" else {0, 1, 2}
    assert_as_sequential(run, result, left)
    assert result.lost == sorted({0, 1, 2} - left) and result.ok

    rows = kinds(run, "fault", "detect", "abort", "rebuild", "restore", "optimizer")
    steps = [kind for kind in rows["kind"].unique(maintain_order=True) if kind != "optimizer"]
    assert [one for one in steps if one != "detect"] == ["fault", "abort", "rebuild", "restore"]
    detections = rows.filter(pl.col("kind") == "detect").filter(pl.col("rank") == -1)
    assert detections.select("peer", "name").row(0) == (1, "killed")
    assert set(rows.filter(pl.col("kind") == "rebuild")["rank"]) == left
    restored = rows.filter(pl.col("kind") == "restore")
    received = restored.filter(pl.col("name") == "received")
    assert set(restored["generation"]) == {1} and set(restored["iteration"]) == {4}
    assert set(received["rank"]) == ({1} if policy == "replace" else set())
    if policy == "replace":  # parameters and both moments of each
        parameters = sum(x.numel() for x in result.parameters.values())
        assert received["nbytes"].min() >= 3 * 8 * parameters
    updates = rows.filter(pl.col("kind") == "optimizer").group_by("rank", "iteration").len()
    assert updates["len"].max() == 1, "no gradient is applied twice"
    generations = run.events.filter(pl.col("kind").cast(pl.String) == "optimizer")
    by_iteration = dict(generations.select("iteration", "generation").unique().rows())
    assert by_iteration == {i: int(i >= 4) for i in range(ALL)}


@pytest.mark.full
@pytest.mark.parametrize("seed", first(1, range(12)))
@pytest.mark.parametrize("policy", first(1, ["replace", "shrink"]))
def test_a_rank_that_is_lost_at_any_moment_takes_nothing_along(policy: str, seed: int) -> None:
    draw = random.Random(f"{policy} {seed}")
    strategy = draw.choice(["data_parallel", "ddp", "fusion"])
    exp = experiment(strategy, 3, recovery=policy, iterations=LONG, batch_size=6)
    run = wb.run(exp)
    training(run, 2)
    victim = draw.randrange(3)
    time.sleep(draw.uniform(0, 0.1))
    run.kill(victim)
    survivors = {0, 1, 2} if policy == "replace" else {0, 1, 2} - {victim}
    assert_as_sequential(run, recovered(run), survivors, stopped=True)


@pytest.mark.full
@pytest.mark.parametrize(
    ("strategy", "fields", "at"),
    first(
        1,
        [
            # A server dies as iteration 2 is asked for; 1 has the sum before it sends it to 2.
            ("data_servers", {"options": {"ahead": 1}, "all_reduce": "naive"}, 2),
            ("diloco", {"options": {"every": 1}}, 1),
            ("local_sgd", {"options": {"every": 1}}, 1),
            ("local_sgd", {"options": {"warmup": 9}}, 1),
            ("data_parallel", {}, 1),
            ("fusion", {}, 1),
            ("ddp", {}, 1),
        ],
    ),
    ids=str,
)
def test_a_survivor_that_was_behind_keeps_the_loss_of_what_it_took_part_in(
    strategy: str, fields: dict[str, Any], at: int
) -> None:
    """The link 1->2 is slow, so rank 2 receives last a sum that its gradient is in."""
    exp = experiment(strategy, 3, optimizer="sgd", iterations=3, **fields)
    whole = wb.run(exp).wait(timeout=90)
    slow = wb.Network(links={"1->2": wb.Link(latency="80 ms")})
    kill = wb.Kill(rank=0, at_iteration=at)
    run = wb.run(exp.replace(network=slow, recovery="replace", faults=kill))
    result = run.wait(timeout=90)
    assert result.losses == pytest.approx(whole.losses, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("strategy", first(1, ["local_sgd", "diloco"]))
def test_replicas_that_differ_go_back_to_where_they_last_agreed(strategy: str) -> None:
    """Plain SGD has no state, so that a fresh rank trains what the lost one would have trained."""
    exp = experiment(strategy, 3, options={"every": 3}, optimizer="sgd", dtype="float32")
    whole = wb.run(exp).wait(timeout=90)
    for policy, left in (("replace", {0, 1, 2}), ("shrink", {0, 2})):
        kill = wb.Kill(rank=1, at_iteration=5)
        run = wb.run(exp.replace(recovery=policy, faults=kill))
        result = run.wait(timeout=90)
        (recovery,) = recoveries_of(run.store.metadata)
        assert recovery.iteration == 3, "the end of the first round"
        assert set(result.digests) == left and len(set(result.digests.values())) == 1
        assert_every_sample_once(run)
        if policy == "replace":
            assert result.losses == whole.losses and result.digests == whole.digests
        else:
            assert result.losses[:3] == whole.losses[:3] and len(result.losses) == ALL
            assert result.losses[-1] == pytest.approx(whole.losses[-1], rel=0.2)


@pytest.mark.full
@pytest.mark.parametrize(
    ("strategy", "options"),
    first(
        1,
        [
            ("gossip", {}),
            ("malt", {"cb": 2}),
            ("ad_psgd", {}),
            ("gossip", {"mix": "after", "graph": "exponential"}),
            ("malt", {"cb": 2, "wait": True}),
        ],
    ),
    ids=str,
)
def test_peers_go_on_without_a_dead_one(strategy: str, options: dict[str, Any]) -> None:
    """Each with what it has: no gradient is applied twice, and the mean still learns."""
    for policy, left in (("shrink", {0, 2, 3}), ("replace", {0, 1, 2, 3})):
        kill = wb.Kill(rank=1, at_iteration=8)
        exp = experiment(strategy, 4, options=options, optimizer="sgd", iterations=20)
        run = wb.run(exp.replace(recovery=policy, faults=kill))
        result = run.wait(timeout=90)
        assert set(result.digests) == left and len(set(result.digests.values())) == 1
        assert len(result.losses) == 20, result.losses
        assert min(result.losses[10:]) < result.losses[0], result.losses  # single ones differ
        updates = kinds(run, "optimizer").filter(pl.col("name") != "mix")
        # What the dead one updated last, its replica took along: another may make it again.
        updates = updates.filter(pl.col("rank") != 1)
        assert updates.group_by("rank", "iteration").len()["len"].max() == 1
        (recovery,) = recoveries_of(run.store.metadata)
        received = kinds(run, "restore").filter(pl.col("name") == "received")
        assert set(received["rank"]) == set(recovery.fresh) == left - {0, 2, 3}


@pytest.mark.full
def test_a_rank_that_is_told_to_go_leaves_at_the_end_of_its_iteration() -> None:
    exp = experiment("data_parallel", 3, recovery="shrink", iterations=LONG, batch_size=6)
    run = wb.run(exp)
    training(run, 2)
    run.preempt(1)
    assert_as_sequential(run, recovered(run), {0, 2}, stopped=True)
    (recovery,) = recoveries_of(run.store.metadata)
    assert recovery.lost == {"1": "ended"}
    assert recovery.failed_in == recovery.iteration, "no iteration is given up"
    assert run.recovery()[0].samples_repeated == 0
    loads = kinds(run, "load").group_by("rank", "iteration").len()
    assert loads["len"].max() == 1, "no sample is taken twice"
    faults = kinds(run, "fault")
    assert faults.select("rank", "name").rows() == [(-1, "preempt"), (1, "preempted")]
    done = kinds(run, "optimizer").filter(pl.col("rank") == 1)["iteration"].max()
    assert done == faults["iteration"].max(), "not in the midst of one"


def test_where_all_ranks_are_lost_at_once_the_run_ends_by_name_or_restarts(tmp_path: Path) -> None:
    """Stopped first, so that no rank leaves its group before it is killed."""
    for policy in ("shrink", "restart"):
        plan = wb.Checkpoint(folder=str(tmp_path / policy), every=2)
        fields = {"recovery": policy, "checkpoint": plan, "pad_compute": "20 ms"}
        exp = experiment("data_parallel", 2, iterations=LONG, **fields)
        with over_in_the_end(wb.run(exp)) as run:
            training(run, 4)
            for pid in run.pids.values():
                os.kill(pid, signal.SIGSTOP)
            for pid in [*run.pids.values()]:
                os.kill(pid, signal.SIGKILL)
            if policy == "restart":
                assert_as_sequential(run, recovered(run), {0, 1}, stopped=True)
            result = run.wait(timeout=90, check=False)
        if policy == "shrink":
            assert isinstance(result.error, wb.PeerLost) and result.error.rank in (0, 1)
            assert result.error.how == "killed"


@pytest.mark.full
def test_a_data_server_that_is_told_to_go_leaves_and_is_replaced() -> None:
    exp = experiment("data_servers", 3, recovery="replace", iterations=LONG, batch_size=6)
    run = wb.run(exp)
    training(run, 2)
    run.preempt(0)
    assert_as_sequential(run, recovered(run), {1, 2}, stopped=True)
    assert [(one.lost, one.fresh) for one in recoveries_of(run.store.metadata)] == [
        ({"0": "ended"}, (0,))
    ]
    assert not run.detection().missed, run.detection()


@pytest.mark.parametrize("policy", first(1, ["shrink", "replace"]))
def test_a_rank_that_is_stopped_for_too_long_is_evicted(policy: str) -> None:
    exp = experiment("data_parallel", 3, recovery=policy, iterations=LONG, timeout="2 s")
    run = wb.run(exp)
    training(run, 2)
    stopped = run.pids[1]
    os.kill(stopped, signal.SIGSTOP)
    left = {0, 1, 2} if policy == "replace" else {0, 2}
    assert_as_sequential(run, recovered(run), left, stopped=True)
    notices = kinds(run, "detect").filter(pl.col("peer") == 1, pl.col("rank") == -1)["name"]
    assert notices.to_list() == ["evicted", "killed"]
    assert gone([stopped])


def test_failures_one_after_the_other_and_two_at_once() -> None:
    kills = [wb.Kill(rank=r, at_iteration=i) for r, i in ((0, 2), (3, 2), (1, 5))]
    for policy, left in (("shrink", {2}), ("replace", {0, 1, 2, 3})):
        run = wb.run(experiment("data_parallel", 4, recovery=policy, faults=kills))
        assert_as_sequential(run, run.wait(timeout=90), left)
        recoveries = recoveries_of(run.store.metadata)
        assert sum(len(one.lost) for one in recoveries) == 3
        assert recoveries[-1].members == tuple(sorted(left))


@pytest.mark.full
def test_a_rank_that_is_lost_while_the_others_form_their_group_is_a_failure_too() -> None:
    exp = experiment("data_parallel", 4, recovery="replace", iterations=LONG, timeout="30 s")
    with over_in_the_end(wb.run(exp)) as run:
        training(run)
        for victim, other in ((1, 2), (3, 1)):  # rank 0 has what is trained
            first_pid = run.pids[victim]
            run.kill(victim)
            until(lambda at=victim, pid=first_pid: run.pids[at] != pid, 30, "a new process")
            at = len(recoveries_of(run.store.metadata))
            run.kill(other)  # while the group is formed, or just after
            until(lambda at=at: len(recoveries_of(run.store.metadata)) > at, 30, "one more")
        here = run.iteration
        until(lambda: run.iteration > here + 3, 60, "the ranks train")
        run.stop()
        result = run.wait(timeout=60)
    assert result.ok and len(set(result.digests.values())) == 1 and len(result.digests) == 4


def test_where_no_survivor_has_what_was_trained_the_run_ends_and_says_so() -> None:
    exp = experiment("data_parallel", 2, recovery="replace")
    regrouping = Regrouping(exp, Control.create(2))
    regrouping.team = Team(1, (0, 1), (1,), "memory")
    regrouping.table.leave(1, {"completed": -1})  # fresh, and it has received nothing yet
    with pytest.raises(wb.PeerLost, match=r"rank 0 ended before .* goes back to a checkpoint"):
        regrouping.next_team({0: -9}, [])


RESTARTED: list[tuple[str, int, dict[str, Any]]] = [
    ("pipeline", 2, {}),
    ("parameter_server", 3, {}),
    ("fsdp", 3, {}),
    ("gossip", 3, {}),
    ("local_sgd", 3, {"every": 4}),
    ("data_parallel", 3, {}),
    ("zero", 3, {"zero": 2}),
    ("ddp", 3, {"compression": "powersgd", "powersgd_start": 2}),
    ("tensor_parallel", 2, {}),
    ("top_k", 3, {}),
    ("diloco", 2, {"every": 4}),
    ("malt", 3, {"wait": True, "cb": 2}),
    ("data_servers", 3, {"ahead": 2}),
    ("pipeline", 4, {"schedule": "gpipe", "replicas": 2}),
]


@pytest.mark.parametrize(("strategy", "ranks", "options"), first(1, RESTARTED), ids=str)
def test_restarted_from_its_checkpoint_a_run_ends_as_if_nothing_had_happened(
    tmp_path: Path, strategy: str, ranks: int, options: dict[str, Any]
) -> None:
    exp = experiment(strategy, ranks, options=options, dtype="float32")
    whole = wb.run(exp).wait(timeout=90)
    kills = [wb.Kill(rank=0, at_iteration=5)]
    if strategy != "parameter_server":  # which goes on without a worker
        kills += [wb.Kill(rank=ranks - 1, at_iteration=8)]
    plan = wb.Checkpoint(folder=str(tmp_path), every=3)
    run = wb.run(exp.replace(recovery="restart", checkpoint=plan, faults=kills))
    result = run.wait(timeout=90)
    assert result.losses == whole.losses and result.digests == whole.digests
    states = [one.state for one in recoveries_of(run.store.metadata)]
    assert len(states) == len(kills)  # the last checkpoint was not whole yet, on a busy machine
    assert set(states) <= {"checkpoint", "beginning"}


@pytest.mark.full
def test_without_a_checkpoint_yet_all_begin_again(tmp_path: Path) -> None:
    exp = experiment("fsdp", 2, iterations=4)
    plan = wb.Checkpoint(folder=str(tmp_path), every=0)
    kill = wb.Kill(rank=1, at_iteration=2)
    run = wb.run(exp.replace(recovery="restart", checkpoint=plan, faults=kill))
    assert run.wait(timeout=90).losses == wb.run(exp).wait(timeout=90).losses
    assert [one.state for one in recoveries_of(run.store.metadata)] == ["beginning"]


# ---- refused before anything starts


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"recovery": "heal"}, "Allowed: abort, quorum, replace, restart, shrink, wait"),
        ({"recovery": "restart"}, "writes none: add checkpoint=wb.Checkpoint"),
        (
            {"recovery": "shrink", "strategy": "fsdp"},
            "ad_psgd, data_parallel, ddp, diloco, fusion, gorila, gossip",
        ),
        ({"recovery": "replace", "strategy": "top_k"}, "Take recovery='restart'"),
        ({"recovery": "shrink", "backend": "gloo"}, "needs backend='workbench'"),
        (
            {"recovery": "replace", "strategy": "ddp", "options": {"compression": "powersgd"}},
            "options.compression",
        ),
        (
            {"recovery": "shrink", "strategy": "ddp", "options": {"shares": (2, 1)}},
            "options.shares",
        ),
        ({"recovery": "shrink", "options": {"examples": "partitioned"}}, "options.examples"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(wb.SpecError, match=words):
        lenet(**fields)


def test_recoveries_of_a_damaged_run_are_left_out() -> None:
    for text in ("", "[", "[1]", '[{"generation": 1}]', "null", '{"a": 1}', "[" * 5000):
        assert recoveries_of({"recoveries": text}) == []
