"""The laws of MALT, over real processes, read from their events.

A rank sends its share of everything to every rank, passes on what it has received, and does not
wait for slower ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
import torch.distributed as dist

import workbench as wb
from tests.digits import Digits
from tests.live import of
from tests.pairwise import first
from tests.training.gossip.mixed import LINEAR, STILL, first_parameters, mixed, ran
from workbench.analysis import measures
from workbench.analysis.curves import Curves
from workbench.training.gossip import graphs, laws, theory


@pytest.mark.full
@pytest.mark.parametrize("wait", first(1, [False, True]), ids=["asynchronous", "in step"])
@pytest.mark.parametrize("ranks", first(1, [5, 2, 3, 8]))
def test_malt_sends_its_share_of_all_to_all(ranks: int, wait: bool) -> None:
    few, _, peers = ran(mixed("malt", ranks, wait=wait))
    complete, _, _ = ran(mixed("malt", ranks, dataflow="complete", cb=1, wait=True))
    assert not laws.along_edges(few.events, peers)
    if wait:
        assert not laws.once_a_round(few.events, peers, 30)
    count = len(graphs.halton_offsets(ranks))
    sent, whole = (
        of(run.events, kind="send", collective="p2p", name="update")["nbytes"].sum()
        for run in (few, complete)
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
    begun = first_parameters(ranks)
    last_N = torch.cat([one.reshape(-1) for one in result.parameters.values()])
    assert (last_N >= begun.min(0).values - 1e-9).all()
    assert (last_N <= begun.max(0).values + 1e-9).all()


class LearnsOnce(Digits):
    """Rank 0 alone has a gradient, and only in its first iteration."""

    def __init__(self) -> None:
        self.learned = False

    def loss(self, model: torch.nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
        loss = super().loss(model, batch)
        learns = dist.get_rank() == 0 and not self.learned
        self.learned = True
        return loss if learns else loss * 0


@pytest.mark.parametrize("scatter", first(1, ["updates", "parameters"]))
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


@pytest.mark.full  # each of the two passes on what it has heard, as theory says
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


@pytest.mark.full
def test_malt_gathers_by_a_function_of_the_users() -> None:
    fields: dict[str, Any] = {"cb": 2, "wait": True, "dtype": "float64", "iterations": 6}
    ours, same = (ran(mixed("malt", 4, **fields, gather=one)) for one in ("average", _mean))
    assert same[1].losses == pytest.approx(ours[1].losses, rel=1e-12)
    alone, _, peers = ran(mixed("malt", 4, **fields, gather=_mine))
    assert peers["rate"] is None and ours[2]["rate"] is not None
    left, apart = (laws.total(one.disagreement())["all"][-1] for one in (ours[0], alone))
    assert apart > 1.5 * left
    with pytest.raises(wb.WorkbenchError, match=r"gather.*shape \(650,\).*rank \d.*\(649,\)"):
        wb.run(mixed("malt", 2, **fields, gather=_short)).wait(timeout=90)


@pytest.mark.full
def test_malt_with_a_bound_uses_no_message_that_is_older() -> None:
    """The others run ahead of a slow rank by the bound, and no further."""
    slow = (wb.Slow(rank=1, factor=6),)
    for bound in (0, 2):
        exp = mixed("malt", 4, cb=1, wait=True, bound=bound, pad_compute="3 ms", faults=slow)
        run, _, peers = ran(exp)
        assert not laws.within_bound(run.events, peers, bound)
        assert not bound or laws.within_bound(run.events, peers, bound - 1)
        assert not laws.once_a_round(run.events, peers, exp.iterations)


@pytest.mark.full
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


@pytest.mark.full
def test_malt_with_too_few_offsets_never_agrees() -> None:
    run, _, peers = ran(
        mixed("malt", 8, wait=True, scatter="parameters", cb=1, peers=3, spread=0.1, **STILL)
    )
    assert "2 separate groups" in peers["words"]
    left = laws.total(run.disagreement())["all"].to_list()
    assert left[-1] > 0.5 * left[0]
    assert laws.decays(run.events, graphs.halton(8).weights)


@pytest.mark.alone
def test_malt_does_not_wait_for_a_slow_rank() -> None:
    exp = mixed("malt", 4, cb=2, pad_compute="10 ms", faults=(wb.Slow(rank=1, factor=6),))
    run, _, _ = ran(exp)
    ends = dict(
        of(run.events, kind="metric", name="loss").group_by("rank").agg(pl.max("end_ns")).rows()
    )
    begin = run.events.filter(kind="forward")["start_ns"].min()
    took = {rank: end - begin for rank, end in ends.items()}  # type: ignore[operator]
    assert max(each for rank, each in took.items() if rank != 1) < 0.5 * took[1], took
