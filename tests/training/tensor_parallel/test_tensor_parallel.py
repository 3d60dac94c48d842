"""Tensor parallel training is sequential training, with the weights cut over real processes.

What is wrong on purpose must not pass.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import workbench as wb
from tests.live import lenet, of
from tests.pairwise import first
from workbench.laws import check_events, replicas_identical
from workbench.strategies import tensor_parallel

BOUND = {"float32": (1e-5, 1e-4), "float64": (1e-12, 1e-11)}  # of losses, of parameters


# -- training --


SMALL = {"layers": 2, "width": 32, "heads": 4, "context": 13}
RULES: dict[str, dict[str, Any]] = {
    "sgd": {"optimizer": "sgd", "lr": 0.1},
    "momentum": {"optimizer": "sgd", "lr": 0.05, "momentum": 0.9},
    "adam": {"optimizer": "adam", "lr": 1e-3},
}


def experiment(task: str, rule: str, dtype: str, **fields: Any) -> wb.Experiment:
    """LeNet on 100 of 1,437 samples at a time, so that the last of an epoch are fewer; or text."""
    of_task = (
        {"iterations": 20, "batch_size": 100}
        if task == "lenet_digits"
        else {"iterations": 15, "batch_size": 8, "task_options": SMALL}
    )
    return wb.Experiment(
        **{
            "task": task,
            "dtype": dtype,
            "record": False,
            "threads": 1,
            **of_task,
            **RULES[rule],
            **fields,
        }
    )


@cache
def sequential(task: str, rule: str, dtype: str) -> wb.Result:
    exp = experiment(task, rule, dtype, strategy="sequential", ranks=1)
    return wb.run(exp).wait(timeout=120)


def check_equal(result: wb.Result, reference: wb.Result, dtype: str) -> None:
    """Losses and whole parameters within rounding; what is whole on each rank is the same bits."""
    of_losses, of_parameters = BOUND[dtype]
    assert len(result.losses) == len(reference.losses)
    difference = np.abs(np.subtract(result.losses, reference.losses)).max()
    assert difference <= of_losses, f"losses differ by {difference:.2e}"
    assert result.parameters.keys() == reference.parameters.keys()
    for name, value in result.parameters.items():
        furthest = (value - reference.parameters[name]).abs().max().item()
        assert furthest <= of_parameters, f"{name} differs by {furthest:.2e}"
    assert not replicas_identical(result.digests)
    for name, value in result.metrics.items():
        assert value == pytest.approx(reference.metrics[name], rel=1e-5)


CASES = [
    ("lenet_digits", "sgd", "float32", 2, False),
    ("lenet_digits", "momentum", "float64", 3, False),
    ("char_transformer", "momentum", "float32", 2, True),
    ("char_transformer", "adam", "float64", 4, False),
    ("lenet_digits", "adam", "float32", 4, False),
    ("lenet_digits", "sgd", "float64", 8, False),
    ("char_transformer", "sgd", "float32", 3, False),
    ("char_transformer", "sgd", "float64", 3, True),
]


@pytest.mark.parametrize(("task", "rule", "dtype", "ranks", "tokens"), first(1, CASES))
def test_equals_sequential(task: str, rule: str, dtype: str, ranks: int, tokens: bool) -> None:
    options = {"sequence_parallel": True} if tokens else {}
    exp = experiment(task, rule, dtype, strategy="tensor_parallel", ranks=ranks, options=options)
    result = wb.run(exp).wait(timeout=120)
    assert sorted(result.digests) == list(range(ranks))
    check_equal(result, sequential(task, rule, dtype), dtype)


class OwnTask:
    """A user's own: its source travels to the ranks."""

    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 5), nn.Dropout(0.2), nn.Linear(5, 3)
        )

    def dataset(self, split: str) -> Any:
        x = torch.linspace(-1, 1, 40 * 6).view(40, 6).sin()
        return torch.utils.data.TensorDataset(x, x[:, :3] ** 2)

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        return F.mse_loss(model(batch[0]), batch[1])


@pytest.mark.full
def test_a_users_own_task_is_split_too() -> None:
    both = [
        wb.run(
            wb.Experiment(
                task=OwnTask,
                strategy=strategy,
                ranks=ranks,
                iterations=12,
                batch_size=16,
                lr=0.1,
                dtype="float64",
            )
        ).wait(timeout=60)
        for strategy, ranks in (("sequential", 1), ("tensor_parallel", 3))
    ]
    check_equal(both[1], both[0], "float64")


@pytest.mark.full
def test_its_ranks_refuse_what_cannot_be_split() -> None:
    run = wb.run(wb.Experiment(task=OwnTask, strategy="tensor_parallel", ranks=10, iterations=2))
    with pytest.raises(wb.SpecError, match="no layer of the model"):
        run.wait(timeout=60)


# -- what is wrong on purpose --


def without_sum_of_gradients(job: Any, config: Any) -> None:
    """The input of a column layer keeps the gradient of a rank's own columns."""
    from workbench.strategies import tensor_parallel
    from workbench.training.tensor_parallel import layers as sharded_layers

    sharded_layers._Copy.backward = staticmethod(lambda ctx, grad: (grad, None, None))
    tensor_parallel.train(job, tensor_parallel.Config())


def with_bias_on_each_rank(job: Any, config: Any) -> None:
    """A row layer adds its bias before the sum."""
    from workbench.strategies import tensor_parallel
    from workbench.training.tensor_parallel import layers as sharded_layers

    def forward(self: Any, x: Any) -> Any:
        summand = self.apply_to(x, self.weight, self.bias)
        return self._added(summand)

    sharded_layers.Row.forward = forward
    tensor_parallel.train(job, tensor_parallel.Config())


def with_own_samples(job: Any, config: Any) -> None:
    """A rank has the minibatch in an order of its own."""
    from dataclasses import replace

    import numpy as np

    from workbench.strategies import tensor_parallel

    iterations = job.iterations
    job.iterations = lambda: (replace(one, ids=np.roll(one.ids, job.rank)) for one in iterations())
    tensor_parallel.train(job, tensor_parallel.Config())


@pytest.mark.parametrize(
    "mutant",
    first(1, [without_sum_of_gradients, with_bias_on_each_rank, with_own_samples]),
    ids=lambda mutant: mutant.__name__,
)
def test_a_mutant_fails_the_check(mutant: Any) -> None:
    exp = experiment("lenet_digits", "sgd", "float32", strategy=mutant, ranks=2)
    result = wb.run(exp).wait(timeout=60)
    with pytest.raises(AssertionError, match="losses differ"):
        check_equal(result, sequential("lenet_digits", "sgd", "float32"), "float32")


# -- memory --


@pytest.mark.full
def test_a_model_too_large_for_one_rank_is_trained_by_four() -> None:
    """The ranks' measured most is below the limit at which the unsplit run is stopped."""

    def run(strategy: str, ranks: int, limit: str, **options: Any) -> wb.Run:
        return wb.run(
            experiment(
                "char_transformer",
                "adam",
                "float32",
                strategy=strategy,
                ranks=ranks,
                iterations=3,
                memory_limit=limit,
                options=options,
            )
        )

    whole = run("sequential", 1, "1 GB").wait(timeout=60).memory[0]
    split = run("tensor_parallel", 4, "1 GB").wait(timeout=60).memory
    apart = run("tensor_parallel", 4, "1 GB", sequence_parallel=True).wait(timeout=60).memory
    assert max(apart.values()) < min(split.values()) and max(split.values()) < 0.6 * whole
    limit = f"{max(split.values()) * 1.05 / 1e6:.3f} MB"
    with pytest.raises(wb.WorkbenchError, match=r"rank 0 holds .* more than memory_limit"):
        run("sequential", 1, limit).wait(timeout=60)
    kept = run("tensor_parallel", 4, limit).wait(timeout=60)
    assert kept.ok and kept.memory == split


# -- the record --


@cache
def recorded(tokens: bool) -> wb.Run:
    exp = experiment(
        "char_transformer",
        "sgd",
        "float32",
        strategy="tensor_parallel",
        ranks=3,
        record=True,
        iterations=4,
        options={"sequence_parallel": tokens},
    )
    run = wb.run(exp)
    run.wait(timeout=60)
    return run


@pytest.mark.parametrize("tokens", first(1, [False, True]))
def test_the_rows_are_the_collectives_that_were_planned(tokens: bool) -> None:
    run = recorded(tokens)
    assert not check_events(run.events)
    planned = json.loads(run.store.metadata["model"])["exchanges"]
    expected = [(one["name"], one["collective"], one["nbytes"]) for one in planned]
    for rank in range(3):
        for iteration in range(4):
            rows = of(run.events, rank=rank, iteration=iteration, kind="collective")
            rows = rows.filter(pl.col("group") == "default").sort("start_ns")
            calls = rows.select(pl.col("name", "collective").cast(pl.String), "nbytes")
            assert calls.rows() == expected


def test_forward_and_backward_hold_their_collectives() -> None:
    run = recorded(False)
    planned = json.loads(run.store.metadata["model"])["exchanges"]
    events = of(run.events, rank=1, iteration=1)
    rows = of(events, kind="collective").filter(pl.col("group") == "default").sort("start_ns")
    for one, row in zip(planned, rows.iter_rows(named=True), strict=True):
        (span,) = of(events, kind=one["pass"]).iter_rows(named=True)
        assert span["start_ns"] <= row["start_ns"] and row["end_ns"] <= span["end_ns"]


def test_the_loss_counts_once_and_metrics_are_not_training() -> None:
    events = recorded(False).events
    assert of(events, kind="metric", name="loss")["rank"].unique().to_list() == [0]
    aside = events.filter(pl.col("kind") == "collective", pl.col("iteration") < 0)
    assert aside.height and aside["group"].unique().to_list() == ["metrics"]


def test_the_page_is_told_which_rank_has_what() -> None:
    model_facts = json.loads(recorded(False).store.metadata["model"])
    names = [one["name"] for one in model_facts["layers"]]
    assert [one["layer"] for one in model_facts["shards"] if one["layer"] not in names] == []
    for one in model_facts["shards"]:
        places = [place for runs in one["runs"] for a, b in runs for place in range(a, b)]
        assert sorted(places) == list(range(one["size"]))
        assert bool(one["size"]) == (one["how"] != "whole")


def test_it_is_padded_as_others_are() -> None:
    exp = lenet(strategy="tensor_parallel", ranks=2, iterations=2, pad_compute="60 ms")
    run = wb.run(exp)
    run.wait(timeout=60)
    for kind, least in (("forward", 20), ("backward", 40)):
        rows = of(run.events, kind=kind)
        assert ((rows["end_ns"] - rows["start_ns"]) / 1e6).min() >= least * 0.99


def test_nothing_of_the_users_random_numbers_is_used_up() -> None:
    before = torch.get_rng_state()
    tensor_parallel.prepare(lenet(strategy="tensor_parallel"), tensor_parallel.Config())
    assert torch.equal(before, torch.get_rng_state())
