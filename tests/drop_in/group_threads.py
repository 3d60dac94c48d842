"""Threads that call at once, each in a group of its own, or with a group's first messages."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist


def threads_at_once(rank: int, n: int) -> list[float]:
    """Threads that call at once, each in a group of its own; and messages, told apart by tags."""
    groups = [dist.new_group() for _ in range(4)]
    totals = [0.0] * 6
    failed: list[BaseException] = []

    def sums(i: int) -> None:
        for k in range(20):
            x = torch.full((3000 if k % 2 else 10,), float(rank + i))
            work = dist.all_reduce(x, group=groups[i], async_op=bool(k % 3))
            if work is not None:
                work.wait()
            totals[i] += float(x[0])

    def messages(i: int) -> None:
        for k in range(20):
            x = torch.zeros(2000)
            work = dist.isend(torch.full((2000,), float(rank + k)), (rank + 1) % n, tag=i)
            dist.recv(x, (rank - 1) % n, tag=i)
            assert work is not None
            work.wait()
            totals[i] += float(x[0])

    def guarded(call: Callable[[int], None], i: int) -> None:
        try:
            call(i)
        except BaseException as error:
            failed.append(error)

    jobs = [(sums, 0), (sums, 1), (sums, 2), (sums, 3), (messages, 4), (messages, 5)]
    threads = [threading.Thread(target=guarded, args=job, daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(80.0)
        assert not thread.is_alive()
    if failed:
        raise failed[0]
    return totals


def first_messages(rank: int, n: int) -> list[float]:
    """Two threads have a group's first messages at once, in 30 groups."""
    received: list[float] = []
    often = sys.getswitchinterval()
    for _ in range(30):
        group = dist.new_group()
        dist.barrier(group=group)
        begin, got = threading.Barrier(2), [torch.zeros(3) for _ in range(2)]

        def message(i: int, group: Any, begin: threading.Barrier, x: torch.Tensor) -> None:
            begin.wait(60.0)
            for k in range(3):
                mine = torch.full((3,), float(10 * rank + k + 100 * i))
                work = dist.isend(mine, (rank + 1) % n, group=group, tag=i)
                part = torch.zeros(3)
                dist.recv(part, (rank - 1) % n, group=group, tag=i)
                x[k] = part[0]
                assert work is not None
                work.wait()

        sys.setswitchinterval(1e-6)
        threads = [
            threading.Thread(target=message, args=(i, group, begin, got[i]), daemon=True)
            for i in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(70.0)
        sys.setswitchinterval(often)
        received += [float(value) for x in got for value in x]
        dist.barrier(group=group)
        dist.destroy_process_group(group)
    return received
