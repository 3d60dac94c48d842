"""Servers of training data: the same training as ever, and how long workers wait for examples."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import polars as pl
import pytest

import workbench as wb
from tests.live import LONG, lenet, of, over_in_the_end, training, until
from tests.pairwise import Case, first, pairwise, sampled
from tests.runs.steered import settle
from workbench.laws import replicas_identical

ITERATIONS = 20
BOUND = {"float32": 1e-5, "float64": 1e-12}
CASES = pairwise(
    {
        "ranks": [2, 3, 4, 8],
        "servers": [1, 2],
        "ahead": [0, 1, 5, 50],  # 50: more than there are iterations
        "batch_size": [64, 10, 5],  # uneven parts; of 7 workers some have none
        "dtype": ["float32", "float64"],
    }
)
CASES = [case for case in CASES if case["ranks"] >= 2 * case["servers"]]


HARD = [{"ranks": 3, "batch_size": 5}, {"ranks": 4, "servers": 2}]


def served(**fields: Any) -> wb.Experiment:
    return lenet(**{"strategy": "data_servers", "ranks": 3, "iterations": ITERATIONS, **fields})


@cache
def sequential(batch_size: int, dtype: str) -> wb.Result:
    exp = lenet(
        strategy="sequential", ranks=1, iterations=ITERATIONS, batch_size=batch_size, dtype=dtype
    )
    return wb.run(exp).wait(timeout=60)


def name_of(case: Case) -> str:
    return "-".join(str(value) for value in case.values())


@pytest.mark.parametrize("case", sampled(CASES, *HARD), ids=name_of)
def test_equals_sequential(case: Case) -> None:
    alone = sequential(case["batch_size"], case["dtype"])
    options = {"servers": case["servers"], "ahead": case["ahead"]}
    plain = {name: case[name] for name in ("ranks", "batch_size", "dtype")}
    result = wb.run(served(**plain, options=options)).wait(timeout=60)
    assert np.abs(np.subtract(result.losses, alone.losses)).max() <= BOUND[case["dtype"]]
    assert sorted(result.digests) == [*range(case["servers"], case["ranks"])]
    assert not replicas_identical(result.digests)
    assert result.metrics["accuracy"] == pytest.approx(alone.metrics["accuracy"], abs=0.01)
    for name, value in result.parameters.items():
        assert (value - alone.parameters[name]).abs().max() < 10 * BOUND[case["dtype"]]


@pytest.mark.parametrize("ranks", first(1, [3, 2, 8]))
def test_a_partitioned_data_set_trains_the_same(ranks: int) -> None:
    alone = sequential(10, "float64")
    exp = lenet(
        ranks=ranks,
        iterations=ITERATIONS,
        batch_size=10,
        dtype="float64",
        options={"examples": "partitioned"},
    )
    run = wb.run(exp)
    result = run.wait(timeout=60)
    assert np.abs(np.subtract(result.losses, alone.losses)).max() <= 1e-12
    assert not replicas_identical(result.digests)
    parts = of(run.events, name="samples").sort("iteration", "rank")
    assert parts["value"].n_unique() > 2, "parts that are as even as can be: nothing is partitioned"
    each = parts.group_by("iteration").agg(pl.col("value").sum())["value"]
    assert set(each) == {10}


# -- what is moved --


def test_a_server_sends_the_examples_and_nothing_else() -> None:
    """28 x 28 pixels of four bytes and a label of eight: 3,144 bytes a sample."""
    run = wb.run(served(batch_size=10, options={"ahead": 3}))
    sent = run.wait(timeout=60).bytes_sent
    assert sent[0] == ITERATIONS * 10 * (28 * 28 * 4 + 8)
    gradients = ITERATIONS * 61_706 * 4  # two workers in a ring: each sends 2/2 of it
    requests = 8 * (ITERATIONS + 1)  # one an iteration, and a farewell
    assert sent[1] == sent[2] == gradients + requests
    pulls = of(run.events, kind="pull")
    assert pulls["nbytes"].sum() == sent[0] and set(pulls["peer"]) == {0}
    assert set(of(run.events, kind="load", rank=0)["lane"]) == {"server"}
    assert pulls.height == of(run.events, name="stall").height == 2 * ITERATIONS


def test_each_worker_asks_one_server_and_servers_share_them() -> None:
    run = wb.run(served(ranks=5, options={"servers": 2}))
    run.wait(timeout=60)
    pulls = of(run.events, kind="pull")
    servers_of = dict(pulls.group_by("rank").agg(pl.col("peer").unique()).iter_rows())
    assert servers_of == {2: [0], 3: [1], 4: [0]}


# -- the input stall --


def stall_ms(ahead: int) -> pl.Series:
    """By iteration and worker, once requests run ahead: answers take 150 ms, computing 20."""
    far = {(0, worker): wb.Link(latency="150 ms") for worker in (1, 2)}
    exp = served(pad_compute="20 ms", network=wb.Network(links=far), options={"ahead": ahead})
    run = wb.run(exp)
    run.wait(timeout=60)
    return of(run.events, name="stall").filter(pl.col("iteration") > ahead)["value"]


@pytest.mark.alone
def test_prefetch_hides_the_way_of_an_answer() -> None:
    """Asked for at need it costs all of it. One ahead, two minibatches come at a time: every other
    one is waited for. Nothing once as many are under way as are trained in that time.
    """
    needed, one, many = stall_ms(0), stall_ms(1), stall_ms(8)
    assert needed.mean() >= 150 and needed.min() < 200
    assert 0.2 < one.mean() / needed.mean() < 0.65
    assert many.median() < 0.1 * needed.median()


@pytest.mark.full
def test_a_slow_link_is_hidden_by_no_prefetch() -> None:
    """What does not come as fast as it is used is waited for, however early it is asked for: 8
    samples of 3,144 bytes over 1 Mbit/s take 200 ms, an iteration 20.
    """
    slow = wb.Network(links={(0, w): wb.Link(bandwidth="1 Mbit/s") for w in (1, 2)})
    exp = served(iterations=16, pad_compute="20 ms", network=slow, options={"ahead": 4})
    run = wb.run(exp)
    run.wait(timeout=60)
    starts = of(run.events, kind="forward", rank=1).filter(pl.col("iteration") > 6)["start_ns"]
    each = (starts.max() - starts.min()) / (len(starts) - 1)  # in bursts: single ones differ
    assert each > 180e6, "the link says how fast training goes, not its 20 ms"
    rows = of(run.events, name="stall").filter(pl.col("iteration") > 6)
    assert rows["value"].max() > 20


def test_of_two_workers_the_one_with_the_slow_link_holds_up_both() -> None:
    """Its neighbor has its examples, and waits for its gradient instead."""
    far = wb.Network(links={(0, 1): wb.Link(latency="200 ms")})
    run = wb.run(served(iterations=7, network=far, options={"ahead": 0}))
    run.wait(timeout=60)
    rows = of(run.events, name="stall").filter(pl.col("iteration") > 1)
    median = dict(rows.group_by("rank").agg(pl.col("value").median()).iter_rows())
    assert median[1] > 200 and median[2] < 100
    waits = of(run.events, kind="collective", rank=2, group="workers")
    assert ((waits["end_ns"] - waits["start_ns"]) / 1e6).max() > 100


# -- held, stopped, killed --


@pytest.mark.parametrize("ahead", first(1, [3, 0]))
def test_ranks_can_be_held_stepped_and_stopped(ahead: int) -> None:
    run = wb.run(served(iterations=LONG, options={"ahead": ahead}))
    with over_in_the_end(run):
        training(run)
        run.pause()
        settle(run)
        at = run.iteration
        for more in (1, 2, 3):
            run.step(1, unit="iteration")
            until(lambda more=more: run.iteration >= at + more, 10, f"{more} steps")
            settle(run)
            assert run.iteration == at + more
        run.resume()
        until(lambda: run.iteration > at + 10, 20, "they go on")
        run.stop()
        result = run.wait(timeout=90)
        assert result.ok and 10 < len(result.losses) < LONG
        assert not replicas_identical(result.digests)


def test_stopped_in_the_first_iteration() -> None:
    run = wb.run(served(iterations=LONG, pad_compute="100 ms"))
    run.stop()
    result = run.wait(timeout=90)
    assert result.ok and 0 < len(result.losses) < 100


def test_a_server_that_is_killed_is_named() -> None:
    run = wb.run(served(iterations=LONG, faults=(wb.Kill(rank=0, at_iteration=9),)))
    with pytest.raises(wb.PeerLost, match=r"rank 0 .*killed by SIGKILL in iteration 10") as caught:
        run.wait(timeout=90)
    assert caught.value.rank == 0
    assert "in recv p2p of" in str(caught.value)


@pytest.mark.full
def test_a_frozen_server_is_waited_for() -> None:
    fault = wb.Freeze(rank=0, at_iteration=5, seconds=2)  # longer than busy cores take for one
    run = wb.run(served(faults=(fault,), options={"ahead": 1}))
    result = run.wait(timeout=90)
    assert np.abs(np.subtract(result.losses, sequential(16, "float32").losses)).max() < 1e-5
    assert of(run.events, name="stall")["value"].max() > 300


# -- what cannot be --


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"ranks": 1}, "leaves 0 workers"),
        ({"ranks": 3, "options": {"servers": 2}}, "as many workers as servers"),
        ({"options": {"servers": 0}}, "servers = 0: must be 1 or more"),
        ({"options": {"ahead": -1}}, "ahead = -1: must be 0 or more"),
        ({"options": {"prefetsch": 1}}, "ahead"),
        ({"backend": "gloo"}, "backend='workbench'"),
        ({"memory_limit": "1 GB"}, "does not measure"),
    ],
)
def test_what_cannot_be_is_refused_before_a_start(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(wb.SpecError, match=message):
        served(**fields)
