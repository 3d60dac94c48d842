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

So by copying B bytes per second on each of n processes at once it takes (6n-3)/2n · L/B: 2.25 L/B
for n=2, 2.63 L/B for n=4. B is measured in three ways: 64 MB from one private array to another; the
same past the caches, by a memcpy that is told to use non-temporal stores (others read the lines
that they are about to overwrite; from which size on memcpy avoids that is glibc's choice); and slot
by slot through shared memory, from an array into a slot of one's own, and from the neighbor's slot
into an array (L bytes so are 2L copied). Headers, semaphores, rows, waiting: nothing of these is in
it, nor that slots that were just written may still be in a cache.

The three copies and the all-reduce take turns, because others on the same host leave more or less
of the memory's bandwidth from one second to the next: a share is the median over rounds of what
each round says by itself.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from tools.benchmarks.figures import Figure
from tools.benchmarks.ranks import on_ranks
from workbench.process_group.session import session
from workbench.shared_memory.segments import Segment

L = 64 << 20
SLOTS = 4
ROUNDS, CALLS = 21, 3
SHARES = {2: 85.0, 4: 70.0}  # percent, by ranks
# glibc's least size of a copy by non-temporal stores; it is read when a process starts.
TUNED = {"GLIBC_TUNABLES": "glibc.cpu.x86_non_temporal_threshold=0x4040"}
COPYING = """
import sys, time, numpy as np
bytes_copied, calls = map(int, sys.argv[1:])
a, b = np.ones(bytes_copied, np.uint8), np.ones(bytes_copied, np.uint8)
for line in sys.stdin:
    start = time.perf_counter()
    for _ in range(calls):
        np.copyto(b, a)
    print((time.perf_counter() - start) / calls, flush=True)
"""
Timed = Callable[[], float]  # seconds a call


def passes(n: int) -> float:
    """Copies of the whole tensor that a ring amounts to on each of ``n`` ranks: see above."""
    return (6 * n - 3) / (2 * n)


def time_all(rank: int, n: int, gloo: Any) -> dict[str, list[float]]:
    """Seconds a call by name, of each round: they take turns; the worst rank's."""
    # Written to: pages that never were are all the same one, and reading that costs no memory.
    x, a, b = torch.ones(L // 4), np.ones(L // 4, np.float32), np.ones(L // 4, np.float32)
    with past_caches() as copy_past_caches:
        turns: dict[str, Timed] = {
            "whole": timed(lambda: np.copyto(b, a)),
            "past caches": copy_past_caches,
            "slots": timed(through_slots(rank, n, gloo, a, b)),
            "all_reduce": timed(lambda: dist.all_reduce(x)),
        }
        seconds: dict[str, list[float]] = {name: [] for name in turns}
        for _ in range(ROUNDS):
            for name, turn in turns.items():
                dist.barrier(group=gloo)
                seconds[name].append(turn())
    worst = torch.tensor(list(seconds.values()), dtype=torch.float64)
    dist.all_reduce(worst, op=dist.ReduceOp.MAX, group=gloo)
    return dict(zip(seconds, worst.tolist(), strict=True))


def timed(call: Callable[[], Any]) -> Timed:
    """Return what makes CALLS calls, and returns the seconds of one."""
    call()

    def turn() -> float:
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        return (time.perf_counter() - start) / CALLS

    return turn


def through_slots(rank: int, n: int, gloo: Any, a: np.ndarray, b: np.ndarray) -> Callable[[], None]:
    """A function that copies ``a`` into slots of ours, and the neighbor's slots into ``b``."""
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


@contextmanager
def past_caches() -> Iterator[Timed]:
    """Yield what copies L bytes by non-temporal stores, in a process that waits for its turns."""
    with subprocess.Popen(
        [sys.executable, "-c", COPYING, str(L), str(CALLS)],
        env={**os.environ, **TUNED},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        asks, answers = process.stdin, process.stdout
        assert asks is not None and answers is not None

        def turn() -> float:
            asks.write("\n")
            asks.flush()
            return float(answers.readline())

        turn()
        yield turn  # it ends when its input does


WAYS = {
    "whole": ("from array to array", 1),
    "past caches": ("past the caches", 1),
    "slots": ("through slots", 2),  # each byte twice
}


def measure() -> list[Figure]:
    figures = []
    for n in (2, 4):
        times = on_ranks(n, time_all)
        ours = times["all_reduce"]
        for way, (words, copies) in WAYS.items():
            least = [passes(n) * seconds / copies for seconds in times[way]]
            shares = [100 * a / b for a, b in zip(least, ours, strict=True)]
            low, share, high = statistics.quantiles(shares)
            median = statistics.median(least)
            detail = (
                f"{statistics.median(ours) * 1e3:.1f} ms, least {median * 1e3:.1f} ms at "
                f"{passes(n) * L / median / 1e9:.1f} GB/s a rank; half the rounds "
                f"{low:.0f} to {high:.0f} %"
            )
            what = f"n={n}, 64 MB, of what memcpy {words} allows"
            figures.append(Figure(what, share, SHARES[n], "%", True, detail))
    return figures
