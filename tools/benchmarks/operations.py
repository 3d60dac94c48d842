"""Every collective operation of float32 through torch.distributed, ``auto`` and recording on,
against Gloo.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from tools.benchmarks.figures import Figure
from tools.benchmarks.ranks import on_ranks
from workbench.common.torch_names import all_gather_single, reduce_scatter_single

KB, MB = 1 << 10, 1 << 20
SIZES = (64 * KB, 16 * MB)  # of the operation's whole
FASTER, BARRIER = 2.0, 3.0  # times as fast as Gloo
ROUNDS = 11
BYTES_A_ROUND = 48 * MB
Operation = Callable[[Any], Any]


def operations(rank: int, n: int, nbytes: int) -> dict[str, Operation]:
    """Return what is measured: each takes the group."""
    whole = torch.ones(nbytes // 4)
    part, parts = torch.ones(len(whole) // n), [torch.ones(len(whole) // n) for _ in range(n)]
    listed = parts if rank == 0 else None
    other = torch.ones(len(whole))
    return {
        "all_reduce": lambda group: dist.all_reduce(whole, dist.ReduceOp.MAX, group=group),
        "broadcast": lambda group: dist.broadcast(whole, 0, group=group),
        "reduce": lambda group: dist.reduce(whole, 0, dist.ReduceOp.MAX, group=group),
        "gather": lambda group: dist.gather(part, listed, 0, group=group),
        "scatter": lambda group: dist.scatter(part, listed, 0, group=group),
        "all_gather": lambda group: all_gather_single(whole, part, group=group),
        "all_gather, list": lambda group: dist.all_gather(parts, part, group=group),
        "reduce_scatter": lambda group: reduce_scatter_single(part, whole, group=group),
        "reduce_scatter, list": lambda group: dist.reduce_scatter(part, parts, group=group),
        "all_to_all": lambda group: dist.all_to_all_single(other, whole, group=group),
    }


def time_both(operation: Operation, calls: int, gloo: Any) -> tuple[float, float]:
    """Seconds a call, (ours, Gloo's): the median over rounds of a round's mean; worst rank."""
    seconds: dict[str, list[float]] = {"ours": [], "gloo": []}
    for _ in range(ROUNDS):
        for whose, group in (("ours", None), ("gloo", gloo)):
            operation(group)
            dist.barrier(group=gloo)
            start = time.perf_counter()
            for _ in range(calls):
                operation(group)
            seconds[whose].append((time.perf_counter() - start) / calls)
    mine = [statistics.median(seconds["ours"]), statistics.median(seconds["gloo"])]
    worst = torch.tensor(mine, dtype=torch.float64)
    dist.all_reduce(worst, op=dist.ReduceOp.MAX, group=gloo)
    return worst[0].item(), worst[1].item()


def time_all(rank: int, n: int, gloo: Any) -> dict[tuple[str, int], tuple[float, float]]:
    medians = {("barrier", 0): time_both(lambda group: dist.barrier(group=group), 200, gloo)}
    for nbytes in SIZES:
        calls = max(2, min(100, BYTES_A_ROUND // nbytes))
        for name, operation in operations(rank, n, nbytes).items():
            medians[name, nbytes] = time_both(operation, calls, gloo)
    return medians


def measure() -> list[Figure]:
    figures = []
    for n in (2, 4):
        for (name, nbytes), (ours, gloo) in on_ranks(n, time_all).items():
            size = f", {nbytes // MB} MB" if nbytes >= MB else f", {nbytes // KB} KB"
            target = FASTER if nbytes else BARRIER
            detail = f"{ours * 1e6:,.0f} µs, Gloo {gloo * 1e6:,.0f} µs"
            what = f"{name}, n={n}{size if nbytes else ''}"
            figures.append(Figure(what, gloo / ours, target, "× Gloo", True, detail))
    return figures
