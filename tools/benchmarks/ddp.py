"""DDP: what communication adds to forward and backward of a 25 MB MLP, ours against Gloo's; and
whole runs of training, in iterations per second.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import polars as pl
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import workbench as wb
from tools.benchmarks.figures import Figure
from tools.benchmarks.memcpy import passes
from tools.benchmarks.ranks import on_ranks

ROUNDS, STEPS = 15, 3
RUNS, ITERATIONS, WARM = 5, 40, 10
FASTER = 1.3  # times Gloo's iterations per second
SLOWER = 1.15  # times what forward and backward take without DDP, beyond copies
BUCKETS = 2  # copies of DDP's own: of gradients into buckets, and back, unless they are views


def _mlp() -> nn.Module:
    torch.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (nn.Linear(1024, 1024), nn.ReLU())]
    return nn.Sequential(*layers)


def time_steps(rank: int, n: int, gloo: Any, views: bool) -> dict[str, float]:
    """Seconds of forward and backward without DDP, with ours, with Gloo's; and of a copy of as much
    as is all-reduced, by all ranks at once. The worst rank's.
    """
    models = {
        "none": _mlp(),
        "ours": DistributedDataParallel(_mlp(), gradient_as_bucket_view=views),
        "gloo": DistributedDataParallel(_mlp(), process_group=gloo, gradient_as_bucket_view=views),
    }
    x = torch.randn(32, 1024)
    # Written to: pages that never were are all the same one, and reading that costs no memory.
    here = torch.ones(sum(one.numel() for one in models["none"].parameters()))
    there = torch.zeros_like(here)

    def step(model: nn.Module) -> None:
        model(x).square().mean().backward()
        model.zero_grad()

    calls: dict[str, Callable[[], Any]] = {
        **{name: partial(step, model) for name, model in models.items()},
        "a copy": lambda: there.copy_(here),
    }
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(ROUNDS + 2):
        for name, call in calls.items():
            dist.barrier(group=gloo)
            start = time.perf_counter()
            for _ in range(STEPS):
                call()
            if turn >= 2:  # the first builds and rebuilds buckets
                seconds[name].append((time.perf_counter() - start) / STEPS)
    medians = torch.tensor(
        [statistics.median(seconds[name]) for name in calls], dtype=torch.float64
    )
    dist.all_reduce(medians, op=dist.ReduceOp.MAX, group=gloo)
    return dict(zip(calls, medians.tolist(), strict=True))


def measure() -> list[Figure]:
    """As DDP comes, and without the copies between gradients and buckets that both share."""
    figures = []
    for words, views in (("as it comes", False), ("gradients as views", True)):
        times = on_ranks(2, time_steps, views)
        ours, gloo = times["ours"] - times["none"], times["gloo"] - times["none"]
        detail = ", ".join(f"{name} {seconds * 1e3:.1f} ms" for name, seconds in times.items())
        what = f"DDP's added time, n=2, 25 MB MLP, {words}"
        figures.append(Figure(what, ours / gloo, 0.5, "of Gloo's", False, detail))
        what = f"forward and backward beyond copies, n=2, 25 MB MLP, {words}"
        # A ring's passes over memory (memcpy.py), with no core that would be free for them.
        copies = passes(2) + (0 if views else BUCKETS)
        of_memory = copies * times["a copy"] / times["none"]
        without = times["ours"] / times["none"]
        detail = f"{without:.2f} in all, of which {copies:.2f} copies {of_memory:.2f}"
        figures.append(Figure(what, without - of_memory, SLOWER, "× no DDP", False, detail))
    return [*figures, trained(4, views=False), trained(4, views=True)]


def trained(ranks: int, views: bool) -> Figure:
    """Runs of strategy "ddp" over either backend, taking turns; medians of their speed."""
    speed: dict[str, list[float]] = {"workbench": [], "gloo": []}
    for turn in range(RUNS + 1):
        for backend, speeds in speed.items():
            exp = wb.Experiment(
                strategy="ddp",
                task="mlp_layers",
                ranks=ranks,
                iterations=ITERATIONS,
                batch_size=8 * ranks,
                backend=backend,
                options={"gradient_as_bucket_view": views},
            )
            run = wb.run(exp)
            run.wait(300, progress=False)
            steps = run.overlap().settled.filter(pl.col("iteration") >= WARM)
            slowest = steps.group_by("iteration").agg(pl.col("step_ms").max())["step_ms"]
            if turn:  # the first one warms up
                speeds.append(1e3 / float(slowest.to_numpy().mean()))
    ours, gloo = (statistics.median(each) for each in speed.values())
    detail = f"{ours:.1f} against {gloo:.1f} iterations per second"
    how = "gradients as views" if views else "as it comes"
    what = f"DDP training, n={ranks}, 25 MB MLP, {how}"
    return Figure(what, ours / gloo, FASTER, "× Gloo's", True, detail)
