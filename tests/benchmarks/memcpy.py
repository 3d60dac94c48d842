"""All-reduce of 64 MB against what memcpy allows on this machine, in the same processes.

A copy of m bytes moves 2m: m are read, m written. An add moves 3m: two are read, one is written.
The least that a ring of n ranks moves for L bytes, by each rank, in chunks of L/n:

    reduce-scatter   the first chunk into a slot                      2
                     n-2 times: a slot + mine -> the next slot        3 (n-2)
                     the last: a slot + mine -> mine                  3
    all-gather       the complete chunk into a slot                   2
                     n-2 times: a slot -> mine and -> the next slot   3 (n-2)
                     the last: a slot -> mine                         2
                                                                      ------- (6n-3) L/n

So by copying B bytes a second on each of n processes at once it takes (6n-3)/2n · L/B: 2.25 L/B for
n=2, 2.63 L/B for n=4. B is measured in three ways: 64 MB from one private array to another; the
same past the caches, by a memcpy that is told to use non-temporal stores (others read the lines
that they are about to overwrite; from which size on memcpy avoids that is glibc's choice); and slot
by slot through shared memory, from an array into a slot of one's own, and from the neighbour's slot
into an array (L bytes so are 2L copied). Headers, semaphores, rows, waiting: nothing of these is in
it, nor that slots that were just written may still be in a cache.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from tests.benchmarks.figures import Figure
from tests.benchmarks.ranks import on_ranks
from workbench.process_group.session import session
from workbench.shared_memory.segments import Segment

L = 64 << 20
SLOTS = 4
ROUNDS, CALLS = 9, 3
SHARE = 70.0  # percent
# glibc's least size of a copy by non-temporal stores; it is read when a process starts.
TUNED = {"GLIBC_TUNABLES": "glibc.cpu.x86_non_temporal_threshold=0x4040"}
COPYING = """
import sys, time, numpy as np
a, b = np.ones(int(sys.argv[1]), np.uint8), np.zeros(int(sys.argv[1]), np.uint8)
np.copyto(b, a)
print(flush=True)
sys.stdin.readline()
start, copies = time.perf_counter(), 0
while time.perf_counter() < start + 1:
    np.copyto(b, a)
    copies += 1
print((time.perf_counter() - start) / copies)
"""


def passes(n: int) -> float:
    """Copies of the whole tensor that a ring amounts to on each of ``n`` ranks: see above."""
    return (6 * n - 3) / (2 * n)


def time_all(rank: int, n: int, gloo: Any) -> dict[str, float]:
    """Seconds of one call by name: the median over rounds that take turns; the worst rank's."""
    x = torch.zeros(L // 4)
    a, b = np.zeros(L // 4, np.float32), np.zeros(L // 4, np.float32)
    calls: dict[str, Callable[[], Any]] = {
        "whole": lambda: np.copyto(b, a),
        "slots": through_slots(rank, n, gloo, a, b),
        "all_reduce": lambda: dist.all_reduce(x),
    }
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            call()
            dist.barrier(group=gloo)
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            seconds[name].append((time.perf_counter() - start) / CALLS)
    worst = torch.tensor([statistics.median(seconds[name]) for name in calls], dtype=torch.float64)
    dist.all_reduce(worst, op=dist.ReduceOp.MAX, group=gloo)
    return dict(zip(calls, worst.tolist(), strict=True))


def through_slots(rank: int, n: int, gloo: Any, a: np.ndarray, b: np.ndarray) -> Callable[[], None]:
    """A function that copies ``a`` into slots of ours, and the neighbour's slots into ``b``."""
    slot = session().slot_bytes
    mine = Segment.create(SLOTS * slot, "a benchmark")
    addresses: list[Any] = [None] * n
    dist.all_gather_object(addresses, (os.getpid(), mine.fd), group=gloo)
    theirs = Segment.attach(*addresses[(rank - 1) % n])
    dist.barrier(group=gloo)  # all are attached
    outgoing, incoming = (
        np.frombuffer(one.memory, np.float32).reshape(SLOTS, -1) for one in (mine, theirs)
    )
    sources, targets = a.reshape(-1, slot // 4), b.reshape(-1, slot // 4)

    def call() -> None:
        for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
            np.copyto(outgoing[i % SLOTS], source)
            np.copyto(target, incoming[i % SLOTS])

    return call


def past_caches(n: int) -> float:
    """Seconds of a copy of L bytes by non-temporal stores, on n processes at once; the worst's."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", COPYING, str(L)],
            env={**os.environ, **TUNED},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(n)
    ]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()  # all are ready before one begins
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    return max(float(process.communicate(timeout=60)[0]) for process in processes)


WAYS = {
    "whole": "from array to array",
    "past caches": "past the caches",
    "slots": "through slots",
}


def measure() -> list[Figure]:
    figures = []
    for n in (2, 4):
        times = on_ranks(n, time_all)
        copied = {  # bytes a second
            "whole": L / times["whole"],
            "past caches": L / past_caches(n),
            "slots": 2 * L / times["slots"],
        }
        for way, words in WAYS.items():
            least = passes(n) * L / copied[way]
            detail = (
                f"{times['all_reduce'] * 1e3:.1f} ms, least {least * 1e3:.1f} ms at "
                f"{copied[way] / 1e9:.1f} GB/s a rank"
            )
            share = 100 * least / times["all_reduce"]
            what = f"n={n}, 64 MB, of what memcpy {words} allows"
            figures.append(Figure(what, share, SHARE, "%", True, detail))
    return figures
