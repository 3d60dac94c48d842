"""All-reduce of float32 tensors on one GPU that the ranks share, recording on, against Gloo; no row
where there is no GPU.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch
import torch.distributed as dist

from tools.benchmarks.figures import Figure
from tools.benchmarks.ranks import on_ranks

KB, MB = 1 << 10, 1 << 20
SIZES = (4 * KB, 64 * KB, 1 * MB, 25 * MB)
ROUNDS = 11
BYTES_A_ROUND = 48 * MB


def time_both(rank: int, n: int, gloo: Any) -> dict[int, tuple[float, float]]:
    """Seconds a call by bytes, (ours, Gloo's), until the sum is on the GPU: medians, worst rank."""
    medians = {}
    for nbytes in SIZES:
        x = torch.zeros(nbytes // 4, device="cuda")
        calls = max(2, min(50, BYTES_A_ROUND // nbytes))
        seconds: dict[Any, list[float]] = {None: [], gloo: []}
        for _ in range(ROUNDS):
            for group, times in seconds.items():
                dist.all_reduce(x, group=group)
                dist.barrier(group=gloo)
                start = time.perf_counter()
                for _ in range(calls):
                    dist.all_reduce(x, group=group)
                    torch.cuda.synchronize()
                times.append((time.perf_counter() - start) / calls)
        worst = torch.tensor([statistics.median(times) for times in seconds.values()])
        dist.all_reduce(worst, op=dist.ReduceOp.MAX, group=gloo)
        medians[nbytes] = worst[0].item(), worst[1].item()
    return medians


def measure() -> list[Figure]:
    if not torch.cuda.is_available():
        return []
    figures = []
    for n in (2, 4):
        for nbytes, (ours, gloo) in on_ranks(n, time_both).items():
            size = f"{nbytes // MB} MB" if nbytes >= MB else f"{nbytes // KB} KB"
            detail = f"{ours * 1e6:,.0f} µs, Gloo {gloo * 1e6:,.0f} µs"
            what = f"all_reduce on a GPU, n={n}, {size}"
            figures.append(Figure(what, gloo / ours, 1.0, "× Gloo", True, detail))
    return figures
