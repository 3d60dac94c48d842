"""Asynchronous calls and futures; groups that overlap, that come and that go."""

from __future__ import annotations

import os
import time

import torch
import torch.distributed as dist

from tests.processes import values


def _asynchronous(rank: int, n: int) -> None:
    total = sum(range(n))
    xs = [torch.full((size,), float(rank)) for size in (3, 100_000, 0, 5)]
    works = [dist.all_reduce(x, async_op=True) for x in xs]
    sync = torch.full((4,), float(rank))
    dist.all_reduce(sync)  # behind those four, in order
    assert all(work.is_completed() for work in works)
    assert all(work.wait() and work.is_success() for work in works)
    assert all((x == total).all() for x in (*xs, sync))
    x = torch.full((1000,), 1.0)
    future = dist.all_reduce(x, async_op=True).get_future().then(lambda done: done.value()[0] / n)
    assert (future.wait() == 1).all()
    value = torch.tensor([float(rank)])
    mixed = [dist.broadcast(value, n - 1, async_op=True), dist.all_reduce(x, async_op=True)]
    for work in mixed:
        work.wait()
    assert value.item() == n - 1 and (x == n * n).all()


def _sub_groups(rank: int, n: int) -> None:
    pairs = [[a, (a + 1) % n] for a in range(n)]  # overlapping: every rank is in two
    groups = [dist.new_group(sorted(pair)) for pair in pairs]
    evens = dist.new_group(list(range(0, n, 2)))
    for _ in range(3):
        works = []
        for pair, group in zip(pairs, groups, strict=True):
            if rank in pair:
                x = torch.full((50_000,), float(rank))
                works.append((x, sum(pair), dist.all_reduce(x, group=group, async_op=True)))
        for x, expected, work in works:
            work.wait()
            assert (x == expected).all()
        if rank % 2 == 0:
            x = torch.tensor([float(rank)])
            dist.all_reduce(x, group=evens)
            assert x.item() == sum(range(0, n, 2))
    if rank in (n - 2, n - 1):
        x, group = torch.zeros(3), groups[n - 2]
        if rank == n - 2:
            dist.send(torch.full((3,), 7.0), n - 1, group=group)  # global ranks, as torch has it
        else:
            assert dist.recv(x, n - 2, group=group) == n - 2 and (x == 7).all()
            assert dist.get_process_group_ranks(group) == [n - 2, n - 1]
    dist.barrier()


def _again(rank: int, n: int) -> None:
    store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]))
    for round_ in range(5):
        x = torch.full((1000,), float(round_))
        dist.all_reduce(x)
        assert (x == n * round_).all()
        dist.destroy_process_group()
        if rank == round_ % n:
            time.sleep(0.05)
        here = dist.PrefixStore(f"round {round_}", store)
        dist.init_process_group("workbench", store=here, rank=rank, world_size=n)
    if rank:
        time.sleep(0.2)  # the others are in the constructor's end, rank 0 is already gone


def test_async_operations_run_in_order_and_their_futures_chain() -> None:
    values(_asynchronous, 3)


def test_overlapping_sub_groups() -> None:
    values(_sub_groups, 4)


def test_init_again_after_destroy() -> None:
    values(_again, 3)


def _come_and_go(rank: int, n: int) -> None:
    """Nothing is exchanged: the first leaves while the last still looks for the others."""


def test_a_rank_may_leave_before_another_has_found_its_peers() -> None:
    for _ in range(8):
        values(_come_and_go, 3)


def _unused_group(rank: int, n: int) -> int:
    if rank == 0:
        time.sleep(0.3)
    x = torch.ones(5)
    dist.all_reduce(x)
    if rank == 0:
        time.sleep(0.5)
    return int(x.sum())


def test_ranks_may_end_at_different_times() -> None:
    assert values(_unused_group, 3) == [15] * 3
