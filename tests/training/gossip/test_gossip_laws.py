"""The laws of replicas that mix, over real processes, read from their events.

Without gradients the mean stays and disagreement shrinks as theory has it; messages keep to the
graph; over a complete graph, mixed after the update, it is data parallel; pairs are averaged whole;
MALT sends its share of all to all, and waits for nobody. And each law fails where it is broken.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
import torch.distributed as dist

import workbench as wb
from tests.digits import Digits
from tests.live import LONG, of, over_in_the_end, training
from tests.pairwise import Case, first, pairwise, sampled
from tests.test_training_laws import check_equal, name_of, sequential
from workbench.analysis import measures
from workbench.analysis.curves import Curves
from workbench.laws import check_events, replicas_identical
from workbench.training.gossip import graphs, laws, theory
from workbench.training.gossip.start import spread_out
from workbench.training.parameter_servers.flat import Flat

LINEAR = 650  # elements of the small task's parameters
STILL = {"lr": 1e-12, "dtype": "float64"}  # gradients that change nothing


def mixed(strategy: str, ranks: int, **fields: Any) -> wb.Experiment:
    """A small experiment; what is no field is an option."""
    own = {name: fields.pop(name) for name in [*fields] if name not in wb.Experiment.model_fields}
    base = {"task": Digits, "iterations": 30, "batch_size": 48, "lr": 0.05}
    return wb.Experiment(strategy=strategy, ranks=ranks, options=own, **{**base, **fields})


def ran(exp: wb.Experiment) -> tuple[wb.Run, wb.Result, dict[str, Any]]:
    """A run that went well and whose table keeps the table's own laws; and what is told of it."""
    run = wb.run(exp)
    result = run.wait(timeout=90)
    assert not check_events(run.events)
    assert not replicas_identical(result.digests)
    assert sorted(result.digests) == list(range(exp.ranks))
    assert len(result.losses) == exp.iterations
    return run, result, json.loads(run.store.metadata["peers"])


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
    W = np.diag([0.25, 0.75, 0.75, 0.75])  # the hub has three neighbours, the others the hub
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


@pytest.mark.parametrize(
    "options",
    first(1, [{"graph": "complete", "mix": "before"}, {"graph": "ring", "mix": "after"}]),
    ids=["mixed before", "ring"],
)
def test_otherwise_it_is_not(options: Mapping[str, Any]) -> None:
    exp = wb.Experiment(
        strategy="gossip", ranks=4, iterations=60, dtype="float64", options=dict(options)
    )
    losses = wb.run(exp).wait(timeout=90).losses
    assert np.abs(np.subtract(losses, sequential("sgd", "float64", 64, 60).losses)).max() > 1e-4


@pytest.mark.full
def test_replicas_that_mix_learn() -> None:
    reference = sequential("sgd", "float32", 64, 60).losses
    for strategy in ("gossip", "ad_psgd", "malt"):
        exp = wb.Experiment(strategy=strategy, ranks=4, iterations=60, lr=0.1)
        losses = wb.run(exp).wait(timeout=90).losses
        assert np.mean(losses[-10:]) < 1.5 * np.mean(reference[-10:]) + 0.1, strategy


# ---- AD-PSGD


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
    first_N = _first(ranks).mean(0)
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


def _first(ranks: int) -> torch.Tensor:
    """Return what replicas begin with, made again here: a row per rank."""
    each = []
    for rank in range(ranks):
        torch.manual_seed(0)
        flat = Flat(Digits().model().double())
        spread_out(flat, 0.1, 0, rank)
        each.append(flat.values_N)
    return torch.stack(each)


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


# ---- MALT


@pytest.mark.parametrize("wait", first(1, [False, True]), ids=["asynchronous", "in step"])
@pytest.mark.parametrize("ranks", first(1, [5, 2, 3, 8]))
def test_malt_sends_its_share_of_all_to_all(ranks: int, wait: bool) -> None:
    few, _, peers = ran(mixed("malt", ranks, wait=wait))
    everybody, _, _ = ran(mixed("malt", ranks, dataflow="complete", cb=1, wait=True))
    assert not laws.along_edges(few.events, peers)
    if wait:
        assert not laws.once_a_round(few.events, peers, 30)
    count = len(graphs.halton_offsets(ranks))
    sent, whole = (
        of(run.events, kind="send", collective="p2p", name="update")["nbytes"].sum()
        for run in (few, everybody)
    )
    left_out = of(few.events, kind="metric", name="left out").height * LINEAR * 4
    assert whole == ranks * (ranks - 1) * 30 * LINEAR * 4
    assert (sent + left_out) / whole == pytest.approx(count / (ranks - 1) / 5)


@pytest.mark.parametrize("ranks", first(1, [5, 3, 8]))
def test_malt_in_step_with_parameters_agrees_as_theory_says(ranks: int) -> None:
    run, _, peers = ran(
        mixed(
            "malt", ranks, wait=True, scatter="parameters", cb=2, spread=0.1, **STILL, iterations=40
        )
    )
    W = graphs.halton(ranks).weights
    assert peers["rate"] == pytest.approx(theory.rate(W))
    assert not laws.mean_kept(run.events)
    assert not laws.decays(run.events, W, every=2)


@pytest.mark.parametrize("ranks", first(1, [3, 8]))
def test_what_malt_averages_stays_between_what_replicas_had(ranks: int) -> None:
    """However many have come: a mean of parameters is never outside of them."""
    exp = mixed("malt", ranks, scatter="parameters", cb=1, spread=0.1, **STILL, pad_compute="2 ms")
    _, result, _ = ran(exp)
    first = _first(ranks)
    last_N = torch.cat([one.reshape(-1) for one in result.parameters.values()])
    assert (last_N >= first.min(0).values - 1e-9).all()
    assert (last_N <= first.max(0).values + 1e-9).all()


class LearnsOnce(Digits):
    """Rank 0 alone has a gradient, and only in its first iteration."""

    def __init__(self) -> None:
        self.learned = False

    def loss(self, model: torch.nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
        loss = super().loss(model, batch)
        learns = dist.get_rank() == 0 and not self.learned
        self.learned = True
        return loss if learns else loss * 0


@pytest.mark.parametrize("scatter", ["updates", "parameters"])
def test_malt_passes_on_what_it_has_heard(scatter: str) -> None:
    """Rank 0 alone learns, once: the others hear of it hop by hop, and all end at the mean."""
    exp = mixed(
        "malt", 8, task=LearnsOnce, scatter=scatter, cb=1, wait=True, dtype="float64", lr=1.0
    )
    run, _, peers = ran(exp)
    topology = graphs.halton(8)
    assert max(topology.distances()) == 2 and peers["rate"] == pytest.approx(
        theory.rate(topology.weights)
    )
    rows = of(run.events, kind="metric", name="sketch").sort("iteration", "rank", "chunk")
    x = np.array(rows["value"]).reshape(exp.iterations, 8, -1)  # after each iteration
    untouched = x[0, topology.distances().index(2)]
    for rank, hops in enumerate(topology.distances()):
        heard = np.abs(x[:, rank] - untouched).max(axis=1) > 1e-9
        assert heard.tolist() == [t + 1 >= hops for t in range(exp.iterations)], rank
    assert not laws.mean_kept(run.events, within=1e-6)  # rows hold seven digits
    learned = 8 * (x[0].mean(0) - untouched)  # rank 0's update, which all have an eighth of
    assert np.abs(x[-1] - untouched - learned / 8).max() < 1e-6 * np.abs(learned).max()
    for t in range(exp.iterations):  # shares of the update: each column of a power of W sums to 1
        shares = np.linalg.matrix_power(topology.weights, t + 1)[:, 0]
        assert (
            np.abs(x[t] - untouched - np.outer(shares, learned)).max()
            < 1e-6 * np.abs(learned).max()
        )


def test_malts_updates_keep_replicas_as_close_as_its_parameters_do() -> None:
    updates, parameters = (
        ran(mixed("malt", 8, scatter=scatter, cb=1, wait=True, dtype="float64"))
        for scatter in ("updates", "parameters")
    )
    assert updates[1].losses == pytest.approx(parameters[1].losses, rel=1e-12)
    apart, reference = (laws.total(one[0].disagreement())["all"] for one in (updates, parameters))
    assert apart.to_list() == pytest.approx(reference.to_list(), rel=1e-6)


def _mean(mine_N: torch.Tensor, theirs: Mapping[int, torch.Tensor]) -> torch.Tensor:
    return torch.stack([mine_N, *theirs.values()]).mean(0)


def _mine(mine_N: torch.Tensor, theirs: Mapping[int, torch.Tensor]) -> torch.Tensor:
    return mine_N


def _short(mine_N: torch.Tensor, theirs: Mapping[int, torch.Tensor]) -> torch.Tensor:
    return mine_N[1:]


def test_malt_gathers_by_a_function_of_the_users() -> None:
    fields: dict[str, Any] = {"cb": 2, "wait": True, "dtype": "float64", "iterations": 12}
    ours, same = (ran(mixed("malt", 4, **fields, gather=one)) for one in ("average", _mean))
    assert same[1].losses == pytest.approx(ours[1].losses, rel=1e-12)
    alone, _, peers = ran(mixed("malt", 4, **fields, gather=_mine))
    assert peers["rate"] is None and ours[2]["rate"] is not None
    left, apart = (laws.total(one.disagreement())["all"][-1] for one in (ours[0], alone))
    assert apart > 1.5 * left
    with pytest.raises(wb.WorkbenchError, match=r"gather.*shape \(650,\).*rank \d.*\(649,\)"):
        wb.run(mixed("malt", 2, **fields, gather=_short)).wait(timeout=90)


def test_malt_with_a_bound_uses_no_message_that_is_older() -> None:
    """The others run ahead of a slow rank by the bound, and no further."""
    slow = (wb.Slow(rank=1, factor=6),)
    for bound in (0, 2):
        exp = mixed("malt", 4, cb=1, wait=True, bound=bound, pad_compute="3 ms", faults=slow)
        run, _, peers = ran(exp)
        assert not laws.within_bound(run.events, peers, bound)
        assert not bound or laws.within_bound(run.events, peers, bound - 1)
        assert not laws.once_a_round(run.events, peers, exp.iterations)


@pytest.mark.parametrize("scatter", first(1, ["parameters", "updates"]))
def test_malt_counts_every_message_that_no_mean_has(scatter: str) -> None:
    exp = mixed("malt", 5, cb=1, scatter=scatter, faults=(wb.Slow(rank=1, factor=6),))
    run, _, peers = ran(exp)
    missed = laws.missed(run.events)
    of_why = dict(missed.group_by("why").agg(pl.sum("messages")).rows())
    sent = laws.messages(run.events).height
    assert sent + of_why.get("left out", 0) == len(peers["edges"]) * exp.iterations
    averaged = of(run.events, kind="metric", name="averaged")
    used = int(averaged["value"].sum()) - averaged.height  # each mean has one of the rank's own
    assert used == sent - of_why.get("overwritten", 0) - of_why.get("too late", 0)
    curves = Curves(run.store)
    curves.update()
    assert measures.of(run, curves)["messages_missed"] == missed["messages"].sum()


def test_malt_with_too_few_offsets_never_agrees() -> None:
    run, _, peers = ran(
        mixed("malt", 8, wait=True, scatter="parameters", cb=1, peers=3, spread=0.1, **STILL)
    )
    assert "2 separate groups" in peers["words"]
    left = laws.total(run.disagreement())["all"].to_list()
    assert left[-1] > 0.5 * left[0]
    assert laws.decays(run.events, graphs.halton(8).weights)


@pytest.mark.alone
def test_malt_waits_for_nobody() -> None:
    exp = mixed("malt", 4, cb=2, pad_compute="10 ms", faults=(wb.Slow(rank=1, factor=6),))
    run, _, _ = ran(exp)
    ends = dict(
        of(run.events, kind="metric", name="loss").group_by("rank").agg(pl.max("end_ns")).rows()
    )
    begin = run.events.filter(kind="forward")["start_ns"].min()
    took = {rank: end - begin for rank, end in ends.items()}  # type: ignore[operator]
    assert max(each for rank, each in took.items() if rank != 1) < 0.5 * took[1], took


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


@pytest.mark.parametrize("strategy", ["gossip", "ad_psgd", "malt"])
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
