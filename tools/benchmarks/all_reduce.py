"""All-reduce of float32 through torch.distributed, ``auto`` and recording on, against Gloo."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch
import torch.distributed as dist

from tools.benchmarks.figures import Figure
from tools.benchmarks.ranks import on_ranks

KB, MB = 1 << 10, 1 << 20
TARGETS = {
    2: {4 * KB: 4, 64 * KB: 6, 1 * MB: 6, 16 * MB: 4, 64 * MB: 3.5},
    4: {1 * MB: 3, 16 * MB: 3, 64 * MB: 3},
}  # times as fast as Gloo
ROUNDS = 11
BYTES_A_ROUND = 48 * MB


def time_both(rank: int, n: int, gloo: Any, sizes: list[int]) -> dict[int, tuple[float, float]]:
    """Seconds a call, (ours, Gloo's), by size: the median over rounds of a round's mean; worst
    rank.
    """
    medians = {}
    for nbytes in sizes:
        x = torch.ones(nbytes // 4)
        calls = max(2, min(100, BYTES_A_ROUND // nbytes))
        seconds: dict[str, list[float]] = {"ours": [], "gloo": []}
        for _ in range(ROUNDS):
            for name, group in (("ours", None), ("gloo", gloo)):
                dist.all_reduce(x, group=group)
                dist.barrier(group=gloo)
                start = time.perf_counter()
                for _ in range(calls):
                    dist.all_reduce(x, group=group)
                seconds[name].append((time.perf_counter() - start) / calls)
                x.fill_(1)
        mine = [statistics.median(seconds["ours"]), statistics.median(seconds["gloo"])]
        worst = torch.tensor(mine, dtype=torch.float64)
        dist.all_reduce(worst, op=dist.ReduceOp.MAX, group=gloo)
        medians[nbytes] = (worst[0].item(), worst[1].item())
    return medians


def measure() -> list[Figure]:
    figures = []
    for n, targets in TARGETS.items():
        for nbytes, (ours, gloo) in on_ranks(n, time_both, list(targets)).items():
            size = f"{nbytes // MB} MB" if nbytes >= MB else f"{nbytes // KB} KB"
            detail = f"{ours * 1e6:,.0f} µs, Gloo {gloo * 1e6:,.0f} µs"
            figures.append(
                Figure(f"n={n}, {size}", gloo / ours, targets[nbytes], "× Gloo", True, detail)
            )
    return figures
