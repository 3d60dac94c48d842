"""How an operation is called and waited for: handles, futures, coalesced, without contiguity."""

from __future__ import annotations

import threading
import warnings
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.drop_in.both import LIMIT, compare, raised, tried
from tests.processes import values


def _handles(rank: int, n: int) -> dict[str, Any]:
    """Return what each operation's handle says before, while and after it is waited for."""
    x = torch.full((1000,), float(rank))
    parts = [torch.zeros(1000) for _ in range(n)]
    flat = torch.zeros(1000 * n)
    calls: dict[str, Any] = {
        "all_reduce": lambda: dist.all_reduce(x, async_op=True),
        "broadcast": lambda: dist.broadcast(x, 0, async_op=True),
        "all_gather": lambda: dist.all_gather(parts, x, async_op=True),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(flat, x, async_op=True),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(x, flat, async_op=True),
        "all_to_all_single": lambda: dist.all_to_all_single(flat, flat.clone(), async_op=True),
        "barrier": lambda: dist.barrier(async_op=True),
    }
    outcomes = {}
    for name, call in calls.items():
        work = call()
        states = [work.wait(timeout=LIMIT), work.wait(), work.exception() is None]
        if name != "reduce_scatter_tensor":  # of which Gloo's says nothing
            states += [work.is_completed(), work.is_success()]
        outcomes[name] = [states, tried(lambda w=work: _value(w))]
    work = dist.isend(x, (rank + 1) % n)
    into = torch.zeros(1000)
    other = dist.irecv(into, (rank - 1) % n)
    states = [work.wait(), other.wait(), work.is_completed(), other.is_completed()]
    return outcomes | {"messages": [states, other._source_rank(), into]}


def _value(work: Any) -> list[Any]:
    """Return what its future gives."""
    future = work.get_future()
    value = future.wait()
    parts = _flat(value) if isinstance(value, list) else []  # Gloo cuts what was gathered
    return [future.done(), type(value).__name__, float(sum(one.sum() for one in parts))]


def _flat(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [one for part in value for one in _flat(part)]


def _futures(rank: int, n: int) -> list[Any]:
    """Callbacks chain, are done when a wait for their operation is over, and may fail."""
    done: list[str] = []
    x = torch.full((50_000,), float(rank))
    work = dist.all_reduce(x, async_op=True)
    work.get_future().add_done_callback(lambda _: done.append("told"))
    work.wait()
    outcome: list[Any] = [[*done]]
    work = dist.all_reduce(x, async_op=True)
    halved = work.get_future().then(lambda f: f.value()[0] / 2).then(lambda f: f.wait() + 1)
    outcome.append(halved.wait())

    def fails(_: Any) -> None:
        raise ValueError("in a callback")

    bad = dist.all_reduce(x, async_op=True).get_future().then(fails)
    outcome.append(raised(bad.wait))
    xs = [x + i for i in range(5)]
    futures = [dist.all_reduce(one, async_op=True).get_future() for one in xs]
    outcome.append([f[0] for f in torch.futures.wait_all(futures)])
    late = work.get_future()  # of what is long done
    late.add_done_callback(lambda _: done.append("late"))
    outcome.append(done)
    callback_event = threading.Event()
    dist.all_reduce(x, async_op=True).get_future().add_done_callback(lambda _: callback_event.set())
    outcome.append(callback_event.wait(60.0))  # the handle is gone, the operation is not
    return outcome


def _coalesced(rank: int, n: int) -> dict[str, Any]:
    outcomes: dict[str, Any] = {}
    group = dist.group.WORLD
    assert group is not None

    def tensors() -> list[torch.Tensor]:
        return [torch.full((k,), float(rank + k)) for k in (3, 700, 0, 20_000)]

    for asynchronous in (False, True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch would rather not have it
            xs, op = tensors(), dist.ReduceOp.MAX if asynchronous else dist.ReduceOp.SUM
            work = dist.all_reduce_coalesced(xs, op, async_op=asynchronous)
            outcomes[f"all_reduce_coalesced {asynchronous}"] = [
                work.wait() if asynchronous else None,
                xs,
            ]
            xs, outs = tensors(), [[torch.zeros_like(x) for x in tensors()] for _ in range(n)]
            outcomes[f"all_gather_coalesced {asynchronous}"] = tried(
                lambda xs=xs, outs=outs, asynchronous=asynchronous: _done(
                    dist.all_gather_coalesced(outs, xs, async_op=asynchronous), outs
                )
            )
        for name in ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "broadcast"):
            outcomes[f"{name} in a coalescing manager {asynchronous}"] = tried(
                lambda name=name, asynchronous=asynchronous: _managed(
                    name, tensors(), n, asynchronous
                )
            )
    xs = tensors()
    wide = [torch.zeros(n * x.numel()) for x in xs]
    group.allgather_into_tensor_coalesced(wide, xs).wait()
    outcomes["allgather_into_tensor_coalesced"] = wide
    group.reduce_scatter_tensor_coalesced(xs, wide).wait()
    outcomes["reduce_scatter_tensor_coalesced"] = xs
    return outcomes


def _done(work: Any, outs: Any) -> Any:
    if work is not None:
        work.wait()
    return outs


def _managed(name: str, xs: list[torch.Tensor], n: int, asynchronous: bool) -> Any:
    outs = [torch.zeros(n * x.numel()) for x in xs]
    group = dist.group.WORLD
    try:
        with dist._coalescing_manager(group=group, async_ops=asynchronous) as manager:
            for x, out in zip(xs, outs, strict=True):
                if name == "all_reduce":
                    dist.all_reduce(x)
                elif name == "broadcast":
                    dist.broadcast(x, 0)
                elif name == "all_gather_into_tensor":
                    dist.all_gather_into_tensor(out, x)
                else:
                    dist.reduce_scatter_tensor(x, torch.cat([x + i for i in range(n)]))
        if asynchronous:
            manager.wait()
    finally:
        dist.distributed_c10d._world.pg_coalesce_state.pop(group, None)
    return [*xs, *outs]


class _Mine:
    """A rank's tensors, and the results of calls of these kinds on them."""

    def __init__(self, rank: int, n: int) -> None:
        self.rank, self.n = rank, n

    def x(self, k: float = 2.0) -> torch.Tensor:
        return torch.full((5,), self.rank + k)

    def in_place(self, call: Any) -> Any:
        one = self.x()
        call(one).wait()
        return one

    def gathered(self, call: Any) -> Any:
        outs = [torch.zeros(5) for _ in range(self.n)]
        work = call(outs)
        if work is not None:
            work.wait()
        return outs

    def scattered(self, call: Any) -> Any:
        one, parts = self.x(), [self.x(float(i)) for i in range(self.n)]
        call(one, parts).wait()
        return one


def _group_methods(rank: int, n: int) -> dict[str, Any]:
    """The operations as methods of the group, in each of the forms that they have there."""
    group: Any = dist.group.WORLD
    product = dist.ReduceOp.PRODUCT
    mine = _Mine(rank, n)
    x, in_place, gathered, scattered = mine.x, mine.in_place, mine.gathered, mine.scattered

    def at_root(one: torch.Tensor) -> Any:
        return one if rank == 0 else None  # elsewhere Gloo leaves what it needed

    wide = torch.zeros(n)
    calls: dict[str, Any] = {
        "allreduce(x)": lambda: in_place(lambda one: group.allreduce(one)),
        "allreduce([x])": lambda: in_place(lambda one: group.allreduce([one])),
        "allreduce(x, op)": lambda: in_place(lambda one: group.allreduce(one, product)),
        "allreduce([x], op=)": lambda: in_place(lambda one: group.allreduce([one], op=product)),
        "broadcast(x, root)": lambda: in_place(lambda one: group.broadcast(one, 1)),
        "broadcast(x, root=)": lambda: in_place(lambda one: group.broadcast(one, root=1)),
        "reduce(x, root)": lambda: at_root(in_place(lambda one: group.reduce(one, 0))),
        "reduce(x, root, op)": lambda: at_root(
            in_place(lambda one: group.reduce(one, 0, op=product))
        ),
        "allgather(parts, x)": lambda: gathered(lambda outs: group.allgather(outs, x())),
        "allgather([parts], [x])": lambda: gathered(lambda outs: group.allgather([outs], [x()])),
        "gather(parts, x, root)": lambda: gathered(
            lambda outs: group.gather(outs if rank == 1 else [], x(), 1)
        ),
        "scatter(x, parts, root)": lambda: scattered(
            lambda one, parts: group.scatter(one, parts if rank == 0 else [], 0)
        ),
        "reduce_scatter(x, parts, op)": lambda: scattered(
            lambda one, parts: group.reduce_scatter(one, parts, product)
        ),
        "alltoall_base(out, x, [], [])": lambda: [
            group.alltoall_base(wide, torch.arange(float(n)) + rank, [], []).wait(),
            wide,
        ],
        "barrier()": lambda: group.barrier().wait(),
        "barrier(timeout)": lambda: group.barrier(LIMIT).wait(),
        "names": lambda: [group.rank(), group.size(), isinstance(group, dist.ProcessGroup)],
        "store": lambda: group.get_group_store().set("key of mine", "1"),
        "sequence": lambda: type(group._get_sequence_number_for_group()).__name__,
    }
    return {name: tried(call) for name, call in calls.items()}


def _barriers(rank: int, n: int) -> list[Any]:
    return [
        dist.barrier(),
        dist.barrier(async_op=True).wait(),
        tried(lambda: dist.barrier(device_ids=[0])),
        raised(lambda: dist.barrier(device_ids=0)),
    ]


def _sparse(rank: int, n: int) -> list[torch.Tensor]:
    index = torch.tensor([[rank, rank + 1], [0, rank]])
    outcome = []
    for dtype in (torch.float32, torch.float64, torch.int64):
        values = torch.tensor([1, 2]).to(dtype)
        x = torch.sparse_coo_tensor(index, values, (n + 1, n)).coalesce()
        dist.all_reduce(x)
        y = torch.sparse_coo_tensor(index, values, (n + 1, n)).coalesce()
        work = dist.all_reduce(y, async_op=True)
        work.wait()
        outcome += [x.to_dense(), y.to_dense(), work.get_future().wait()[0].to_dense()]
    hybrid = torch.sparse_coo_tensor(torch.tensor([[rank, n]]), torch.ones(2, 3), (n + 1, 3))
    hybrid = hybrid.coalesce()
    dist.all_reduce(hybrid)
    return [*outcome, hybrid.to_dense()]


def _inference(rank: int, n: int) -> list[torch.Tensor]:
    """Tensors of inference mode, and of autograd, may be written by the thread that works."""
    results = []
    with torch.inference_mode():
        for dtype in (torch.float32, torch.bfloat16, torch.complex64):
            x = torch.full((3, 4), rank + 1, dtype=dtype)
            dist.all_reduce(x)
            dist.all_reduce(x, async_op=True).wait()
            out = torch.zeros(3 * n, 4, dtype=dtype)
            dist.all_gather_into_tensor(out, x, async_op=True).wait()
            dist.reduce_scatter_tensor(x, out, async_op=True).wait()
            dist.broadcast(x, 1, async_op=True).wait()
            results += [x.clone(), out.clone()]
    leaf = torch.full((4,), float(rank), requires_grad=True)
    dist.all_reduce(leaf)
    dist.broadcast(leaf, 0)
    leaf = torch.full((4,), float(rank), dtype=torch.bfloat16, requires_grad=True)
    dist.all_reduce(leaf)
    x = torch.ones(4, dtype=torch.bfloat16, requires_grad=True)
    y = x.exp()  # is saved for backward
    dist.all_reduce(y)
    y.sum().backward()
    assert x.grad is not None
    return [*results, leaf.detach(), x.grad]


@pytest.mark.full
def test_handles_futures_and_forms_of_calls() -> None:
    cases = [_handles, _futures, _coalesced, _group_methods, _barriers, _sparse, _inference]
    compare(cases, 3, exact=True)


def _what_torch_keeps_for_gloo(rank: int, n: int) -> None:
    """``monitored_barrier`` asks for a group of that name, coalescing asks for NCCL's."""
    dist.monitored_barrier(timeout=LIMIT, wait_all_ranks=True)
    dist.monitored_barrier(dist.new_group([0, 1]))
    if rank == 0:
        try:
            dist.monitored_barrier(timeout=timedelta(seconds=0.2))
        except RuntimeError as error:
            assert "Rank 1" in str(error), error
        else:
            raise AssertionError("rank 1 has not come")
    dist.barrier()

    device, coalescing = torch.device("cpu"), dist.distributed_c10d._coalescing_manager
    x, y = torch.ones(3), torch.full((3,), float(rank))
    with coalescing(device=device):
        dist.all_reduce(x)
        dist.all_reduce(y)
    assert x.tolist() == [n] * 3 and y.tolist() == [n * (n - 1) / 2] * 3
    into, third = torch.empty(3), torch.full((3,), float(rank))
    with coalescing(device=device, async_ops=True) as together:
        dist.isend(y + rank, (rank + 1) % n)
        dist.irecv(into, (rank - 1) % n)
        dist.broadcast(third, 1, async_op=True)
    together.wait()
    assert into.tolist() == [n * (n - 1) / 2 + (rank - 1) % n] * 3 and third.tolist() == [1.0] * 3
    work = dist.all_reduce(x, async_op=True)  # the group is as it was
    assert work is not None and work.wait()
    premul = dist._make_nccl_premul_sum(2.0)
    try:
        dist.all_reduce(x, op=premul)
    except RuntimeError as error:
        assert "of group default is left to Gloo inside" in error.__notes__[0], error
    else:
        raise AssertionError("Gloo has no PREMUL_SUM")


def test_what_torch_keeps_for_groups_that_it_knows_by_name() -> None:
    values(_what_torch_keeps_for_gloo, 2)
