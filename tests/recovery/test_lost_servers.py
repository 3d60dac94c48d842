"""A parameter server is lost: its keys go to others, with the updates that they had, or a count of
those that they lack.
"""

from __future__ import annotations

import functools
import random
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch

import workbench as wb
from tests.live import LONG, lenet, over_in_the_end, training, until
from tests.pairwise import first
from tests.recovery.lasting import recovered
from workbench.store.recoveries import recoveries_of

ALL = 9
KEYS = 1000
LARGE = (0.8, 0.1, 0.1)  # the first share is large enough to be read in place


def served(servers: int = 2, workers: int = 2, **fields: Any) -> wb.Experiment:
    """Return an experiment with Adam, which has a state; what is not a field is an option."""
    own = {name: fields.pop(name) for name in [*fields] if name not in wb.Experiment.model_fields}
    base = {"optimizer": "adam", "iterations": ALL, "dtype": "float64"}
    return lenet(
        strategy="parameter_server",
        ranks=servers + workers,
        options={"servers": servers, **own},
        **{**base, **fields},
    )


def kill(*ranks: int, at: int = 4) -> tuple[wb.Kill, ...]:
    return tuple(wb.Kill(rank=rank, at_iteration=at) for rank in ranks)


@functools.cache
def uninterrupted(optimizer: str = "adam", iterations: int = ALL, batch_size: int = 16) -> Any:
    """Return the same training with one server: however many there are, no bit differs."""
    exp = served(1, optimizer=optimizer, iterations=iterations, batch_size=batch_size)
    return wb.run(exp).wait(timeout=90)


def assert_nothing_lost(result: wb.Result, whole: wb.Result) -> None:
    assert result.losses == whole.losses
    assert set(result.digests.values()) == set(whole.digests.values())


class Counting:
    """A task whose gradient is 1 for each key, so that at a rate of 1 a key counts the minibatches
    whose gradient it has.
    """

    def model(self) -> torch.nn.Module:
        return torch.nn.Linear(KEYS, 1, bias=False)

    def dataset(self, split: str) -> Any:
        return torch.utils.data.TensorDataset(torch.ones(64, KEYS))

    def loss(self, model: torch.nn.Module, batch: Any) -> torch.Tensor:
        loss: torch.Tensor = model(batch[0]).mean()
        return loss


def minibatches_in(run: wb.Run, result: wb.Result) -> torch.Tensor:
    """Return of each key how many minibatches its parameter has the gradients of."""
    torch.manual_seed(run.experiment.seed)
    start = Counting().model().double().state_dict()["weight"]
    return (start - result.parameters["weight"]).reshape(-1)


COUNTED: dict[str, Any] = {"task": Counting, "optimizer": "sgd", "lr": 1.0}


# -- a replica chain: nothing is lost --


@pytest.mark.parametrize(
    ("policy", "lost", "options"),
    first(
        1,
        [
            ("replace", (1,), {}),
            ("shrink", (0,), {}),
            ("replace", (2,), {}),  # a worker
            ("shrink", (1,), {"servers": 3, "placement": "hash"}),
            ("shrink", (0, 1), {"servers": 3, "replicas": 3}),
            ("replace", (0, 2), {"servers": 3, "replicas": 3}),
            ("replace", (1,), {"servers": 3, "placement": (0.5, 0.3, 0.2)}),
            ("shrink", (2,), {"servers": 3, "placement": (0.5, 0.3, 0.2)}),
            ("replace", (0, 3), {"servers": 3, "placement": "hash"}),  # a server and a worker
        ],
    ),
    ids=str,
)
def test_with_replicas_nothing_is_lost_to_the_bit(
    policy: str, lost: tuple[int, ...], options: dict[str, Any]
) -> None:
    exp = served(**{"replicas": 2, **options}, recovery=policy, faults=kill(*lost))
    run = wb.run(exp)
    result = run.wait(timeout=90)
    assert_nothing_lost(result, uninterrupted())
    servers = exp.options["servers"]
    measured = run.recovery()
    assert sum(one.updates_lost for one in measured) == 0
    assert {source for one in measured for source in one.sources} == (
        {"replica"} if min(lost) < servers else set()
    )
    assert all(one.first_ms is not None and one.first_ms > 0 for one in measured)
    assert result.lost == (sorted(lost) if policy == "shrink" else [])
    rows = run.events.filter(pl.col("name").cast(pl.String) == "elements")
    last = rows.filter(pl.col("generation") == pl.col("generation").max())
    held = dict(last.select("rank", "value").rows())
    living = set(range(servers)) - (set(lost) if policy == "shrink" else set())
    assert set(held) == living, "each living server has its share"
    assert sum(held.values()) == sum(x.numel() for x in result.parameters.values())


def test_without_a_worker_the_others_take_its_samples() -> None:
    run = wb.run(served(replicas=2, workers=3, recovery="shrink", faults=kill(3)))
    result = run.wait(timeout=90)
    assert result.losses == pytest.approx(uninterrupted().losses, rel=1e-12, abs=1e-12)
    assert result.lost == [3]


@pytest.mark.full
@pytest.mark.parametrize("seed", first(1, range(16)))
def test_killed_at_any_moment_a_rank_takes_nothing_along(seed: int) -> None:
    draw = random.Random(seed)
    policy, victim = draw.choice(["shrink", "replace"]), draw.randrange(2)
    exp = served(replicas=2, recovery=policy, iterations=LONG, batch_size=6)
    run = wb.run(exp)
    training(run, 2)
    time.sleep(draw.uniform(0, 0.3))
    run.kill(victim)
    result = recovered(run)
    whole = uninterrupted(iterations=len(result.losses), batch_size=6)
    assert_nothing_lost(result, whole)


def test_a_server_that_workers_leave_last_ends_its_chain_too() -> None:
    """Its workers' farewells come late: the other server has ended its own chain by then."""
    slow = wb.Network(links={f"{rank}->1": wb.Link(latency="200 ms") for rank in (2, 3)})
    with wb.run(served(replicas=2, iterations=LONG, network=slow)) as run:
        training(run, 2)
        run.stop()
        assert run.wait(timeout=90).ok


@pytest.mark.full
@pytest.mark.parametrize("consistency", first(1, ["bsp", "asp", "ssp", "dssp"]))
def test_a_grant_is_given_only_once_the_replica_has_the_push(consistency: str) -> None:
    """The link between the servers is slow: without the wait the copy would be far behind."""
    slow = wb.Network(links={"1->0": wb.Link(latency="60 ms")})
    exp = served(
        replicas=2,
        consistency=consistency,
        **COUNTED,
        network=slow,
        recovery="shrink",
        faults=kill(1, at=5),
    )
    run = wb.run(exp)
    assert minibatches_in(run, run.wait(timeout=90)).tolist() == pytest.approx([ALL] * KEYS)
    (recovery,) = run.recovery()
    assert recovery.sources == ("replica",) and recovery.updates_lost == 0


@pytest.mark.full
@pytest.mark.parametrize("seed", first(1, range(12)))
def test_a_push_counts_once_for_each_key_without_lockstep_too(seed: int) -> None:
    draw = random.Random(seed)
    exp = served(
        draw.choice([2, 3]),
        3,
        replicas=2,
        consistency=draw.choice(["asp", "ssp"]),
        **COUNTED,
        iterations=80,
        batch_size=48,
        recovery=draw.choice(["shrink", "replace"]),
    )
    run = wb.run(exp)
    training(run, 5)
    time.sleep(draw.uniform(0, 0.1))
    victim = draw.randrange(exp.options["servers"])
    run.kill(victim)
    result = run.wait(timeout=90)
    assert minibatches_in(run, result).tolist() == pytest.approx([80] * KEYS)
    assert [one.lost for one in run.recovery()] in ([(victim,)], [])


# -- no replica: a worker's latest pull, or the last checkpoint --


@pytest.mark.full
@pytest.mark.parametrize(
    ("policy", "lost"), first(1, [("shrink", (1,)), ("replace", (0, 1)), ("replace", (1,))])
)
def test_in_lockstep_the_latest_pulls_have_all_but_the_optimizers_state(
    policy: str, lost: tuple[int, ...]
) -> None:
    exp = served(optimizer="sgd", recovery=policy, faults=kill(*lost))
    run = wb.run(exp)
    assert_nothing_lost(run.wait(timeout=90), uninterrupted("sgd"))
    measured = run.recovery()
    assert measured[0].sources == ("pull",) and sum(one.updates_lost for one in measured) == 0
    run = wb.run(exp.replace(optimizer="adam"))
    result = run.wait(timeout=90)
    assert len(result.losses) == ALL and result.losses != uninterrupted().losses


@pytest.mark.full
@pytest.mark.parametrize("seed", first(1, range(8)))
def test_updates_that_a_pull_lacks_are_counted(seed: int) -> None:
    """Two workers: a push has half a minibatch. The keys themselves say what they lack."""
    draw = random.Random(seed)
    exp = served(
        consistency="asp",
        **COUNTED,
        iterations=40,
        recovery=draw.choice(["shrink", "replace"]),
        faults=kill(1, at=draw.randrange(5, 30)),
    )
    run = wb.run(exp)
    has = minibatches_in(run, run.wait(timeout=90))
    (recovery,) = run.recovery()
    assert recovery.sources == ("pull",) and recovery.updates_lost <= recovery.staleness
    assert has[: KEYS // 2].tolist() == pytest.approx([40] * (KEYS // 2)), "of the living server"
    lacking = 40 - recovery.updates_lost / 2
    assert has[KEYS // 2 :].tolist() == pytest.approx([lacking] * (KEYS // 2))


@pytest.mark.full
@pytest.mark.parametrize("policy", first(1, ["shrink", "replace"]))
def test_updates_since_the_checkpoint_are_counted(tmp_path: Path, policy: str) -> None:
    exp = served(
        restored_from="checkpoint",
        checkpoint=wb.Checkpoint(folder=str(tmp_path), every=3, background=False),
        **COUNTED,
        recovery=policy,
        faults=kill(1, at=5),
    )
    run = wb.run(exp)
    has = minibatches_in(run, run.wait(timeout=90))
    (recovery,) = run.recovery()
    assert has[: KEYS // 2].tolist() == pytest.approx([ALL] * (KEYS // 2))
    lacking = ALL - recovery.updates_lost
    assert has[KEYS // 2 :].tolist() == pytest.approx([lacking] * (KEYS // 2))
    assert recovery.sources == ("checkpoint",) and recovery.updates_lost in (1, 2)


# -- more that happens --


@pytest.mark.full
def test_a_server_that_is_told_to_go_takes_nothing_along() -> None:
    run = wb.run(served(replicas=2, recovery="shrink", iterations=LONG, batch_size=6))
    training(run, 2)
    run.preempt(1)
    result = recovered(run)
    whole = uninterrupted(iterations=len(result.losses), batch_size=6)
    assert_nothing_lost(result, whole)
    (recovery,) = recoveries_of(run.store.metadata)
    assert recovery.lost == {"1": "ended"}


@pytest.mark.full
def test_a_server_lost_while_another_is_replaced_is_a_failure_too() -> None:
    fields = {"recovery": "replace", "iterations": LONG, "timeout": "30 s"}
    exp = served(3, replicas=2, placement=LARGE, **fields)
    with over_in_the_end(wb.run(exp)) as run:
        training(run)
        for victim, other in ((1, 2), (0, 1), (2, 3)):
            before = run.pids[victim]
            run.kill(victim)
            until(lambda at=victim, pid=before: run.pids[at] != pid, 30, "a new process")
            at = len(recoveries_of(run.store.metadata))
            run.kill(other)
            until(lambda at=at: len(recoveries_of(run.store.metadata)) > at, 30, "one more")
        here = run.iteration
        until(lambda: run.iteration > here + 3, 60, "the ranks train")
        run.stop()
        result = run.wait(timeout=60)
    assert result.ok and result.parameters
    in_place = run.events.filter(pl.col("phase").cast(pl.String) == "in place")
    assert in_place["generation"].n_unique() > 1, "in place before a loss and after it"


def test_without_a_server_or_a_worker_the_run_ends_and_says_so() -> None:
    for lost, words in ((0, "every server has ended"), (1, "every worker has ended")):
        run = wb.run(served(1, 1, recovery="shrink", faults=kill(lost)))
        with pytest.raises(wb.TooFewRanks, match=words) as caught:
            run.wait(timeout=60)
        assert (caught.value.rank, caught.value.how) == (lost, "killed")
        assert f"rank {lost} (killed)" in str(caught.value)


@pytest.mark.full
def test_the_only_server_never_starts() -> None:
    exp = served(1, 2, recovery="shrink").replace(ranks=(2, 3), faults=wb.FailToStart(rank=0))
    with pytest.raises(wb.TooFewRanks, match="every server has ended") as caught:
        wb.run(exp).wait(timeout=60)
    assert caught.value.rank == 0


@pytest.mark.full
def test_a_worker_that_the_run_could_spare_is_lost_too_when_all_restart(tmp_path: Path) -> None:
    plan = wb.Checkpoint(folder=str(tmp_path), every=2)
    kills = (*kill(2, at=3), *kill(0, at=7))
    run = wb.run(served(recovery="restart", checkpoint=plan, faults=kills, timeout="5 s"))
    result = run.wait(timeout=90)
    (recovery,) = recoveries_of(run.store.metadata)
    assert set(recovery.lost) == {"0", "2"} and set(recovery.fresh) == {0, 2}
    assert len(result.losses) == ALL and result.lost == []


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"replicas": 3}, "there are only servers = 2"),
        ({"replicas": 0}, "must be 1 or more"),
        ({"replicas": 2, "models": 2}, "belong to one model's keys"),
        ({"models": 2, "recovery": "shrink"}, "options.models"),
        ({"shares": (1, 2), "recovery": "shrink"}, "options.shares"),
        ({"restored_from": "checkpoint"}, "writes no checkpoints"),
        ({"restored_from": "memory"}, "options.restored_from"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(wb.SpecError, match=words):
        served(**fields)


@pytest.mark.full
def test_a_server_that_joins_takes_its_share_again() -> None:
    """One is lost, the other has all keys; then its number is taken by a new one."""
    run = wb.run(served(replicas=2, recovery="shrink", iterations=300, batch_size=6))
    training(run, 2)
    run.kill(1)
    until(lambda: len(recoveries_of(run.store.metadata)) == 1, 30, "the others go on")
    assert run.add_rank() == 1
    until(lambda: len(recoveries_of(run.store.metadata)) == 2, 30, "it joins")
    result = run.wait(timeout=120)
    assert_nothing_lost(result, uninterrupted(iterations=300, batch_size=6))
    rows = run.events.filter(pl.col("name").cast(pl.String) == "elements")
    held = rows.group_by("generation").agg(pl.col("value").sort())
    sizes = dict(held.rows())
    assert len(sizes[0]) == 2 and len(sizes[1]) == 1 and sizes[2] == sizes[0]


@pytest.mark.full
def test_workers_that_were_apart_when_one_was_lost_do_not_wait_for_a_checkpoint_of_before(
    tmp_path: Path,
) -> None:
    """Rank 3 has pushed what rank 1 still computes, and a checkpoint is due before each."""
    run = wb.run(
        served(
            1,
            3,
            consistency="asp",
            recovery="shrink",
            iterations=4,
            checkpoint=wb.Checkpoint(folder=str(tmp_path), every=1),
            pad_compute="40 ms",
            timeout="30 s",
            faults=(wb.Slow(rank=1, factor=20), wb.Kill(rank=2, after="0.9 s")),
        )
    )
    result = run.wait(timeout=90)
    assert (
        result.ok and len(result.losses) == 4 and run.recovery().table["lost"][0].to_list() == [2]
    )
