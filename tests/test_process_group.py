"""The backend as a drop-in: what plain torch.distributed code does with Gloo, it does with ours.

Functions that begin with an underscore run on every rank, in processes of their own.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tests.processes import values

DTYPES = ("float32 float64 float16 bfloat16 uint8 int8 int16 int32 int64").split()
UNIT = {  # half the distance from 1 to the next number
    torch.float32: 2.0**-24, torch.float64: 2.0**-53,
    torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8,
}  # fmt: skip
SLOT = 1024  # bytes; WORKBENCH_CHUNK in the tests that send several slots
OPS = ("SUM", "PRODUCT", "MAX", "MIN", "AVG")


def use(algorithm: str) -> None:
    from workbench.session import session

    session().all_reduce = algorithm


def inputs(rank: int, elements: int, dtype: torch.dtype, op: str) -> torch.Tensor:
    """What a rank gives; every rank can make every other one's."""
    random = np.random.default_rng([rank, elements, len(op)])
    if dtype.is_floating_point:
        # Products stay in the range of float16.
        x = random.uniform(0.5, 1.5, elements) if op == "PRODUCT" else random.normal(size=elements)
        return torch.from_numpy(x).to(dtype)
    low, high = (1, 3) if op == "PRODUCT" else (0, 13)
    return torch.from_numpy(random.integers(low, high, elements)).to(dtype)


def reference(xs: list[torch.Tensor], op: str) -> tuple[np.ndarray, np.ndarray]:
    """The exact outcome and the sum of magnitudes, in integers or in long double."""
    wide = np.longdouble if xs[0].is_floating_point() else np.int64
    all_xs = np.stack(
        [x.double().numpy() if wide is np.longdouble else x.numpy() for x in xs]
    ).astype(wide)
    outcome = {
        "SUM": all_xs.sum(0), "AVG": all_xs.sum(0) / len(xs), "PRODUCT": all_xs.prod(0),
        "MAX": all_xs.max(0), "MIN": all_xs.min(0),
    }[op]  # fmt: skip
    return outcome, np.abs(all_xs).sum(0)


def bound(n: int, dtype: torch.dtype, op: str, outcome: np.ndarray, magnitudes: np.ndarray) -> Any:
    """LAWS.md for sums; n-1 roundings for a product; choices and integers are exact."""
    if not dtype.is_floating_point or op in ("MAX", "MIN"):
        return 0.0
    u = UNIT[dtype]
    if op == "PRODUCT":
        return 1.01 * (n - 1) * u * np.abs(outcome)
    law = (n - 1) * u * magnitudes
    return law if op == "SUM" else law / n + u * np.abs(outcome) * 1.01  # AVG rounds once more


def check_all_reduce(rank: int, n: int, elements: int, dtype: torch.dtype, op: str) -> str | None:
    """None, or what is wrong. Ranks compare their bits through the group inside."""
    if op == "AVG" and not dtype.is_floating_point:
        return None
    case = f"n={n} N={elements} {dtype} {op}"
    x = inputs(rank, elements, dtype, op)
    dist.all_reduce(x, op=getattr(dist.ReduceOp, op))
    outcome, magnitudes = reference([inputs(r, elements, dtype, op) for r in range(n)], op)
    got = x.double().numpy() if dtype.is_floating_point else x.numpy()
    if dtype.is_floating_point:
        error = np.abs(got.astype(np.longdouble) - outcome)
        limit = bound(n, dtype, op, outcome, magnitudes)
        if not (error <= limit + 1e-300).all():
            return f"{case}: error {error.max()}"
    elif not (got == outcome.astype(got.dtype)).all():
        return f"{case}: {got[:4]} is not {outcome[:4]}"
    mine = x.contiguous().as_strided(x.shape, (1,)).view(torch.uint8)  # Gloo knows no int16
    first = mine.clone()
    dist.broadcast(first, 0)
    same = torch.equal(first, mine)
    return None if same else f"{case}: rank {rank}'s bits differ from rank 0's"


def _all_reduce_laws(rank: int, n: int, algorithm: str, every: bool) -> list[str]:
    use(algorithm)
    sizes = sorted({0, 1, 2, max(n - 1, 0), n, n + 1, 1000, 1023, 4097, 16_384})
    cases = list(itertools.product(sizes, DTYPES, OPS))
    if not every:  # each pair of (size, dtype), (size, op), (dtype, op) is in
        cases = [
            (sizes[i], dtype, OPS[(i + j) % len(OPS)])
            for i in range(len(sizes))
            for j, dtype in enumerate(DTYPES)
        ]
    wrong = [check_all_reduce(rank, n, N, getattr(torch, dtype), op) for N, dtype, op in cases]
    return [text for text in wrong if text]


@pytest.mark.parametrize("algorithm", ["ring", "naive", "one_shot", "auto"])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 8])
def test_all_reduce_is_exact_to_the_bound_and_the_same_on_every_rank(
    n: int, algorithm: str
) -> None:
    found = values(_all_reduce_laws, n, algorithm, False, env={"WORKBENCH_CHUNK": str(SLOT)})
    assert found == [[]] * n


@pytest.mark.full
@pytest.mark.parametrize("algorithm", ["ring", "naive", "one_shot", "auto"])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 7, 8])
def test_all_reduce_over_the_full_product(n: int, algorithm: str) -> None:
    env = {"WORKBENCH_CHUNK": str(SLOT)}
    found = values(_all_reduce_laws, n, algorithm, True, env=env, timeout=150.0)
    assert found == [[]] * n


def test_the_bound_can_be_missed() -> None:
    """A sum that leaves one rank out, or adds in half precision, is outside of the bound."""
    xs = [inputs(r, 1000, torch.float32, "SUM") for r in range(4)]
    outcome, magnitudes = reference(xs, "SUM")
    limit = bound(4, torch.float32, "SUM", outcome, magnitudes)
    right = sum(x.double() for x in xs).numpy()
    assert (np.abs(right - outcome) <= limit).all()
    assert not (np.abs(sum(x.double() for x in xs[1:]).numpy() - outcome) <= limit).all()
    assert not (np.abs(sum(x.half() for x in xs).double().numpy() - outcome) <= limit).all()


def _odd_tensors(rank: int, n: int) -> None:
    total = sum(range(n))
    for make in (
        lambda: torch.full((6, 5), float(rank)).t(),
        lambda: torch.full((8, 8), float(rank))[::2, 1::3],
        lambda: torch.full((2, 3, 4, 4), float(rank)).to(memory_format=torch.channels_last),
        lambda: torch.tensor(float(rank)),
        lambda: torch.full((3, 0, 2), float(rank)),
        lambda: torch.full((5,), float(rank), requires_grad=True),
        lambda: torch.full((70_000, 2), float(rank))[:, 0],
    ):
        x = make()
        with torch.no_grad():
            dist.all_reduce(x)
        assert (x == total).all(), x
    around = torch.full((4, 4), -1.0)
    around[:, 1] = rank
    dist.all_reduce(around[:, 1])
    assert (around[:, 1] == total).all() and (around[:, [0, 2, 3]] == -1).all()
    with pytest.raises(RuntimeError, match=r"AVG takes floating"):
        dist.all_reduce(torch.ones(3, dtype=torch.int32), op=dist.ReduceOp.AVG)
    x = torch.ones(3)
    dist.all_reduce(x)  # a refusal leaves the group whole
    assert (x == n).all()


@pytest.mark.parametrize("n", [2, 3])
def test_non_contiguous_empty_and_scalar_tensors(n: int) -> None:
    values(_odd_tensors, n)


# -- the other operations, against Gloo in the same processes --


def both(operation: Callable[[Any], Any]) -> None:
    """Do the same in our group and in a Gloo group; the outcomes must be equal, bit for bit."""
    ours, gloo = operation(None), operation(GLOO[0])
    for a, b in zip(ours, gloo, strict=True):
        if isinstance(a, torch.Tensor):
            a, b = (x.to_dense() if x.is_sparse else x for x in (a, b))
            assert a.dtype == b.dtype and torch.equal(a, b), (a, b)
        else:
            assert a == b


GLOO: list[Any] = []


def _delegated(rank: int, n: int) -> list[str]:
    GLOO[:] = [dist.new_group(backend="gloo")]
    last = n - 1

    def x(*shape: int) -> torch.Tensor:
        return torch.arange(int(np.prod(shape)), dtype=torch.float32).reshape(shape) + 100 * rank

    def broadcast(g: Any) -> Any:
        t = x(7)
        dist.broadcast(t, last, group=g)
        return [t]

    def all_gather(g: Any) -> Any:
        out = [torch.zeros(5) for _ in range(n)]
        dist.all_gather(out, x(5), group=g)
        flat = torch.zeros(5 * n)
        dist.all_gather_into_tensor(flat, x(5), group=g)
        return [*out, flat]

    def gather(g: Any) -> Any:
        out = [torch.zeros(3) for _ in range(n)] if rank == 0 else None
        dist.gather(x(3), out, dst=0, group=g)
        return out or []

    def scatter(g: Any) -> Any:
        t = torch.zeros(3)
        dist.scatter(t, [x(3) + i for i in range(n)] if rank == last else None, src=last, group=g)
        return [t]

    def reduce(g: Any) -> Any:
        t = x(11)
        dist.reduce(t, last, op=dist.ReduceOp.MAX, group=g)
        return [t] if rank == last else []

    def reduce_scatter(g: Any) -> Any:
        t, flat = torch.zeros(4), torch.zeros(4)
        dist.reduce_scatter(t, [x(4) * (i + 1) for i in range(n)], group=g)
        dist.reduce_scatter_tensor(flat, x(4 * n), group=g)
        return [t, flat]

    def all_to_all(g: Any) -> Any:
        flat, uneven = torch.zeros(2 * n), torch.zeros(n * (rank + 1))
        dist.all_to_all_single(flat, x(2 * n), group=g)
        dist.all_to_all_single(
            uneven, x(sum(range(1, n + 1))), [rank + 1] * n, list(range(1, n + 1)), group=g
        )
        return [flat, uneven]

    def objects(g: Any) -> Any:
        gathered: list[Any] = [None] * n
        dist.all_gather_object(gathered, {"rank": rank, "text": "x" * rank}, group=g)
        told = [{"from": rank}] if rank == last else [None]
        dist.broadcast_object_list(told, src=last, group=g)
        mine: list[Any] = [None]
        dist.scatter_object_list(
            mine, [f"for {i}" for i in range(n)] if rank == 0 else None, src=0, group=g
        )
        return [*gathered, *told, *mine]

    def complex_sum(g: Any) -> Any:
        t = torch.complex(x(9), -x(9))
        dist.all_reduce(t, group=g)
        return [t]

    def bitwise(g: Any) -> Any:
        t = torch.tensor([0b1111 ^ (1 << rank), rank | 8], dtype=torch.int32)
        dist.all_reduce(t, op=dist.ReduceOp.BAND, group=g)
        other = torch.tensor([1 << rank], dtype=torch.int64)
        dist.all_reduce(other, op=dist.ReduceOp.BOR, group=g)
        return [t, other]

    def sparse(g: Any) -> Any:
        index = torch.tensor([[rank, rank + 1], [0, rank]])
        t = torch.sparse_coo_tensor(index, torch.tensor([1.0, 2.0]), (n + 1, n)).coalesce()
        dist.all_reduce(t, group=g)
        return [t]

    def barrier(g: Any) -> Any:
        dist.barrier(group=g)
        return []

    done = [
        broadcast, all_gather, gather, scatter, reduce, reduce_scatter, all_to_all, objects,
        complex_sum, bitwise, sparse, barrier,
    ]  # fmt: skip
    for operation in done:
        both(operation)
    return [operation.__name__ for operation in done]


@pytest.mark.parametrize("n", [2, 4])
def test_every_other_operation_gives_what_gloo_gives(n: int) -> None:
    assert len(values(_delegated, n)[0]) == 12


def _what_gloo_refuses(rank: int, n: int) -> list[list[str]]:
    """Calls that Gloo refuses or takes: (ours, Gloo's) outcome in words."""
    gloo = dist.new_group(backend="gloo")

    def coalesced(g: Any) -> Any:
        xs = [torch.full((3,), float(rank)), torch.full((2,), 1.0)]
        with dist._coalescing_manager(group=g):
            for x in xs:
                dist.all_reduce(x, group=g)
        return [x.tolist() for x in xs]

    def many(g: Any) -> Any:
        xs = [torch.full((3,), float(rank)), torch.full((2,), 1.0)]
        dist.all_reduce_coalesced(xs, group=g)
        return [x.tolist() for x in xs]

    def outcome(call: Callable[[Any], Any], g: Any) -> str:
        try:
            return str(call(g))
        except RuntimeError as error:
            return type(error).__name__

    return [[outcome(call, None), outcome(call, gloo)] for call in (coalesced, many)]


def test_what_gloo_refuses_or_takes_ours_does_too() -> None:
    for ours, gloo in values(_what_gloo_refuses, 2)[0]:
        assert ours == gloo


# -- asynchronous calls, futures, groups --


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
    told = torch.tensor([float(rank)])
    mixed = [dist.broadcast(told, n - 1, async_op=True), dist.all_reduce(x, async_op=True)]
    for work in mixed:
        work.wait()
    assert told.item() == n - 1 and (x == n * n).all()


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


# -- point to point --


def _messages(rank: int, n: int) -> None:
    right, left = (rank + 1) % n, (rank - 1) % n
    # sizes around the slot, all dtypes, in both directions at once
    for elements, name in itertools.product((0, 1, 255, 256, 257, 5000), DTYPES):
        x = inputs(rank, elements, getattr(torch, name), "SUM")
        into = torch.zeros_like(x)
        work = dist.isend(x, right)
        assert dist.recv(into, left) == left
        work.wait()
        assert torch.equal(into, inputs(left, elements, x.dtype, "SUM")), (elements, name)
    for dtype in (torch.bool, torch.complex64):
        x, into = torch.ones(1000).to(dtype), torch.zeros(1000).to(dtype)
        work = dist.isend(x, right)
        dist.recv(into, left)
        work.wait()
        assert torch.equal(x, into)
    # not contiguous at either end
    work = dist.isend(torch.full((40, 50), float(rank)).t(), right)
    grid = torch.zeros(50, 80)
    dist.recv(grid[:, ::2], left)
    work.wait()
    assert (grid[:, ::2] == left).all() and (grid[:, 1::2] == 0).all()


def _tags(rank: int, n: int) -> None:
    if rank == 0:
        for tag in (5, 3, 9, 3):
            dist.send(torch.full((600,), float(tag * 10)), 1, tag=tag)
            dist.send(torch.full((1,), float(tag)), 1, tag=tag)
    elif rank == 1:
        time.sleep(0.1)  # they come before their receives
        for tag in (9, 3, 5, 3):
            big, small = torch.zeros(600), torch.zeros(1)
            dist.recv(big, 0, tag=tag)
            dist.recv(small, 0, tag=tag)
            assert (big == tag * 10).all() and small.item() == tag
    # from anybody, later ones first
    if rank == 0:
        seen = []
        for _ in range(n - 1):
            x = torch.zeros(3000)
            seen.append(dist.recv(x))
            assert (x == seen[-1]).all()
        assert sorted(seen) == list(range(1, n))
    else:
        time.sleep(0.05 * (n - rank))
        dist.send(torch.full((3000,), float(rank)), 0)
    dist.barrier()
    # posted receives with different tags, filled in another order
    if rank == 0:
        xs = [torch.zeros(1000) for _ in range(4)]
        works = [dist.irecv(x, 1, tag=tag) for tag, x in enumerate(xs)]
        for work in reversed(works):
            work.wait()
        assert [x[-1].item() for x in xs] == [0.0, 1.0, 2.0, 3.0]
    elif rank == 1:
        for tag in (2, 0, 3, 1):
            dist.send(torch.full((1000,), float(tag)), 0, tag=tag)


def _crossing(rank: int, n: int) -> None:
    """Everybody sends to everybody more than all slots hold, before anybody receives."""
    big = torch.full((300_000,), float(rank))
    into = [torch.zeros(300_000) for _ in range(n)]
    others = [r for r in range(n) if r != rank]
    sends = [dist.P2POp(dist.isend, big, r) for r in others]
    receives = [dist.P2POp(dist.irecv, into[r], r) for r in others]
    for ops in (sends + receives, receives + sends):
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        assert all((into[r] == r).all() for r in others)
        for x in into:
            x.zero_()
    works = [dist.isend(big, r) for r in others]
    time.sleep(0.05)
    for r in others:  # while a collective runs between
        dist.recv(into[r], r)
    x = torch.ones(100_000)
    dist.all_reduce(x)
    for work in works:
        work.wait()
    assert (x == n).all() and all((into[r] == r).all() for r in others)


def _sender_leaves(rank: int, n: int, elements: int) -> None:
    x = torch.arange(float(elements))
    if rank == 0:
        dist.isend(x, 1)  # and nobody waits for it
        return
    time.sleep(0.7)
    into = torch.zeros(elements)
    dist.recv(into, 0)
    assert torch.equal(into, x)


def test_messages_of_every_size_and_dtype() -> None:
    values(_messages, 3, env={"WORKBENCH_CHUNK": str(SLOT)})


def test_tags_and_receives_from_anybody() -> None:
    values(_tags, 3, env={"WORKBENCH_CHUNK": str(SLOT)})


@pytest.mark.parametrize("chunk", [SLOT, 262_144])
def test_large_messages_that_cross(chunk: int) -> None:
    values(_crossing, 3, env={"WORKBENCH_CHUNK": str(chunk)})


@pytest.mark.parametrize("elements", [10, 20_000])  # less and more than the slots hold
def test_a_sender_may_end_before_its_message_is_received(elements: int) -> None:
    values(_sender_leaves, 2, elements, env={"WORKBENCH_CHUNK": str(SLOT)})


def _impatient(rank: int, n: int) -> list[Any]:
    from datetime import timedelta

    if rank == 1:
        time.sleep(0.6)
        dist.send(torch.ones(3), 0)
        return []
    x, start = torch.zeros(3), time.monotonic()
    work = dist.irecv(x, 1)
    try:
        work.wait(timedelta(seconds=0.2))
    except Exception as error:
        waited, name = time.monotonic() - start, type(error).__name__
        work.wait()
        return [name, waited < 0.5, x.tolist()]
    return ["no error"]


def test_a_wait_with_a_timeout_gives_up_and_the_message_still_comes() -> None:
    assert values(_impatient, 2)[0] == ["RunTimeout", True, [1.0] * 3]


def _any_of(rank: int, n: int) -> None:
    """Whoever waits for several messages goes on with the first, wherever it stands in the list."""
    from workbench.session import session
    from workbench.work import wait_any

    session().next_group = "control"
    control = dist.new_group()
    if rank:
        x = torch.full((3000,), float(rank))
        for i in range(20):
            if rank == 1 + i % (n - 1):  # one sends, and waits for the answer
                dist.send(x + i, 0)
                dist.recv(torch.zeros(1), 0)
            dist.barrier()
        if rank == 1:
            dist.send(torch.ones(2), 0, group=control)
        dist.barrier()
        return
    into = [torch.zeros(3000) for _ in range(n)]
    works = [dist.irecv(into[peer], peer) for peer in range(1, n)]
    farewell = dist.irecv(torch.zeros(2), 1, group=control)
    start = time.monotonic()
    assert wait_any([], 0.0) == []
    for i in range(20):
        peer = 1 + i % (n - 1)
        found = wait_any([*works, farewell] if i % 2 else works, 20.0)
        assert found == [peer - 1] == wait_any(works, 20.0)
        works[peer - 1].wait()
        assert (into[peer] == peer + i).all()
        works[peer - 1] = dist.irecv(into[peer], peer)
        dist.send(torch.zeros(1), peer)
        if i == 10:  # everybody stands at the barrier: nothing comes
            began = time.monotonic()
            assert wait_any(works, 0.1) == [] and 0.1 <= time.monotonic() - began < 0.5
        dist.barrier()
    assert wait_any([*works, farewell], 20.0) == [n - 1]
    assert wait_any([farewell, *works], 20.0) == [0]
    dist.barrier()
    assert time.monotonic() - start < 15


def test_who_waits_for_any_of_several_messages_goes_on_with_the_first() -> None:
    values(_any_of, 4, env={"WORKBENCH_CHUNK": str(SLOT)})


def _any_of_other_works(rank: int, n: int) -> None:
    from workbench.work import wait_any

    x, total = torch.zeros(3), torch.ones(2000)
    if rank == 0:
        works = [dist.all_reduce(total, async_op=True), dist.irecv(x, 1)]
        assert wait_any(works, 20.0) == [1]
        dist.send(x, 1)
        assert wait_any(works[:1], 20.0) == [0] and wait_any(works, 20.0) == [0, 1]
    else:
        dist.send(x + 1, 0)
        dist.recv(x, 0)
        dist.all_reduce(total)
    assert (x == 1).all() and (total == 2).all()


def test_messages_and_collectives_are_waited_for_together() -> None:
    values(_any_of_other_works, 2)


def _waits_in_threads(rank: int, n: int) -> None:
    """Three threads wait for a message each; what comes for one is not held up by the others."""
    import threading

    if rank:
        for tag in (2, 0, 1):
            dist.send(torch.full((2000,), float(tag)), 0, tag=tag)
            dist.recv(torch.zeros(1), 0, tag=9)
        return
    into = [torch.zeros(2000) for _ in range(3)]
    order = []

    def wait(tag: int) -> None:
        dist.recv(into[tag], 1, tag=tag)
        order.append(tag)
        dist.send(torch.zeros(1), 1, tag=9)  # the next one comes only now

    threads = [threading.Thread(target=wait, args=(tag,)) for tag in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert order == [2, 0, 1] and [x[-1].item() for x in into] == [0.0, 1.0, 2.0]


def test_threads_that_wait_do_not_hold_each_other_up() -> None:
    values(_waits_in_threads, 2, env={"WORKBENCH_CHUNK": str(SLOT)})


# -- what is built on top --


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(12, 64), torch.nn.BatchNorm1d(64), torch.nn.Tanh(), torch.nn.Linear(64, 64),
        torch.nn.Tanh(), torch.nn.Linear(64, 4),
    )  # fmt: skip


class Branches(torch.nn.Module):
    """A parameter that some batches do not use."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = torch.nn.Linear(12, 4), torch.nn.Linear(12, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.a(x) if x[0, 0] > 0 else self.a(x) + self.b(x)


def batches(rank: int, count: int) -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(rank)
    return [torch.randn(6, 12, generator=random) for _ in range(count)]


def _ddp(rank: int, n: int) -> None:
    gloo = dist.new_group(backend="gloo")
    kinds: list[tuple[type | Callable[[], torch.nn.Module], dict[str, Any], int]] = [
        (model, {}, 1),
        (model, {"bucket_cap_mb": 0.001, "gradient_as_bucket_view": True}, 1),
        (Branches, {"find_unused_parameters": True}, 1),
        (model, {"static_graph": True}, 1),
        (model, {}, 3),  # no_sync for two of three
    ]
    for make, options, every in kinds:
        trained = []
        for group in (None, gloo):
            net = DistributedDataParallel(make(), process_group=group, **options)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            for i, x in enumerate(batches(rank, 6)):
                if (i + 1) % every:
                    with net.no_sync():
                        net(x).square().mean().backward()
                    continue
                net(x).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            trained.append([p.detach().clone() for p in net.parameters()])
        for ours, theirs in zip(*trained, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
            first = ours.clone()
            dist.broadcast(first, 0)
            assert torch.equal(first, ours)


def _ddp_join(rank: int, n: int) -> int:
    net = DistributedDataParallel(torch.nn.Linear(12, 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with net.join():
        for x in batches(rank, 2 + 2 * rank):  # uneven
            net(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    weight = net.module.weight.detach().clone()
    dist.broadcast(weight, 0)
    assert torch.equal(weight, net.module.weight)
    return 1


def _fsdp(rank: int, n: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (n,))
    plain, sharded = model(), model()
    plain[1], sharded[1] = torch.nn.Identity(), torch.nn.Identity()
    fully_shard(sharded, mesh=mesh)
    for net in (plain, sharded):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for i in range(3):
            every = torch.cat([batches(r, 3)[i] for r in range(n)])
            x = every if net is plain else batches(rank, 3)[i]
            net(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    for a, b in zip(plain.parameters(), sharded.parameters(), strict=True):
        torch.testing.assert_close(a, b.full_tensor(), rtol=1e-5, atol=1e-6)


def _functional(rank: int, n: int) -> None:
    import torch.distributed._functional_collectives as functional

    group = dist.group.WORLD
    x = torch.full((4,), float(rank))
    assert (functional.all_reduce(x, "sum", group) == sum(range(n))).all()
    gathered = functional.all_gather_tensor(x, 0, group)
    assert gathered.tolist() == [float(r) for r in range(n) for _ in range(4)]
    scattered = functional.reduce_scatter_tensor(torch.arange(float(2 * n)), "sum", 0, group)
    assert scattered.tolist() == [n * (2.0 * rank), n * (2.0 * rank + 1)]
    assert (functional.broadcast(x, n - 1, group) == n - 1).all()


def _data_loader(rank: int, n: int) -> int:
    """Workers of a DataLoader are forks of a rank: their end must not touch the rank's group."""
    data = torch.utils.data.TensorDataset(torch.arange(40.0))
    total = torch.zeros(1)
    for _ in range(2):
        for (x,) in torch.utils.data.DataLoader(data, batch_size=10, num_workers=2):
            part = x.sum().reshape(1)
            dist.all_reduce(part)
            total += part
        if (pid := os.fork()) == 0:
            import sys

            sys.exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        time.sleep(0.3 * rank)  # the other one waits, and looks whether this one is still there
    return int(total)


def test_ddp_trains_as_over_gloo() -> None:
    values(_ddp, 2)
    values(_ddp, 3)


def test_ddp_join_with_uneven_inputs() -> None:
    assert values(_ddp_join, 3) == [1] * 3


def test_fsdp2_equals_unsharded_training() -> None:
    values(_fsdp, 2)


def test_functional_collectives() -> None:
    values(_functional, 3)


@pytest.mark.parametrize("host", ["", "another"])
def test_forks_of_a_rank_leave_its_group_alone(host: str) -> None:
    def hosts(rank: int) -> dict[str, str]:
        return {"WORKBENCH_HOST": f"{host} {rank}"} if host else {}

    assert values(_data_loader, 2, env=hosts) == [2 * 2 * 780] * 2
