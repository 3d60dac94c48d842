"""Fully sharded training is sequential training; a rank keeps 1/p of the model, and what it
gathers, frees and holds is recorded where it happens.
"""

from __future__ import annotations

import json
import time
from functools import cache
from typing import Any

import polars as pl
import pytest
import torch
from torch import nn

import workbench as wb
from tests.live import lenet
from tests.pairwise import Case, first, pairwise, sampled
from workbench.rank.layers import units
from workbench.tasks.lenet_digits import Task as LeNet

ITERATIONS = 15
FACTORS: dict[str, list[Any]] = {
    "ranks": [1, 2, 3, 4, 8],
    "options": [{}, {"units": "whole"}, {"reshard_after_forward": False}, {"prefetch": 3}],
    "batch_size": [64, 10, 5],  # 10 does not divide by 3, 4, 8; 5 leaves ranks without a sample
    "rule": ["sgd", "momentum", "adam"],
    "dtype": ["float32", "float64"],
}
HARD = [{"ranks": 3, "batch_size": 10}, {"ranks": 2, "options": {"units": "whole"}}]
BOUND = {"float32": 1e-5, "float64": 1e-12}


def rule(name: str) -> dict[str, Any]:
    """The fields of an experiment that mean this optimizer."""
    if name == "momentum":
        return {"optimizer": "sgd", "lr": 0.01, "momentum": 0.9}
    return {"optimizer": name, "lr": 0.1 if name == "sgd" else 1e-3}


@cache
def sequential(name: str, dtype: str, batch_size: int) -> wb.Result:
    exp = lenet(
        strategy="sequential",
        ranks=1,
        iterations=ITERATIONS,
        batch_size=batch_size,
        dtype=dtype,
        record=False,
        **rule(name),
    )
    return wb.run(exp).wait(timeout=120)


@pytest.mark.parametrize("case", sampled(pairwise(FACTORS), *HARD), ids=str)
def test_equals_sequential_training(case: Case) -> None:
    reference = sequential(case["rule"], case["dtype"], case["batch_size"])
    exp = lenet(
        strategy="fsdp",
        iterations=ITERATIONS,
        record=False,
        ranks=case["ranks"],
        batch_size=case["batch_size"],
        dtype=case["dtype"],
        options=case["options"],
        **rule(case["rule"]),
    )
    result = wb.run(exp).wait(timeout=120)
    bound = BOUND[case["dtype"]]
    assert max(abs(a - b) for a, b in zip(result.losses, reference.losses, strict=True)) <= bound
    assert list(result.parameters) == list(reference.parameters)
    for name, value in reference.parameters.items():
        assert (result.parameters[name] - value).abs().max() <= 10 * bound, name
    assert len(result.digests) == case["ranks"] and len(set(result.digests.values())) == 1
    assert result.metrics == pytest.approx(reference.metrics, abs=1e-2)


def recorded(ranks: int, task: Any = "lenet_digits", **fields: Any) -> tuple[Any, pl.DataFrame]:
    run = wb.run(lenet(strategy="fsdp", ranks=ranks, task=task, iterations=3, **fields))
    result = run.wait(timeout=90)
    assert run.dropped == 0
    events = run.events.with_columns(pl.col("name", "phase", "kind", "group").cast(pl.String))
    return (result, json.loads(run.store.metadata["shards"])), events


def test_parts_are_the_model_and_even() -> None:
    (_, shards), _ = recorded(4)
    sizes = {"0": 156, "3": 2416, "7": 48120, "9": 10164, "11": 850}  # LeNet's, by hand
    assert {layer["name"]: layer["bytes"] // 4 for layer in shards["layers"]} == sizes
    for layer in shards["layers"]:
        assert sum(layer["parts"]) == layer["bytes"]
    first = shards["layers"][0]["parts"]
    assert first[3] == 0, "six filters over four ranks: two, two, two, and none"
    assert shards["layers"][2]["parts"] == [48120] * 4


def test_layers_are_whole_one_at_a_time_and_freed() -> None:
    """The rows are FSDP's doing: one layer is whole at a time; gathered and freed in pairs."""
    (_, shards), events = recorded(3)
    names = [layer["name"] for layer in shards["layers"]]
    sizes = {layer["name"]: layer["bytes"] for layer in shards["layers"]}
    for rank in range(3):
        of_rank = events.filter(
            (pl.col("rank") == rank)
            & (pl.col("iteration") == 1)
            & pl.col("name").is_in(["gathered", "freed"])
        ).sort("end_ns")
        memory_events = list(of_rank.select("name", "phase", "value").iter_rows())
        gathered = [layer for name, layer, _ in memory_events if name == "gathered"]
        assert gathered == names + names[::-1], "forward's order, then backward's"
        whole: set[str] = set()
        most = 0
        for name, layer, nbytes in memory_events:
            assert nbytes >= sizes[layer] and nbytes - sizes[layer] < 0.5 * sizes[layer] + 100
            (whole.add if name == "gathered" else whole.discard)(layer)
            most = max(most, len(whole))
        assert most == 1 and not whole


def test_layers_stay_where_they_are_not_freed_after_forward() -> None:
    (_, shards), events = recorded(2, options={"reshard_after_forward": False})
    one = events.filter(pl.col("rank") == 0, pl.col("iteration") == 1)
    assert (one["name"] == "gathered").sum() == len(shards["layers"])
    ways = one.filter((pl.col("kind") == "collective") & (pl.col("group") == "default"))
    counts = dict(ways.group_by(pl.col("collective").cast(pl.String)).len().iter_rows())
    assert counts == {"all_gather": 5, "reduce_scatter": 5}


class Slow(nn.Module):
    """A layer that computes long enough for other threads to have had their turn."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.1)
        return self.linear(x)


class SlowDigits(LeNet):
    def model(self) -> nn.Module:
        return nn.Sequential(nn.Flatten(), Slow(784, 16), Slow(16, 16), Slow(16, 10))


@pytest.mark.parametrize("prefetch", first(1, [0, 1]))
def test_gathers_come_ahead_of_need(prefetch: int) -> None:
    """With prefetch=1 the next layer's gather begins before the layer that computes is freed."""
    _, events = recorded(2, SlowDigits, options={"prefetch": prefetch})
    of_rank_0 = events.filter(
        pl.col("rank") == 0, pl.col("iteration") == 1, pl.col("group") != "metrics"
    )
    gathers = of_rank_0.filter(
        pl.col("collective").cast(pl.String) == "all_gather", pl.col("kind") == "collective"
    )
    begun = gathers.filter(pl.col("name") == "2")["start_ns"].min()
    freed = of_rank_0.filter(pl.col("name") == "freed", pl.col("phase") == "1")["end_ns"].min()
    assert (begun < freed) == (prefetch == 1)


@pytest.mark.full
def test_a_rank_holds_less_the_more_ranks_there_are() -> None:
    """What stays (parameters, gradients, Adam's state) shrinks as 1/p; measured against averaged
    gradients, which keep all of it on every rank.
    """
    fields: dict[str, Any] = {
        "task": "char_transformer",
        "task_options": {"layers": 8, "width": 64},
        "optimizer": "adam",
        "batch_size": 4,
        "iterations": 3,
        "record": False,
    }
    plain = wb.run(lenet(ranks=4, memory_limit="1 GB", **fields)).wait(timeout=90)
    sharded = wb.run(lenet(strategy="fsdp", ranks=4, **fields)).wait(timeout=90)
    whole = 4 * sum(value.numel() for value in plain.parameters.values())
    assert all(held >= 4 * whole for held in plain.memory.values())
    saved = min(plain.memory.values()) - max(sharded.memory.values())
    # 4 x whole becomes 4/p x whole, two layers' worth of gathered, gradients and buffers.
    assert saved > (4 - 4 / 4 - 1.2) * whole


def test_what_is_held_adds_up() -> None:
    (result, shards), events = recorded(2, optimizer="adam", batch_size=8)
    held = events.filter(pl.col("name") == "held")
    assert set(held["rank"]) == {0, 1}
    for rank in range(2):
        held_bytes = held.filter(pl.col("rank") == rank)["value"]
        assert held_bytes.max() <= result.memory[rank] <= 1.3 * held_bytes.max()
    own_parts = sum(layer["parts"][0] for layer in shards["layers"])
    after = events.filter(pl.col("rank") == 0, pl.col("name") == "held").sort("end_ns")["value"][-1]
    assert after >= 4 * own_parts, "parameters, gradients and two moments, each a part"


def test_what_is_gathered_is_held() -> None:
    """In forward, the whole model at once: half of it is kept, all of it is here, and once more as
    it came, in the buffer.
    """
    (_, shards), events = recorded(2, options={"units": "whole"})
    of_rank_0 = events.filter(pl.col("rank") == 0, pl.col("iteration") == 1)
    end = of_rank_0.filter(pl.col("kind") == "forward")["end_ns"].max()
    metrics = pl.col("kind").cast(pl.String) == "metric"
    before = of_rank_0.filter(metrics, pl.col("end_ns") <= end).sort("end_ns")
    held, active = (before.filter(name=name)["value"] for name in ("held", "activations"))
    assert (held - active).max() >= 2.4 * shards["layers"][0]["bytes"]


def test_too_little_memory_is_an_error_that_names_what_is_held() -> None:
    with pytest.raises(wb.WorkbenchError, match="gathered parameters"):
        wb.run(lenet(strategy="fsdp", memory_limit="300 kB")).wait(timeout=60)


def test_a_killed_rank_is_named() -> None:
    exp = lenet(strategy="fsdp", ranks=3, iterations=20, faults=(wb.Kill(rank=1, at_iteration=3),))
    with pytest.raises(wb.PeerLost, match="rank 1"):
        wb.run(exp).wait(timeout=60)


@pytest.mark.parametrize("options", [{"units": "layer"}, {"prefetch": -1}, {"unit": "layers"}])
def test_bad_options_are_refused_before_anything_starts(options: dict[str, Any]) -> None:
    with pytest.raises(wb.SpecError):
        lenet(strategy="fsdp", options=options)


class Parted(nn.Module):
    """Containers within a module, a child of its own, and a tied weight."""

    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(4, 4)
        self.blocks = nn.ModuleList([nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU())])
        self.tail = nn.Sequential(nn.ReLU(), nn.Linear(4, 4, bias=False))
        if tied:
            self.tail[1].weight = self.embed.weight


class Flat(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.act = nn.Linear(2, 2), nn.Linear(2, 2), nn.ReLU()


def test_units_are_the_members_of_outer_containers() -> None:
    assert [name for name, _ in units(Parted(False), "layers")] == [
        "blocks.0",
        "blocks.1",
        "tail.1",
    ]
    assert [name for name, _ in units(Parted(True), "layers")] == ["blocks.0", "blocks.1"]
    assert [name for name, _ in units(Flat(), "layers")] == ["one", "two"]
    assert units(Flat(), "whole") == []
