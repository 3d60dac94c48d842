"""A minibatch that is corrupt: named, left out by all ranks together, or followed into the sum."""

from __future__ import annotations

import functools
import json
import math
from collections import Counter
from typing import Any

import polars as pl
import pytest

import workbench as wb
from tests.live import lenet
from tests.pairwise import first
from workbench.rank.batches import Minibatches

ALL, AT = 6, 3
STRATEGIES: list[tuple[str, dict[str, Any]]] = [
    ("data_parallel", {}),
    ("ddp", {"bucket_cap_mb": 0.05}),
    ("fusion", {"threshold": "100 KB"}),
    ("ddp", {"accumulate": 2}),
    ("top_k", {"ratio": 1.0}),
    ("data_parallel", {"examples": "partitioned"}),
]
KINDS = ["nan", "raises", "shape"]


def experiment(strategy: str, ranks: int = 3, **fields: Any) -> wb.Experiment:
    """Return a run with Adam, whose moments a skipped minibatch must not change either."""
    return lenet(
        strategy=strategy,
        ranks=ranks,
        **{"optimizer": "adam", "iterations": ALL, "dtype": "float64", **fields},
    )


@functools.cache
def without(kind: str = "nan") -> list[float]:
    """Return the losses of one process that leaves the same minibatch out."""
    fault = wb.Corrupt(rank=0, at_iteration=AT, kind=kind)
    exp = experiment("sequential", 1, faults=fault, bad_minibatch="skip")
    return wb.run(exp).wait(timeout=90).losses


def test_a_minibatch_that_is_left_out_changes_nothing_and_the_next_ones_do() -> None:
    """Compared with a plain loop in torch, which leaves out the same samples."""
    import torch

    from workbench.rank.placement import collate
    from workbench.tasks.lenet_digits import Task

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # two that wait for each other crawl on a busy machine
    task, losses = Task(), []
    torch.manual_seed(0)
    model, samples = task.model().double(), task.dataset("train")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for iteration in range(ALL):
        if iteration == AT:
            losses.append(math.nan)
            continue
        x, y = collate(samples, Minibatches(len(samples), 16, 0).ids(iteration))
        loss = task.loss(model, (x.double(), y))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    torch.set_num_threads(threads)
    assert without() == pytest.approx(losses, rel=1e-12, nan_ok=True)


@pytest.mark.parametrize(
    ("case", "kind"),
    first(2, [(case, KINDS[at % 3]) for at, case in enumerate(STRATEGIES)])
    + [pytest.param(case, kind, marks=pytest.mark.full) for case in STRATEGIES for kind in KINDS],
    ids=str,
)
def test_all_ranks_leave_it_out_and_take_every_other_sample_once(
    case: tuple[str, dict[str, Any]], kind: Any
) -> None:
    strategy, options = case
    fault = wb.Corrupt(rank=1, at_iteration=AT, kind=kind)
    exp = experiment(strategy, options=options, faults=fault, bad_minibatch="skip")
    run = wb.run(exp)
    result = run.wait(timeout=90)
    assert result.losses == pytest.approx(without(), rel=1e-12, abs=1e-12, nan_ok=True)
    assert math.isnan(result.losses[AT]) and len(set(result.digests.values())) == 1
    assert len(result.digests) == 3

    facts = json.loads(run.store.metadata["samples"])
    minibatches = Minibatches(facts["n"], exp.batch_size, exp.seed)
    (one,) = run.skipped()
    assert (one.iteration, one.rank) == (AT, 1)
    assert list(one.samples) == minibatches.ids(AT).tolist()
    assert len(one.bad) == 1 and one.bad[0] in one.samples
    assert ("OSError" in one.why) == (kind == "raises")
    assert (one.layer == "0") == (kind == "nan"), "the first layer that the NaN comes to"
    for iteration in range(ALL):
        whole, counts = minibatches.ids(iteration).tolist(), Counter[int]()
        for rank in range(3):
            part = json.loads(run.store.metadata[f"samples {rank}"])[iteration]
            counts.update(whole[slice(*part["slice"])] if isinstance(part, dict) else part)
        assert counts == Counter([] if iteration == AT else whole)

    rows = run.events.with_columns(pl.col("kind", "name").cast(pl.String))
    struck = rows.filter(pl.col("kind") == "fault")
    assert struck.select("rank", "name", "value").rows()[0] == (1, f"corrupt {kind}", one.bad[0])
    detections = rows.filter(pl.col("kind") == "detect", pl.col("name").str.starts_with("bad"))
    marks = detections.select("rank", "peer", "iteration", "value").rows()
    assert marks == [(1, 1, AT, one.bad[0])]
    updates = rows.filter(pl.col("kind") == "optimizer", pl.col("name") == "")
    assert AT not in updates["iteration"].to_list() and updates["iteration"].n_unique() == ALL - 1


@pytest.mark.full
def test_in_a_round_it_is_left_out_and_the_round_ends_as_ever() -> None:
    """Averaged after every iteration, local SGD is data parallel training."""
    fault = wb.Corrupt(rank=1, at_iteration=AT)
    fields = {"optimizer": "sgd", "faults": fault, "bad_minibatch": "skip"}
    losses = {
        (strategy, every): wb.run(
            experiment(strategy, options={"every": every} if every else {}, **fields)
        )
        .wait(timeout=90)
        .losses
        for strategy, every in (("data_parallel", 0), ("local_sgd", 1), ("diloco", 4))
    }
    whole = losses["data_parallel", 0]
    assert losses["local_sgd", 1] == pytest.approx(whole, rel=1e-12, nan_ok=True)
    assert [at for at, loss in enumerate(losses["diloco", 4]) if math.isnan(loss)] == [AT]
    assert losses["diloco", 4][:1] == pytest.approx(whole[:1])


@pytest.mark.parametrize("strategy", first(1, ["data_parallel", "fusion", "ddp"]))
def test_an_error_names_rank_layer_and_sample_before_the_sum(strategy: str) -> None:
    ranks = 2
    fault = wb.Corrupt(rank=ranks - 1, at_iteration=AT)
    exp = experiment(strategy, ranks, faults=fault, bad_minibatch="fail")
    run = wb.run(exp)
    words = rf"iteration {AT + 1}: its gradient is not"
    with pytest.raises(wb.BadMinibatch, match=words) as failed:
        run.wait(timeout=60)
    error = failed.value
    sample = int(run.events.filter(pl.col("kind").cast(pl.String) == "fault")["value"][0])
    assert error.rank == ranks - 1 and error.how == "raised"
    assert f"[{sample}] bad by themselves" in str(error) and "in layer 0" in str(error)
    summed = run.events.filter(pl.col("iteration") == AT, pl.col("group") == "world")
    assert not summed.filter(pl.col("kind").cast(pl.String) == "recv").height


@pytest.mark.parametrize("algorithm", first(1, ["ring", "tree", "butterfly", "naive"]))
@pytest.mark.parametrize("ranks", [4])
def test_where_no_rank_looks_the_nan_is_followed_through_the_sum(
    algorithm: str, ranks: int
) -> None:
    fault = wb.Corrupt(rank=1, at_iteration=AT)
    exp = experiment("data_parallel", ranks, faults=fault, all_reduce=algorithm)
    run = wb.run(exp)
    result = run.wait(timeout=60)
    assert all(map(math.isfinite, result.losses[:AT]))
    assert all(map(math.isnan, result.losses[AT:])), "the mean, and all that follows"
    way = run.poison()
    assert way is not None and (way.rank, way.iteration) == (1, AT)
    assert way.reached == [0, 2, 3] and len(way.parameters) == len(result.parameters)
    assert way.table["exact"].all()
    whole = way.table.filter(pl.col("tensor") == way.parameters[0])
    if algorithm == "ring":  # chunk c goes from rank to rank; the rest is in the theory
        direct = whole.filter(pl.col("sender") == 1, pl.col("step") == 0)
        assert direct["receiver"].to_list() == [2] and direct["chunk"].to_list() == [1]
        for (chunk,), rows in whole.group_by("chunk"):
            by_step = rows.sort("step")
            assert set(by_step["receiver"]) == {0, 2, 3}, chunk
            assert by_step["step"].is_sorted() and by_step["receiver"].is_unique().all()
            hops = by_step.select("sender", "receiver").rows()
            assert hops == [(1, 2), (2, 3), (3, 0)], chunk
        assert "step 1: chunk 1 from rank 1 to 2" in repr(way)


class Normed:
    """A task whose model keeps running means, which a NaN would stay in for good."""

    def model(self) -> Any:
        import torch

        return torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))

    def dataset(self, split: str) -> Any:
        import torch

        generator = torch.Generator().manual_seed(1)
        return torch.utils.data.TensorDataset(torch.randn(64, 4, generator=generator))

    def loss(self, model: Any, batch: Any) -> Any:
        return model(batch[0]).square().mean()


def test_buffers_are_as_before_the_minibatch_that_is_left_out() -> None:
    fault = wb.Corrupt(rank=0, at_iteration=AT)
    exp = lenet(task=Normed, strategy="sequential", ranks=1, iterations=ALL, faults=fault)
    for policy, finite in (("skip", True), ("keep", False)):
        result = wb.run(exp.replace(bad_minibatch=policy)).wait(timeout=60)
        assert bool(result.parameters["0.running_mean"].isfinite().all()) == finite
    with pytest.raises(
        wb.BadMinibatch, match=r"first in layer 0, of parameter 0\.weight and 3 more"
    ):
        wb.run(exp.replace(bad_minibatch="fail")).wait(timeout=60)


@pytest.mark.full
def test_buffers_are_as_before_all_parts_of_the_minibatch_that_is_left_out() -> None:
    """A rank accumulates the gradients of two parts, and the second one is bad."""
    bad = int(Minibatches(64, 16, 0).ids(1)[2])  # the second sample of rank 0

    class Bad(Normed):
        def __init__(self, bad: int = -1) -> None:
            self.bad = bad

        def dataset(self, split: str) -> Any:
            result = super().dataset(split)
            if self.bad >= 0:
                result.tensors[0][self.bad, 0] = float("nan")
            return result

    exp = lenet(task=Bad, strategy="ddp", options={"accumulate": 2}, iterations=1)
    whole = wb.run(exp).wait(timeout=60).parameters
    exp = exp.replace(iterations=2, task_options={"bad": bad}, bad_minibatch="skip")
    result = wb.run(exp).wait(timeout=60)
    assert math.isnan(result.losses[1])
    for name, value in whole.items():
        assert value.equal(result.parameters[name]), name


def test_a_run_without_such_a_fault_has_nothing_to_follow() -> None:
    run = wb.run(experiment("data_parallel", bad_minibatch="skip"))
    result = run.wait(timeout=60)
    assert run.poison() is None and run.skipped() == []
    assert result.losses == wb.run(experiment("data_parallel")).wait(timeout=60).losses


class Broken:
    """A task whose samples can never be trained on, from the third minibatch on."""

    def model(self) -> Any:
        import torch

        return torch.nn.Linear(4, 1)

    def dataset(self, split: str) -> Any:
        import torch

        return torch.utils.data.TensorDataset(torch.ones(64, 4))

    def loss(self, model: Any, batch: Any) -> Any:
        self.calls = getattr(self, "calls", 0) + 1
        result = model(batch[0]).square().mean()
        return result * float("nan") if self.calls > 2 else result


def test_data_that_are_always_bad_end_the_run() -> None:
    run = wb.run(lenet(task=Broken, bad_minibatch="skip", iterations=40))
    with pytest.raises(wb.BadMinibatch, match=r"10 minibatches in a row .* not chance"):
        run.wait(timeout=60)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"faults": wb.Corrupt(rank=4, at_iteration=0)}, "no rank 4; ranks=2 are 0 to 1"),
        ({"faults": wb.Corrupt(rank=0, at_iteration=99)}, "never happens"),
        ({"faults": [wb.Corrupt(rank=0, at_iteration=1)] * 2}, "another Corrupt"),
        ({"faults": [{"fault": "corrupt", "rank": 0, "at_iteration": 1, "kind": "rot"}]}, "'rot'"),
        ({"bad_minibatch": "drop"}, "'keep', 'fail' or 'skip'"),
        (
            {"bad_minibatch": "skip", "strategy": "own.py:train"},
            "own.py",
        ),
        (
            {"bad_minibatch": "skip", "strategy": "fusion", "options": {"cycle": "1 ms"}},
            "take cycle='0 ms'",
        ),
        (
            {"bad_minibatch": "fail", "strategy": "ddp", "options": {"runs_out": (5, 2)}},
            "runs_out",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(wb.SpecError, match=words):
        lenet(**fields)
