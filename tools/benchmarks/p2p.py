"""Messages between two ranks, recording on, against Gloo's send and recv."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from tools.benchmarks.figures import Figure
from tools.benchmarks.ranks import on_ranks

KB, MB = 1 << 10, 1 << 20
SIZES = (64, 64 * KB, 1 * MB, 16 * MB)
ROUNDS = 15
BYTES_A_ROUND = 32 * MB


def stream(x: torch.Tensor, rank: int, group: Any, calls: int) -> None:
    """One way; rank 0 is done when rank 1 has the last one."""
    for _ in range(calls):
        if rank:
            dist.recv(x, 0, group=group)
        else:
            dist.send(x, 1, group=group)
    answer = x[:1].clone()
    if rank:
        dist.send(answer, 0, group=group)
    else:
        dist.recv(answer, 1, group=group)


def ping_pong(x: torch.Tensor, rank: int, group: Any, calls: int) -> None:
    for _ in range(calls):
        if rank:
            dist.recv(x, 0, group=group)
            dist.send(x, 0, group=group)
        else:
            dist.send(x, 1, group=group)
            dist.recv(x, 1, group=group)


PATTERNS: dict[str, tuple[Callable[..., None], int]] = {  # with messages a call
    "one way": (stream, 1),
    "to and fro": (ping_pong, 2),
}
TARGETS = {  # times as fast as Gloo
    "one way": {64 * KB: 1, 1 * MB: 2, 16 * MB: 2},
    "to and fro": {64: 3, 64 * KB: 3, 1 * MB: 3, 16 * MB: 2},
}


def time_both(rank: int, n: int, gloo: Any) -> dict[tuple[str, int], tuple[float, float]]:
    """Seconds a message, (ours, Gloo's), by pattern and size: medians over rounds, on rank 0."""
    medians = {}
    for words, (pattern, messages) in PATTERNS.items():
        for nbytes in SIZES:
            x = torch.ones(nbytes // 4)
            calls = max(2, min(200, BYTES_A_ROUND // nbytes) // messages)
            seconds: dict[str, list[float]] = {"ours": [], "gloo": []}
            for turn in range(ROUNDS + 1):
                for name, group in (("ours", None), ("gloo", gloo)):
                    dist.barrier(group=gloo)
                    start = time.perf_counter()
                    pattern(x, rank, group, calls)
                    if turn:  # the first makes connections and mailboxes
                        seconds[name].append((time.perf_counter() - start) / calls / messages)
            medians[words, nbytes] = (
                statistics.median(seconds["ours"]),
                statistics.median(seconds["gloo"]),
            )
    return medians


def measure() -> list[Figure]:
    figures = []
    for (words, nbytes), (ours, gloo) in on_ranks(2, time_both).items():
        size = f"{nbytes // MB} MB" if nbytes >= MB else f"{nbytes // KB} KB"
        size = size if nbytes >= KB else f"{nbytes} B"
        rates = ", ".join(f"{nbytes / s / 1e9:.2f}" for s in (ours, gloo))
        detail = f"{ours * 1e6:,.0f} µs, Gloo {gloo * 1e6:,.0f} µs ({rates} GB/s)"
        target = TARGETS[words].get(nbytes)
        figures.append(Figure(f"{words}, {size}", gloo / ours, target, "× Gloo", True, detail))
    return figures
