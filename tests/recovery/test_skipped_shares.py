"""``bad_minibatch="skip"`` where ranks compute one forward pass together, and where each leaves out
its own share.
"""

from __future__ import annotations

import math
from typing import Any

import polars as pl
import pytest
import torch

import workbench as wb
from tests.live import lenet
from tests.pairwise import first
from tests.recovery.test_bad_minibatches import ALL, AT, experiment, without
from workbench.rank.batches import Minibatches, partition
from workbench.rank.placement import collate
from workbench.tasks.lenet_digits import Task

KINDS = ["nan", "raises", "shape"]
SHARED: list[tuple[str, dict[str, Any]]] = [
    ("fsdp", {}),
    ("tensor_parallel", {}),
    ("pipeline", {"microbatches": 2}),
    ("data_servers", {}),
    ("fsdp", {"reshard_after_forward": False, "prefetch": 1}),
    ("zero", {}),
    ("zero", {"zero": 2, "accumulate": 2}),
    ("pipeline", {"microbatches": 2, "schedule": "zb_h1"}),
    ("pipeline", {"microbatches": 2, "replicas": 2}),
]
ALONE: list[tuple[str, dict[str, Any]]] = [
    ("parameter_server", {"servers": 1}),
    ("gossip", {"graph": "complete", "mix": "after"}),
    ("malt", {"cb": 1, "dataflow": "complete", "wait": True}),
    ("parameter_server", {"servers": 2, "replicas": 2}),
]


@pytest.mark.full
@pytest.mark.parametrize(
    ("case", "kind"),
    first(1, [(case, KINDS[at % 3]) for at, case in enumerate(SHARED)])
    + [(SHARED[2], "nan")]  # the last stage takes only the targets
    + [pytest.param(case, kind, marks=pytest.mark.full) for case in SHARED for kind in KINDS],
    ids=str,
)
def test_ranks_of_one_pass_leave_a_minibatch_out_together(
    case: tuple[str, dict[str, Any]], kind: Any
) -> None:
    strategy, options = case
    ranks = 2 * options.get("replicas", 1)
    fault = wb.Corrupt(rank=ranks - 1, at_iteration=AT, kind=kind)
    exp = experiment(strategy, ranks, options=options, faults=fault, bad_minibatch="skip")
    run = wb.run(exp)
    result = run.wait(timeout=90)
    assert result.losses == pytest.approx(without(), rel=1e-12, abs=1e-12, nan_ok=True)
    (one,) = run.skipped()
    assert (one.iteration, one.rank) == (AT, ranks - 1)
    assert list(one.samples) == Minibatches(1437, exp.batch_size, exp.seed).ids(AT).tolist()
    rows = run.events.with_columns(pl.col("kind", "name").cast(pl.String))
    struck = rows.filter(pl.col("kind") == "fault", pl.col("name") == f"corrupt {kind}")
    assert struck.select("rank", "value").rows() == [(ranks - 1, one.bad[0])]
    assert len(one.bad) == 1, "one sample, however many microbatches its rank loads"
    assert not run.detection().missed and one.bad[0] in one.samples


@pytest.mark.parametrize("strategy", first(1, ["pipeline", "fsdp", "tensor_parallel"]))
def test_the_rank_with_the_sample_is_named_though_all_have_the_loss(strategy: str) -> None:
    """The first rank's inputs are corrupt; a pipeline's loss is on the last."""
    fault = wb.Corrupt(rank=0, at_iteration=AT)
    run = wb.run(experiment(strategy, 2, faults=fault, bad_minibatch="fail"))
    with pytest.raises(wb.BadMinibatch, match=r"in layer 0.* No parameter has changed") as failed:
        run.wait(timeout=60)
    sample = run.events.filter(pl.col("kind").cast(pl.String) == "fault")["value"][0]
    assert failed.value.rank == 0 and f"{int(sample)}" in str(failed.value)


def replay(exp: wb.Experiment, workers: int, bad: int, *, mean_of_present: bool) -> list[float]:
    """Return the losses of one process that lacks the share of worker ``bad`` in iteration AT.
    ``mean_of_present``: the others' gradients are weighted as if they were all.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # two that wait for each other crawl on a busy machine
    task, losses = Task(), []
    torch.manual_seed(exp.seed)
    model, samples = task.model().double(), task.dataset("train")
    optimizer = torch.optim.SGD(model.parameters(), lr=exp.learning_rate)
    for iteration in range(ALL):
        ids = Minibatches(len(samples), exp.batch_size, exp.seed).ids(iteration)
        parts = [partition(ids, rank, workers) for rank in range(workers)]
        if iteration == AT:
            del parts[bad]
        there = sum(map(len, parts))
        optimizer.zero_grad()
        mean = 0.0
        for part in parts:
            x, y = collate(samples, part)
            loss = task.loss(model, (x.double(), y))
            (loss * len(part) / (there if mean_of_present else len(ids))).backward()
            mean += float(loss.detach()) * len(part) / there
        optimizer.step()
        losses.append(mean)
    torch.set_num_threads(threads)
    return losses


@pytest.mark.parametrize(
    ("case", "kind"),
    first(1, [(case, KINDS[at % 3]) for at, case in enumerate(ALONE)])
    + [pytest.param(case, kind, marks=pytest.mark.full) for case in ALONE for kind in KINDS],
    ids=str,
)
def test_a_rank_that_trains_for_itself_leaves_out_its_own_share(
    case: tuple[str, dict[str, Any]], kind: Any
) -> None:
    strategy, options = case
    workers, servers = 3, options.get("servers", 0)
    fault = wb.Corrupt(rank=servers + 1, at_iteration=AT, kind=kind)
    exp = experiment(
        strategy,
        servers + workers,
        optimizer="sgd",
        options=options,
        faults=fault,
        bad_minibatch="skip",
    )
    run = wb.run(exp)
    result = run.wait(timeout=90)
    expected = replay(exp, workers, 1, mean_of_present=bool(servers))
    assert result.losses == pytest.approx(expected, rel=1e-12, abs=1e-12)
    (one,) = run.skipped()
    ids = Minibatches(1437, exp.batch_size, exp.seed).ids(AT)
    assert (one.iteration, one.rank) == (AT, servers + 1)
    assert list(one.samples) == partition(ids, 1, workers).tolist()
    assert one.bad == (one.samples[0],)


@pytest.mark.parametrize(
    ("strategy", "options"),
    first(1, [("ad_psgd", {}), ("parameter_server", {"consistency": "asp"}), ("malt", {})]),
)
def test_a_rank_that_does_not_wait_goes_on(strategy: str, options: dict[str, Any]) -> None:
    fault = wb.Corrupt(rank=2, at_iteration=AT)
    run = wb.run(experiment(strategy, 3, options=options, faults=fault, bad_minibatch="skip"))
    result = run.wait(timeout=90)
    assert [(one.iteration, one.rank) for one in run.skipped()] == [(AT, 2)]
    assert len(result.losses) == ALL and all(map(math.isfinite, result.losses))
    assert all(bool(one.isfinite().all()) for one in result.parameters.values())


def test_a_pipeline_without_a_flush_is_refused_by_name() -> None:
    exp = lenet(strategy="pipeline", options={"schedule": "pipedream"}, bad_minibatch="skip")
    with pytest.raises(wb.SpecError, match=r"pipedream.*no flush"):
        wb.run(exp)
