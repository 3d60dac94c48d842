"""``wb.fits`` says the paper's numbers, and what runs are then measured to hold."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import workbench as wb
from tests.live import lenet
from tests.training.zero.test_zero import Task

GPT: dict[str, Any] = {"task": "char_transformer", "task_options": {"layers": 2, "width": 32}}
RUNS: dict[str, dict[str, Any]] = {
    "one rank": {"strategy": "sequential", "ranks": 1, "batch_size": 64},
    "float64, momentum": {
        "strategy": "sequential",
        "ranks": 1,
        "dtype": "float64",
        "momentum": 0.9,
    },
    "averaged, uneven": {"strategy": "data_parallel", "ranks": 3, "optimizer": "adagrad"},
    "residual layers": {"strategy": "data_parallel", "task": "mlp_layers", "optimizer": "adamw"},
    "buckets": {"strategy": "ddp", "optimizer": "adam"},
    "two microbatches": {"strategy": "ddp", **GPT, "options": {"accumulate": 2}},
    "gradients as buckets": {"strategy": "ddp", "options": {"gradient_as_bucket_view": True}},
    "zero 1": {"strategy": "zero", "ranks": 4, "optimizer": "adam"},
    "zero 1, whole": {"strategy": "zero", "optimizer": "adam", "options": {"units": "whole"}},
    "zero 2": {"strategy": "zero", "ranks": 3, "optimizer": "adam", "options": {"zero": 2}},
    "zero 2, many samples": {"strategy": "zero", "batch_size": 128, "options": {"zero": 2}},
    "zero 2, attention": {
        "strategy": "zero",
        **GPT,
        "optimizer": "adam",
        "options": {"zero": 2, "accumulate": 2},
    },
    "sharded": {"strategy": "fsdp", "ranks": 3, "optimizer": "adam"},
    "sharded, whole": {"strategy": "fsdp", "optimizer": "adam", "options": {"units": "whole"}},
    "sharded, attention": {"strategy": "fsdp", **GPT, "optimizer": "adam"},
    "sharded, kept": {"strategy": "fsdp", "options": {"reshard_after_forward": False}},
    "sharded, one rank": {"strategy": "fsdp", "ranks": 1, "iterations": 3, "momentum": 0.9},
}


LATER = (
    "float64, momentum",
    "residual layers",
    "gradients as buckets",
    "zero 1, whole",
    "sharded, whole",
    "sharded, kept",
    "sharded, one rank",
)


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.full] * (one in LATER)) for one in RUNS]
)
def test_a_rank_holds_what_was_predicted(name: str) -> None:
    """All kinds and their sum, at the peak; to the byte, which is more than the 2 % asked for."""
    fields = {"memory_limit": "1 GB", "iterations": 2, **RUNS[name]}
    exp = lenet(**fields)
    fit = wb.fits(exp)
    run = wb.run(exp)
    measured = run.wait(timeout=120).memory
    assert {rank: held["all"] for rank, held in fit.peaks.items()} == measured
    order = ["rank", "kind"]
    of_run = run.memory().select(*order, "peak_bytes").sort(order)
    assert fit.table.sort(order).equals(of_run)
    assert fit.ok and "of its memory_limit of 1 GB" in fit.sentence
    assert "Not counted" not in fit.sentence, "no operation without a formula"


@pytest.mark.parametrize(("zero", "gigabytes"), [(0, "120"), (1, "31.4"), (2, "16.6"), (3, "1.88")])
def test_the_table_of_the_paper(zero: int, gigabytes: str) -> None:
    """7.5 billion parameters in bfloat16, 64 ranks, Adam: figure 1 of the ZeRO paper."""
    fit = wb.fits(7.5e9, ranks=64, zero=zero)
    assert fit.ok and fit.sentence.startswith(f"Each rank would hold {gigabytes} GB at the most;")
    assert fit.table.height == 64 * 5


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_thousand_parameters(dtype: str) -> None:
    held = [wb.fits(1000, ranks=4, zero=zero, dtype=dtype).peaks[3]["all"] for zero in range(4)]
    small = dtype == "bfloat16"
    assert held == ([16_000, 7_000, 5_500, 4_000] if small else [16_000, 10_000, 7_000, 4_000])


def test_a_thousand_parameters_divided_by_four() -> None:
    """Between two iterations a rank holds its quarter of each, predicted and measured."""
    exp = lenet(strategy="fsdp", ranks=4, iterations=2, task=Task, optimizer="adam")
    fit, run = wb.fits(exp), wb.run(exp)
    run.wait(timeout=60)
    kinds = ("parameters", "gradients", "optimizer state")
    assert all(sum(one[kind] for kind in kinds) == 4_000 for one in fit.peaks.values())
    held = run.events.filter(pl.col("name").cast(pl.String) == "held").sort("end_ns")
    last = held.filter(pl.col("iteration") == 1).group_by("rank").last()
    assert last["value"].to_list() == [4_000.0] * 4


def test_a_line_for_the_ranks_that_hold_as_much() -> None:
    fit = wb.fits(lenet(strategy="data_parallel", ranks=4, batch_size=10))
    lines = str(fit).splitlines()
    assert lines[0] == fit.sentence
    assert [line.split(":")[0] for line in lines[1:]] == ["Ranks 0 and 1", "Ranks 2 and 3"]
    assert len(str(wb.fits(7.5e9, ranks=64)).splitlines()) == 1, "all hold the same"


def test_the_first_thing_that_does_not_fit_is_named() -> None:
    """By the formula, and by the run that is stopped there."""
    exp = lenet(strategy="sequential", ranks=1, optimizer="adam", memory_limit="1 MB")
    fit = wb.fits(exp)
    assert not fit.ok
    where = "in the backward pass of layer '7', where its gradients would not fit: parameters 247"
    assert f"more than its memory_limit of 1 MB, {where}" in fit.sentence
    stopped = wb.run(exp).wait(timeout=60, check=False)
    assert isinstance(stopped.error, wb.MemoryLimit)
    assert "gradients 0.237 MB" in str(stopped.error) and "gradients 237 kB" in fit.sentence
    whole = wb.fits(1e9, memory_limit="10 GB")
    assert not whole.ok and "its optimizer state would not fit" in whole.sentence


class Sine(Task):
    """A loss with an operation that wb.fits has no formula for."""

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        return F.cross_entropy(model(batch[0]).sin(), batch[1])


def test_an_operation_without_a_formula_is_named() -> None:
    fit = wb.fits(lenet(strategy="sequential", ranks=1, task=Sine))
    assert fit.sentence.endswith("Not counted, as no formula says what it keeps: sin.")


def test_what_has_no_formula_is_refused() -> None:
    with pytest.raises(wb.SpecError, match=r"strategy = 'gossip'.*no formula"):
        wb.fits(lenet(strategy="gossip"))
    with pytest.raises(wb.SpecError, match="unequal shares"):
        wb.fits(lenet(strategy="ddp", options={"shares": (2, 1)}))
    with pytest.raises(wb.SpecError, match="gathered ahead"):
        wb.fits(lenet(strategy="fsdp", options={"prefetch": 1}))
    with pytest.raises(wb.SpecError, match="plays"):
        wb.fits(lenet(strategy="sequential", ranks=1, task="catch"))
