"""Every other operation gives what Gloo gives, bit for bit; what Gloo refuses, ours refuses too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from tests.process_group.common import GLOO, both
from tests.processes import values

Call = Callable[[Any], Any]


def x(rank: int, *shape: int) -> torch.Tensor:
    return torch.arange(int(np.prod(shape)), dtype=torch.float32).reshape(shape) + 100 * rank


def _delegated(rank: int, n: int) -> list[str]:
    GLOO[:] = [dist.new_group(backend="gloo")]
    done = [*_of_tensors(rank, n), *_of_other_things(rank, n)]
    for operation in done:
        both(operation)
    return [operation.__name__ for operation in done]


def _of_tensors(rank: int, n: int) -> list[Call]:
    last = n - 1

    def broadcast(g: Any) -> Any:
        t = x(rank, 7)
        dist.broadcast(t, last, group=g)
        return [t]

    def all_gather(g: Any) -> Any:
        out = [torch.zeros(5) for _ in range(n)]
        dist.all_gather(out, x(rank, 5), group=g)
        flat = torch.zeros(5 * n)
        dist.all_gather_into_tensor(flat, x(rank, 5), group=g)
        return [*out, flat]

    def gather(g: Any) -> Any:
        out = [torch.zeros(3) for _ in range(n)] if rank == 0 else None
        dist.gather(x(rank, 3), out, dst=0, group=g)
        return out or []

    def scatter(g: Any) -> Any:
        t = torch.zeros(3)
        dist.scatter(
            t, [x(rank, 3) + i for i in range(n)] if rank == last else None, src=last, group=g
        )
        return [t]

    def reduce(g: Any) -> Any:
        t = x(rank, 11)
        dist.reduce(t, last, op=dist.ReduceOp.MAX, group=g)
        return [t] if rank == last else []

    def reduce_scatter(g: Any) -> Any:
        t, flat = torch.zeros(4), torch.zeros(4)
        dist.reduce_scatter(t, [x(rank, 4) * (i + 1) for i in range(n)], group=g)
        dist.reduce_scatter_tensor(flat, x(rank, 4 * n), group=g)
        return [t, flat]

    def all_to_all(g: Any) -> Any:
        flat, uneven = torch.zeros(2 * n), torch.zeros(n * (rank + 1))
        dist.all_to_all_single(flat, x(rank, 2 * n), group=g)
        dist.all_to_all_single(
            uneven, x(rank, sum(range(1, n + 1))), [rank + 1] * n, list(range(1, n + 1)), group=g
        )
        return [flat, uneven]

    return [broadcast, all_gather, gather, scatter, reduce, reduce_scatter, all_to_all]


def _of_other_things(rank: int, n: int) -> list[Call]:
    last = n - 1

    def objects(g: Any) -> Any:
        gathered: list[Any] = [None] * n
        dist.all_gather_object(gathered, {"rank": rank, "text": "x" * rank}, group=g)
        shared = [{"from": rank}] if rank == last else [None]
        dist.broadcast_object_list(shared, src=last, group=g)
        mine: list[Any] = [None]
        dist.scatter_object_list(
            mine, [f"for {i}" for i in range(n)] if rank == 0 else None, src=0, group=g
        )
        return [*gathered, *shared, *mine]

    def complex_sum(g: Any) -> Any:
        t = torch.complex(x(rank, 9), -x(rank, 9))
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

    return [objects, complex_sum, bitwise, sparse, barrier]


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
