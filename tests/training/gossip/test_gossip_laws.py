"""The laws of replicas that mix, over real processes, read from their events.

Without gradients the mean stays and disagreement shrinks as theory predicts. Messages keep to the
graph. Over a complete graph, mixed after the update, gossip is data parallel; pairs are averaged
whole. And each law fails where it is broken. MALT has a file of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import workbench as wb
from tests.live import LONG, of, over_in_the_end, training
from tests.pairwise import Case, first, pairwise, sampled
from tests.test_training_laws import check_equal, name_of, sequential
from tests.training.gossip.mixed import LINEAR, STILL, first_parameters, mixed, ran
from workbench.laws import check_events, replicas_identical
from workbench.training.gossip import graphs, laws, theory

# ---- gossip: D-PSGD

FACTORS: dict[str, list[Any]] = {
    "graph": ["ring", "complete", "torus", "exponential"],
    "ranks": [2, 3, 5, 6, 8],
    "mix": ["before", "after"],
    "dtype": ["float32", "float64"],
}


@pytest.mark.parametrize("case", sampled(pairwise(FACTORS), {"ranks": 5}), ids=name_of)
def test_gossip_keeps_the_mean_and_agrees_as_theory_says(case: Case) -> None:
    run, _, peers = ran(mixed("gossip", **case, iterations=24, spread=0.1, lr=1e-12))
    W = graphs.NAMED[case["graph"]](case["ranks"]).weights
    assert peers["rate"] == pytest.approx(theory.rate(W), abs=1e-9)
    assert not laws.mean_kept(run.events, within=1e-6)
    assert not laws.along_edges(run.events, peers)
    assert not laws.once_a_round(run.events, peers, 24)
    if peers["rate"] > 0.1:
        assert not laws.decays(run.events, W)
    else:
        left = laws.total(run.disagreement())["all"].to_list()
        assert left[2] < 1e-5
    sent = of(run.events, kind="send", collective="p2p").group_by("rank").agg(pl.sum("nbytes"))
    size = LINEAR * (8 if case["dtype"] == "float64" else 4)
    topology = graphs.NAMED[case["graph"]](case["ranks"])
    assert dict(sent.iter_rows()) == {
        rank: 24 * each for rank, each in enumerate(theory.bytes_a_rank(topology, size))
    }


def test_a_graph_of_ones_own() -> None:
    star = [[0, 1], [0, 2], [0, 3]]
    run, _, peers = ran(mixed("gossip", 4, graph=star, spread=0.1, **STILL))
    W = np.diag([0.25, 0.75, 0.75, 0.75])  # the hub has three neighbors, the others the hub
    W[0, 1:] = W[1:, 0] = 0.25
    assert {(a, b) for a, b, _ in peers["edges"]} == {(0, i) for i in (1, 2, 3)} | {
        (i, 0) for i in (1, 2, 3)
    }
    assert peers["rate"] == pytest.approx(0.75)
    assert not laws.decays(run.events, W)
    assert not laws.mean_kept(run.events)


COMPLETE: dict[str, list[Any]] = {
    "strategy": ["gossip", "malt"],
    "ranks": [2, 3, 4, 8],
    "dtype": ["float32", "float64"],
    "batch_size": [64, 10],  # of 8 ranks, 10 samples make uneven shares
    "optimizer": ["sgd"],
}
AS_DATA_PARALLEL = {
    "gossip": {"graph": "complete", "mix": "after"},
    "malt": {"dataflow": "complete", "cb": 1, "wait": True},
}


@pytest.mark.parametrize(
    "case", sampled(pairwise(COMPLETE), {"ranks": 3, "strategy": "gossip"}), ids=name_of
)
def test_mixed_with_all_after_the_update_it_is_data_parallel(case: Case) -> None:
    fields = {name: value for name, value in case.items() if name != "optimizer"}
    options = AS_DATA_PARALLEL[case["strategy"]]
    exp = wb.Experiment(**fields, iterations=60, lr=0.1, options=options)
    result = wb.run(exp).wait(timeout=90)
    check_equal(result, sequential("sgd", case["dtype"], case["batch_size"], 60), case["dtype"])


@pytest.mark.full
@pytest.mark.parametrize(
    "options",
    first(1, [{"graph": "complete", "mix": "before"}, {"graph": "ring", "mix": "after"}]),
    ids=["mixed before", "ring"],
)
def test_otherwise_it_is_not(options: Mapping[str, Any]) -> None:
    exp = wb.Experiment(
        strategy="gossip",
        ranks=4,
        iterations=20,
        batch_size=10,
        dtype="float64",
        options=dict(options),
    )
    losses = wb.run(exp).wait(timeout=90).losses
    assert np.abs(np.subtract(losses, sequential("sgd", "float64", 10, 20).losses)).max() > 1e-4


@pytest.mark.full
def test_replicas_that_mix_learn() -> None:
    reference = sequential("sgd", "float32", 64, 60).losses
    for strategy in ("gossip", "ad_psgd", "malt"):
        exp = wb.Experiment(strategy=strategy, ranks=4, iterations=60, lr=0.1)
        losses = wb.run(exp).wait(timeout=90).losses
        assert np.mean(losses[-10:]) < 1.5 * np.mean(reference[-10:]) + 0.1, strategy


# ---- AD-PSGD


@pytest.mark.full
@pytest.mark.parametrize(
    ("ranks", "pairs"),
    first(
        2,
        [
            (4, "ring"),  # of an odd number a ring has no two sides
            *((ranks, "bipartite") for ranks in (3, 2, 4, 5, 8)),
            *((ranks, "ring") for ranks in (2, 8)),
        ],
    ),
)
def test_pairs_keep_the_mean_and_every_request_is_answered(ranks: int, pairs: str) -> None:
    # Padded, so that all are at it at the same time, however busy the cores are.
    exp = mixed("ad_psgd", ranks, pairs=pairs, spread=0.1, pad_compute="10 ms", **STILL)
    run, result, peers = ran(exp)
    first_N = first_parameters(ranks).mean(0)
    last_N = torch.cat([one.reshape(-1) for one in result.parameters.values()])
    assert (last_N - first_N).norm() <= 1e-6 * first_N.norm()
    assert not laws.along_edges(run.events, peers)
    assert not laws.answered(run.events, peers)
    active = [rank for rank in range(ranks) if rank % 2 == 0]
    sent = of(run.events, kind="send", collective="p2p", name="parameters")
    assert sent["nbytes"].sum() == 2 * 30 * len(active) * LINEAR * 8
    left = laws.total(run.disagreement())["all"].to_list()
    # Two ranks agree at once; of many, some are at their last iteration long before others, so
    # that what is left of a difference is seen late, and estimated.
    assert left[-1] < max(0.8 * left[0], 1e-10)


@pytest.mark.alone
def test_a_slow_rank_holds_up_no_pair() -> None:
    """Slow as an active one, and as a passive one: the others are done long before it."""
    for slow in (0, 1):
        slowly = wb.Slow(rank=slow, factor=15)
        exp = mixed("ad_psgd", 4, pad_compute="10 ms", faults=(slowly,), iterations=14)
        run, _, _ = ran(exp)
        ends = dict(
            of(run.events, kind="metric", name="loss").group_by("rank").agg(pl.max("end_ns")).rows()
        )
        begin = run.events.filter(kind="forward")["start_ns"].min()
        took = {rank: end - begin for rank, end in ends.items()}  # type: ignore[operator]
        others = max(each for rank, each in took.items() if rank != slow)
        assert others < 0.5 * took[slow], took


# ---- stop, death


@pytest.mark.parametrize(
    "strategy, options",
    first(
        1,
        [
            ("gossip", {}),
            ("gossip", {"graph": "exponential"}),
            ("ad_psgd", {}),
            ("malt", {}),
            ("malt", {"wait": True, "cb": 3}),
        ],
    ),
    ids=str,
)
def test_the_user_stops_it(strategy: str, options: dict[str, Any]) -> None:
    # The others are ahead of rank 0, which is asked, as far as they can be.
    slow = (wb.Slow(rank=0, factor=5),)
    run = wb.run(mixed(strategy, 6, iterations=LONG, pad_compute="4 ms", faults=slow, **options))
    with over_in_the_end(run):
        training(run, 6)
        run.stop()
        result = run.wait(timeout=90)
    assert result.ok and 6 <= len(result.losses) < LONG
    assert not replicas_identical(result.digests)
    assert not check_events(run.events)


@pytest.mark.parametrize("strategy", first(1, ["ad_psgd", "gossip", "malt"]))
@pytest.mark.parametrize("rank", first(1, [1, 2]))
def test_a_killed_rank_is_named(strategy: str, rank: int) -> None:
    run = wb.run(mixed(strategy, 4, iterations=LONG, pad_compute="2 ms"))
    with over_in_the_end(run):
        training(run, 4)
        run.kill(rank)
        with pytest.raises(wb.PeerLost, match=f"rank {rank}"):
            run.wait(timeout=90)


# ---- the laws themselves


@cache
def _good() -> tuple[pl.DataFrame, dict[str, Any], pl.DataFrame, dict[str, Any]]:
    ring, _, peers = ran(mixed("gossip", 5, spread=0.1, **STILL))
    pairs, _, pair_facts = ran(mixed("ad_psgd", 4, spread=0.1, **STILL))
    return ring.events, peers, pairs.events, pair_facts


def test_laws_fail_where_they_are_broken() -> None:
    ring, peers, pairs, pair_facts = _good()
    p = pl.col
    W = graphs.ring(5).weights
    sends = (p("kind") == "send") & (p("name") == "parameters")
    sketched = (p("kind") == "metric") & (p("name") == "sketch")
    assert laws.along_edges(ring, {**peers, "edges": peers["edges"][1:]})
    lost = ring.filter(~(sends & (p("rank") == 2) & (p("iteration") == 7)))
    (violation, *_) = laws.once_a_round(lost, peers, 30)
    assert "in iterations [1, 2, 3, 4, 5, 6, 7, 9]" in violation.words, "they count from 1"
    moved = ring.with_columns(
        value=pl.when(sketched & (p("rank") == 1) & (p("iteration") > 5))
        .then(p("value") * 1.001)
        .otherwise(p("value"))
    )
    assert laws.mean_kept(moved)
    assert laws.mean_kept(ring.filter(~sketched))
    assert laws.decays(ring, graphs.exponential(5).weights)
    assert not laws.decays(ring, W)
    answers = sends & (p("rank") == 1) & (p("op") == 3)
    assert laws.answered(pairs.filter(~answers), pair_facts)
    early = pairs.with_columns(
        end_ns=pl.when(answers).then(p("start_ns").min()).otherwise(p("end_ns"))
    )
    assert laws.answered(early, pair_facts)
    late = (p("kind") == "optimizer") & (p("name") == "mix") & (p("lane") == "server")
    crossing = pairs.with_columns(end_ns=p("end_ns") + pl.when(late).then(10**9).otherwise(0))
    assert laws.answered(crossing, pair_facts)
