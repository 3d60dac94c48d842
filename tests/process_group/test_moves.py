"""Broadcast, reduce, gather, scatter, all-gather, reduce-scatter, all-to-all, barrier: each in
every form that torch has of it, chunk by chunk over our communicator, right and recorded.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
import torch.distributed as dist

import workbench as wb
from tests.process_group.common import SLOT
from tests.processes import values
from workbench import laws
from workbench.collectives import OPERATIONS

DTYPES = (
    "float32 float64 float16 bfloat16 int64 uint8 bool complex64 uint16 float8_e4m3fn"
).split()
ADDED = "float32 float64 float16 bfloat16 int64 uint8".split()
SIZES = (0, 1, 3, 64, 1023, 3001)  # elements of a part; the last ones take several slots


def own(rank: int, elements: int, dtype: str, salt: int = 0) -> torch.Tensor:
    """Return a rank's input, which every rank can make; sums of small integers are exact."""
    numbers = (torch.arange(elements) * 7 + 13 * rank + salt) % 11
    return numbers.to(torch.float32).to(getattr(torch, dtype))


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Bit for bit (not every dtype can be compared)."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    flat = [x.contiguous().as_strided((x.numel(),), (1,)).view(torch.uint8) for x in (a, b)]
    return torch.equal(*flat)


def apart(x: torch.Tensor) -> torch.Tensor:
    """The same values in a tensor that is not contiguous."""
    wide = torch.zeros(x.numel(), 2).to(x.dtype)
    wide[:, 0] = x
    return wide[:, 0]


def _cases(rank: int, n: int, dtype: str, size: int, root: int) -> Iterator[tuple[str, bool]]:
    """(what, whether it came out right) of every operation and form."""
    yield from _handed_on(rank, n, dtype, size, root)
    yield from _all_to_all(rank, n, dtype, size)
    if dtype in ADDED:
        yield from _reduced(rank, n, dtype, size, root)


def _handed_on(rank: int, n: int, dtype: str, size: int, root: int) -> Iterator[tuple[str, bool]]:
    mine, everyone = own(rank, size, dtype), [own(r, size, dtype) for r in range(n)]
    whole = torch.cat(everyone)
    kind = mine.dtype

    x = mine.clone()
    dist.broadcast(x, root)
    yield "broadcast", same(x, everyone[root])
    x = apart(mine)
    dist.broadcast(x, root)
    yield "broadcast of a column", same(x, everyone[root])

    out = [torch.empty(size, dtype=kind) for _ in range(n)]
    dist.all_gather(out, mine)
    yield "all_gather into a list", all(map(same, out, everyone))
    rows = torch.empty(n, size, dtype=kind)
    dist.all_gather([*rows], mine)
    yield "all_gather into rows of one tensor", same(rows.view(-1), whole)
    wide = torch.empty(2 * n, size, dtype=kind)
    dist.all_gather([*wide[::2]], mine)
    yield "all_gather into every other row", same(wide[::2].reshape(-1), whole)
    flat = torch.empty(n * size, dtype=kind)
    dist.all_gather_into_tensor(flat, apart(mine))
    yield "all_gather into one tensor", same(flat, whole)

    out = [torch.empty(size, dtype=kind) for _ in range(n)]
    dist.gather(mine, out if rank == root else None, dst=root)
    yield "gather", rank != root or all(map(same, out, everyone))
    parts = [own(root, size, dtype, r) for r in range(n)]
    x = apart(torch.empty_like(mine))
    dist.scatter(x, parts if rank == root else None, src=root)
    yield "scatter", same(x, parts[rank])


def _all_to_all(rank: int, n: int, dtype: str, size: int) -> Iterator[tuple[str, bool]]:
    kind = own(rank, size, dtype).dtype
    x = torch.empty(n * size, dtype=kind)
    dist.all_to_all_single(x, torch.cat([own(rank, size, dtype, r) for r in range(n)]))
    yield "all_to_all", same(x, torch.cat([own(r, size, dtype, rank) for r in range(n)]))
    sends = [own(rank, size + (rank + 2 * r) % 3, dtype) for r in range(n)]
    right = [own(r, size + (r + 2 * rank) % 3, dtype) for r in range(n)]
    x = torch.empty(sum(map(len, right)), dtype=kind)
    splits = [*map(len, right)], [*map(len, sends)]
    dist.all_to_all_single(x, torch.cat(sends), *splits)
    yield "uneven all_to_all", same(x, torch.cat(right))
    xs = [torch.empty_like(one) for one in right]
    dist.all_to_all(xs, sends)
    yield "all_to_all of lists", all(map(same, xs, right))


def _reduced(rank: int, n: int, dtype: str, size: int, root: int) -> Iterator[tuple[str, bool]]:
    mine, everyone = own(rank, size, dtype), [own(r, size, dtype) for r in range(n)]
    kind = mine.dtype
    total = torch.stack(everyone).sum(0, dtype=torch.float64 if kind.is_floating_point else kind)
    most = torch.stack([one.double() for one in everyone]).amax(0).to(kind)
    x = apart(mine)
    dist.reduce(x, root)
    yield "reduce", same(x, total.to(kind) if rank == root else mine)
    x = mine.clone()
    dist.reduce(x, root, op=dist.ReduceOp.MAX)
    yield "reduce(MAX)", same(x, most if rank == root else mine)
    x, ones = torch.empty(size, dtype=kind), [own(rank, size, dtype, r) for r in range(n)]
    total = torch.stack([own(r, size, dtype, rank) for r in range(n)]).double().sum(0).to(kind)
    dist.reduce_scatter(x, ones)
    yield "reduce_scatter of a list", same(x, total)
    dist.reduce_scatter_tensor(x, torch.cat(ones))
    yield "reduce_scatter of one tensor", same(x, total)
    flat = torch.cat(ones)
    x = flat[(n - 1 - rank) * size :][:size]
    dist.reduce_scatter_tensor(x, flat)
    yield "reduce_scatter into its own memory", same(x, total)
    if kind.is_floating_point and size:
        x = torch.full((size,), 1.0 + rank, dtype=kind)
        dist.reduce(x, root, op=dist.ReduceOp.AVG)
        mean = torch.full((size,), (n + 1) / 2, dtype=kind)
        yield "reduce(AVG)", rank != root or same(x, mean)


def _everything(rank: int, n: int) -> list[str]:
    wrong = []
    for i, dtype in enumerate(DTYPES):
        for j, size in enumerate(SIZES):
            root = (i + j) % n
            checks = _cases(rank, n, dtype, size, root)
            wrong += [
                f"{what} of {size} {dtype}, root {root}" for what, right in checks if not right
            ]
    dist.barrier()
    return wrong


@pytest.mark.parametrize(
    "n", [1, pytest.param(2, marks=pytest.mark.full), 3, pytest.param(8, marks=pytest.mark.full)]
)
def test_every_form_of_every_operation_is_right_and_goes_chunk_by_chunk(
    n: int, tmp_path: Path
) -> None:
    env = {"WORKBENCH_CHUNK": str(SLOT), "WORKBENCH_TRACE": str(tmp_path)}
    assert values(_everything, n, env=env) == [[]] * n
    store = wb.load(tmp_path)
    assert store.dropped == 0
    events = store.events.with_columns(pl.col("collective", "algorithm").cast(pl.String))
    outer = events.filter(pl.col("kind").cast(pl.String) == "collective")
    assert set(outer["collective"]) == {*OPERATIONS} - {"all_reduce"}
    assert "gloo" not in set(outer["algorithm"])
    rooted = outer.filter(pl.col("collective").is_in(["broadcast", "reduce", "gather", "scatter"]))
    assert set(rooted["peer"]) == set(range(n)), "the root is in the row"
    assert rooted.group_by("op").agg(pl.col("peer").n_unique())["peer"].max() == 1
    assert set(outer.filter(~pl.col("op").is_in(rooted["op"].to_list()))["peer"]) == {-1}
    assert laws.check_events(store.events) == []


def _some(rank: int, n: int) -> list[str]:
    checks = [*_cases(rank, n, "float32", 1023, 1), *_cases(rank, n, "bool", 0, 2)]
    dist.barrier()
    return [what for what, right in checks if not right]


@pytest.mark.full
def test_between_hosts_they_are_the_same() -> None:
    """Ranks 0 and 1 on one host, rank 2 on another: its messages go through sockets."""

    def host(rank: int) -> dict[str, str]:
        return {"WORKBENCH_CHUNK": str(SLOT), "WORKBENCH_HOST": f"host {rank // 2}"}

    assert values(_some, 3, env=host) == [[]] * 3


# -- order, groups, what is asynchronous --


def _in_order(rank: int, n: int) -> None:
    """Operations that are started and not waited for are done in the order of their calls."""
    x, parts = torch.full((40_000,), float(rank)), [torch.empty(9) for _ in range(n)]
    mine = torch.empty(5000)
    works = [
        dist.broadcast(x, n - 1, async_op=True),
        dist.all_reduce(x, async_op=True),
        dist.all_gather(parts, x[:9], async_op=True),
        dist.reduce_scatter_tensor(mine, x[: 5000 * n], async_op=True),
        dist.barrier(async_op=True),
        dist.reduce(x, 0, async_op=True),
    ]
    dist.barrier()  # behind them
    assert all(work.is_completed() for work in works)
    assert all(work.wait() for work in works)
    whole = float(n * (n - 1))
    assert all((part == whole).all() for part in parts) and (mine == n * whole).all()
    assert (x == (n * whole if rank == 0 else whole)).all()
    future = dist.broadcast(x, 0, async_op=True).get_future()
    assert (future.wait()[0] == n * whole).all()


def _coalesced(rank: int, n: int) -> None:
    group = dist.group.WORLD
    xs = [torch.full((k,), float(rank)) for k in (3, 700)]
    outs = [torch.empty(k * n) for k in (3, 700)]
    group.allgather_into_tensor_coalesced(outs, xs).wait()
    for out, x in zip(outs, xs, strict=True):
        assert out.tolist() == [float(r) for r in range(n) for _ in range(len(x))]
    group.reduce_scatter_tensor_coalesced(xs, outs).wait()
    assert all((x == n * rank).all() for x in xs)
    lists = [[torch.empty(3), torch.empty(700)] for _ in range(n)]
    group.allgather_coalesced(lists, xs).wait()
    assert all((x == n * r).all() for r, parts in enumerate(lists) for x in parts)


def _in_sub_groups(rank: int, n: int) -> None:
    """Roots are global ranks, as torch has it; members of a group are numbered from 0."""
    members = [3, 1]  # not in the order of their ranks
    group = dist.new_group(members)
    rest = dist.new_group([0, 2, 3])
    for _ in range(2):
        if rank in members:
            x = torch.full((700,), float(rank))
            dist.broadcast(x, 3, group=group)
            assert (x == 3).all()
            out = [torch.empty(2), torch.empty(2)] if rank == 1 else None
            dist.gather(torch.full((2,), float(rank)), out, dst=1, group=group)
            assert rank != 1 or [part[0].item() for part in out] == [
                float(one) for one in dist.get_process_group_ranks(group)
            ]
        if rank in (0, 2, 3):
            x = torch.full((300,), float(rank))
            dist.reduce(x, 2, group=rest)
            assert (x == (5 if rank == 2 else rank)).all()
            dist.barrier(group=rest)
    dist.barrier()


def test_what_is_not_waited_for_is_done_in_order() -> None:
    values(_in_order, 3, env={"WORKBENCH_CHUNK": str(SLOT)})


def test_several_at_once() -> None:
    values(_coalesced, 3, env={"WORKBENCH_CHUNK": str(SLOT)})


def test_roots_in_sub_groups(tmp_path: Path) -> None:
    values(_in_sub_groups, 4, env={"WORKBENCH_TRACE": str(tmp_path)})
    events = wb.load(tmp_path).events
    outer = events.filter(pl.col("kind").cast(pl.String) == "collective")
    roots = {
        kind: set(outer.filter(pl.col("collective").cast(pl.String) == kind)["peer"])
        for kind in ("broadcast", "gather", "reduce")
    }
    assert roots == {"broadcast": {3}, "gather": {1}, "reduce": {2}}  # world ranks
    assert laws.check_events(events) == []


def _late(rank: int, n: int) -> list[float]:
    """Return when each rank called the barrier, and when it went on."""
    times = []
    for last in range(n):
        dist.barrier()
        time.sleep(0.1 * (rank == last))
        called = time.monotonic()
        dist.barrier()
        times += [called, time.monotonic()]
    return times


@pytest.mark.parametrize("n", [2, 5])
def test_no_rank_passes_a_barrier_before_the_last_has_come(n: int) -> None:
    times = values(_late, n)
    for i in range(0, 2 * n, 2):
        assert min(went[i + 1] for went in times) >= max(came[i] for came in times)


# -- what must not be --


def _refused(rank: int, n: int) -> list[str]:
    """Calls that are wrong on this rank alone: each is told at once, and the group goes on."""
    three, x = torch.zeros(3), torch.arange(4.0)
    calls: list[Any] = [
        lambda: dist.all_gather_into_tensor(torch.empty(7), three),
        lambda: dist.all_gather([torch.empty(3)] * (n - 1) + [torch.empty(4)], three),
        lambda: dist.reduce_scatter_tensor(three, torch.zeros(7)),
        lambda: dist.all_to_all_single(torch.empty(5), torch.zeros(5)),
        lambda: dist.all_to_all_single(torch.empty(4), x, [2, 2], [3, 2]),
        lambda: dist.all_to_all_single(torch.empty(4), x, [1, 3], [3, 1]),
        lambda: dist.reduce(torch.ones(3, dtype=torch.bool), 0, op=dist.ReduceOp.AVG),
        lambda: dist.all_gather_into_tensor(torch.empty(3 * n, device="meta"), three),
        lambda: dist.scatter(three, [torch.empty(4)] * n if rank == 1 else None, src=1),
        lambda: dist.gather(three, [torch.empty(3)] if rank == 1 else None, dst=1),
    ]
    messages = []
    for i, call in enumerate(calls):
        if i < len(calls) - 2 or rank == 1:  # the root alone refuses: the others have not called
            try:
                call()
            except (RuntimeError, ValueError) as error:
                messages.append(f"{i} {error}")
    dist.all_reduce(x)
    assert x.tolist() == [0.0, n, 2.0 * n, 3.0 * n]
    return messages


def test_what_cannot_be_is_refused_by_name_and_the_group_goes_on() -> None:
    words = [
        "all_gather of 3 elements over 2 ranks gives 6",
        "3",
        "7 elements",
        "cannot share evenly",
        "split sizes are [3, 2]",
        "elements of its own and has room for",
        "AVG takes numbers",
        "tensors on cpu and on meta",
        "3 elements each",
        "3 elements each",
    ]
    for rank, messages in enumerate(values(_refused, 2)):
        assert len(messages) == len(words) - 2 * (rank == 0), messages
        for message, expected in zip(messages, words, strict=False):
            assert expected in message, (rank, message)
