"""ZeRO 1 and 2 are sequential training, send what their formulas say to the byte, and hold what
the paper's table says.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import polars as pl
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import workbench as wb
from tests.live import lenet
from tests.pairwise import Case, pairwise, sampled

RANKS, WEIGHTS = 4, 1000
FACTORS: dict[str, list[Any]] = {
    "ranks": [1, 2, 3, 4],
    "options": [{}, {"zero": 2}, {"accumulate": 3}, {"zero": 2, "accumulate": 2}],
    "units": ["layers", "whole"],
    "batch_size": [64, 10, 5],  # 10 does not divide by 3 and 4; 5 leaves microbatches empty
    "optimizer": ["sgd", "adam", "adamw", "adagrad"],
}
HARD = [{"ranks": 3, "options": {"zero": 2, "accumulate": 2}}, {"ranks": 4, "batch_size": 5}]


class Task:
    """One layer of 1,000 parameters; both of its tensors divide by 4."""

    def model(self) -> nn.Module:
        return nn.Linear(249, 4)

    def dataset(self, split: str) -> TensorDataset:
        draw = torch.Generator().manual_seed(1)
        return TensorDataset(torch.randn(64, 249, generator=draw), torch.arange(64) % 4)

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        return F.cross_entropy(model(batch[0]), batch[1])

    def metrics(self, model: nn.Module, batch: Any) -> dict[str, float]:
        return {"loss": float(self.loss(model, batch))}


class Unused(Task):
    """A layer that no forward uses, so that its gradients never come."""

    def model(self) -> nn.Module:
        model = nn.Sequential(nn.Linear(249, 7), nn.Linear(7, 4))
        model.add_module("spare", nn.Linear(3, 3))
        model.forward = lambda x: model[1](model[0](x))  # type: ignore[method-assign]
        return model


@cache
def sequential(optimizer: str, batch_size: int) -> wb.Result:
    return wb.run(experiment("sequential", 1, optimizer, batch_size)).wait(timeout=120)


def experiment(strategy: str, ranks: int, optimizer: str, batch_size: int) -> wb.Experiment:
    return lenet(
        strategy=strategy,
        ranks=ranks,
        iterations=8,
        batch_size=batch_size,
        dtype="float64",
        record=False,
        optimizer=optimizer,
        lr=0.1 if optimizer == "sgd" else 1e-3,
    )


@pytest.mark.parametrize("case", sampled(pairwise(FACTORS), *HARD), ids=str)
def test_equals_sequential_training(case: Case) -> None:
    reference = sequential(case["optimizer"], case["batch_size"])
    exp = experiment("zero", case["ranks"], case["optimizer"], case["batch_size"])
    options = {"units": case["units"], **case["options"]}
    result = wb.run(exp.replace(options=options)).wait(timeout=120)
    pairs = zip(result.losses, reference.losses, strict=True)
    assert max(abs(a - b) for a, b in pairs) <= 1e-12
    for name, value in reference.parameters.items():
        assert (result.parameters[name] - value).abs().max() <= 1e-11, name
    assert len(result.digests) == case["ranks"] and len(set(result.digests.values())) == 1


def sent(strategy: str, task: Any = Task, **options: Any) -> set[int]:
    """Return how many bytes ranks send in the last of three iterations: one number where all send
    the same.
    """
    run = wb.run(lenet(strategy=strategy, ranks=RANKS, task=task, iterations=3, options=options))
    run.wait(timeout=90)
    rows = run.events.filter(
        pl.col("kind").cast(pl.String) == "send",
        pl.col("group").cast(pl.String) != "metrics",
        pl.col("iteration") == 2,  # DDP has rebuilt its buckets
    )
    return set(rows.group_by("rank").agg(pl.col("nbytes").sum())["nbytes"])


@pytest.mark.parametrize(
    ("strategy", "options", "passes"),
    [
        ("ddp", {}, 2.0),
        ("zero", {"zero": 1}, 2.0),
        ("zero", {"zero": 1, "accumulate": 4}, 2.0),
        ("zero", {"zero": 2}, 2.0),
        ("zero", {"zero": 2, "accumulate": 4}, 5.0),  # (m + 1)
        ("fsdp", {"units": "whole"}, 3.0),
    ],
    ids=str,
)
def test_a_rank_sends_what_its_formula_says(
    strategy: str, options: dict[str, Any], passes: float
) -> None:
    assert sent(strategy, **options) == {passes * (RANKS - 1) / RANKS * WEIGHTS * 4}


@pytest.mark.full
@pytest.mark.parametrize("level", [1, 2])
def test_a_layer_that_is_not_used_is_reduced_all_the_same(level: int) -> None:
    fields: dict[str, Any] = {"task": Unused, "dtype": "float64", "optimizer": "adam"}
    reference = wb.run(lenet(strategy="sequential", ranks=1, **fields)).wait(timeout=90)
    exp = lenet(strategy="zero", ranks=3, options={"zero": level}, **fields)
    assert wb.run(exp).wait(timeout=90).losses == pytest.approx(reference.losses, abs=1e-12)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"options": {"zero": 4}}, "strategy='fsdp'"),
        ({"options": {"zero": 3}}, "strategy='fsdp'"),
        ({"options": {"units": "layer"}}, "'layers' or 'whole'"),
        ({"options": {"accumulate": 0}}, "1 or more"),
        ({"options": {"buddy_every": -1}}, "0 (no copies) or more"),
    ],
    ids=str,
)
def test_bad_options_are_refused_before_anything_starts(fields: Any, words: str) -> None:
    with pytest.raises(wb.SpecError) as error:
        lenet(strategy="zero", **fields)
    assert words in str(error.value)
