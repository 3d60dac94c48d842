"""DDP: what communication adds to forward and backward of a 25 MB MLP, ours against Gloo's."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.benchmarks.figures import Figure
from tests.benchmarks.ranks import on_ranks

ROUNDS, STEPS = 15, 3


def _mlp() -> nn.Module:
    torch.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (nn.Linear(1024, 1024), nn.ReLU())]
    return nn.Sequential(*layers)


def time_steps(rank: int, n: int, gloo: Any, views: bool) -> dict[str, float]:
    """Seconds of forward and backward without DDP, with ours, with Gloo's; the worst rank's."""
    models = {
        "none": _mlp(),
        "ours": DistributedDataParallel(_mlp(), gradient_as_bucket_view=views),
        "gloo": DistributedDataParallel(_mlp(), process_group=gloo, gradient_as_bucket_view=views),
    }
    x = torch.randn(32, 1024)
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for turn in range(ROUNDS + 2):
        for name, model in models.items():
            dist.barrier(group=gloo)
            start = time.perf_counter()
            for _ in range(STEPS):
                model(x).square().mean().backward()
                model.zero_grad()
            if turn >= 2:  # the first builds and rebuilds buckets
                seconds[name].append((time.perf_counter() - start) / STEPS)
    found = torch.tensor([statistics.median(seconds[name]) for name in models], dtype=torch.float64)
    dist.all_reduce(found, op=dist.ReduceOp.MAX, group=gloo)
    return dict(zip(models, found.tolist(), strict=True))


def measure() -> list[Figure]:
    """As DDP comes, and without the copies between gradients and buckets that both share."""
    figures = []
    for words, views in (("as it comes", False), ("gradients as views", True)):
        found = on_ranks(2, time_steps, views)
        ours, gloo = found["ours"] - found["none"], found["gloo"] - found["none"]
        detail = ", ".join(f"{name} {seconds * 1e3:.1f} ms" for name, seconds in found.items())
        what = f"DDP's added time, n=2, 25 MB MLP, {words}"
        figures.append(Figure(what, ours / gloo, 0.5, "of Gloo's", False, detail))
    return figures
