"""Reduce-scatter and all-gather of float32, as FSDP calls them, and what FSDP2's steps wait for
them: our rings against Gloo.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from tools.benchmarks.figures import Figure
from tools.benchmarks.operations import BYTES_A_ROUND, ROUNDS, time_both
from tools.benchmarks.ranks import on_ranks
from workbench.common.torch_names import all_gather_single, reduce_scatter_single

KB, MB = 1 << 10, 1 << 20
SIZES = (64 * KB, 1 * MB, 16 * MB)  # of a whole layer
LEAST = {"reduce-scatter": 2.5, "all-gather": 1.5}  # times as fast; Gloo scatters by an all-reduce
STEPS = 3
MOST = 0.5  # of Gloo's time


def time_all(rank: int, n: int, gloo: Any) -> dict[tuple[str, int], tuple[float, float]]:
    """Seconds a call, (ours, Gloo's), by operation and size: the median over rounds of a round's
    mean; worst rank.
    """
    medians = {}
    for nbytes in SIZES:
        whole, part = torch.ones(nbytes // 4), torch.ones(nbytes // 4 // n)
        calls = max(2, min(100, BYTES_A_ROUND // nbytes))
        operations: dict[str, Callable[[Any], Any]] = {
            "reduce-scatter": lambda group, part=part, whole=whole: reduce_scatter_single(
                part, whole, group=group
            ),
            "all-gather": lambda group, part=part, whole=whole: all_gather_single(
                whole, part, group=group
            ),
        }
        for name, operation in operations.items():
            medians[name, nbytes] = time_both(operation, calls, gloo)
    return medians


def measure() -> list[Figure]:
    figures = []
    for n in (2, 4):
        for (name, nbytes), (ours, gloo) in on_ranks(n, time_all).items():
            size = f"{nbytes // MB} MB" if nbytes >= MB else f"{nbytes // KB} KB"
            detail = f"{ours * 1e6:,.0f} µs, Gloo {gloo * 1e6:,.0f} µs"
            figures.append(
                Figure(f"{name}, n={n}, {size}", gloo / ours, LEAST[name], "× Gloo", True, detail)
            )
    return [*figures, communicating(2), communicating(4)]


def time_steps(rank: int, n: int, gloo: Any) -> dict[str, float]:
    """Seconds of FSDP2's forward and backward of a 25 MB MLP: over a group of this rank alone
    (computing and FSDP's own copies), over ours, over Gloo's; the worst rank's.
    """
    alone = [dist.new_group([one]) for one in range(n)][rank]
    models = {}
    for name, group in {"alone": alone, "ours": dist.group.WORLD, "gloo": gloo}.items():
        torch.manual_seed(0)
        layers = [layer for _ in range(6) for layer in (nn.Linear(1024, 1024), nn.ReLU())]
        models[name] = model = nn.Sequential(*layers)
        mesh = DeviceMesh.from_group(group, "cpu")
        for layer in model[::2]:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    x = torch.randn(32, 1024)
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for turn in range(ROUNDS + 2):
        for name, model in models.items():
            dist.barrier(group=gloo)
            start = time.perf_counter()
            for _ in range(STEPS):
                model(x).square().mean().backward()
                model.zero_grad()
            if turn >= 2:  # the first ones set up
                seconds[name].append((time.perf_counter() - start) / STEPS)
    medians = torch.tensor([statistics.median(each) for each in seconds.values()]).double()
    dist.all_reduce(medians, op=dist.ReduceOp.MAX, group=gloo)
    return dict(zip(models, medians.tolist(), strict=True))


def communicating(n: int) -> Figure:
    times = on_ranks(n, time_steps)
    ours, gloo = times["ours"] - times["alone"], times["gloo"] - times["alone"]
    detail = ", ".join(f"{name} {seconds * 1e3:.1f} ms" for name, seconds in times.items())
    what = f"FSDP2's communication, n={n}, 25 MB MLP"
    return Figure(what, ours / gloo, MOST, "of Gloo's", False, detail)
