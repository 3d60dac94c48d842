"""Every operation over every dtype, reduction and shape: what Gloo gives, bit for bit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from tests.drop_in.both import Refused, compare, raised, tried

DTYPES = (
    "uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 bool complex64 complex128 "
    "uint16 uint32 uint64 complex32 float8_e4m3fn float8_e5m2"
).split()
REDUCTIONS = "SUM PRODUCT MIN MAX AVG BAND BOR BXOR".split()
SIZES = (0, 1, 1003)


def own(rank: int, dtype: str, *shape: int, salt: int = 0) -> torch.Tensor:
    """Return a rank's: small numbers, so that every order of adding gives the same; -1 too, which
    is the largest of all in what has no sign.
    """
    kind: torch.dtype = getattr(torch, dtype)
    whole = (torch.arange(math.prod(shape)) * 7 + 5 * rank + salt) % 4 - 1
    if kind.is_complex:
        return torch.complex(whole.float(), 2 - whole.float()).to(kind).reshape(shape)
    return whole.to(kind).reshape(shape)


def room(dtype: str, *shape: int) -> torch.Tensor:
    return own(9, dtype, *shape)


def bits(x: torch.Tensor) -> list[Any]:
    """Something to compare of any dtype: the shape and the bytes."""
    flat = x.detach().contiguous().reshape(-1)
    plain = flat.as_strided(flat.shape, (1,)).view(torch.uint8)
    if x.dtype == torch.bool:
        plain = plain != 0  # Gloo adds them up as bytes
    return [str(x.dtype), tuple(x.shape), plain]


Calls = tuple[Callable[[], Any], ...]


def moves(rank: int, n: int, dtype: str, shape: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
    """(name, call) of every operation that adds nothing."""
    calls = (*_with_root(rank, n, dtype, shape), *_among_all(rank, n, dtype, shape))
    yield from ((call.__name__, call) for call in calls)


def _with_root(rank: int, n: int, dtype: str, shape: tuple[int, ...]) -> Calls:
    last = n - 1

    def broadcast() -> Any:
        x = own(rank, dtype, *shape)
        dist.broadcast(x, last)
        return bits(x)

    def gather() -> Any:
        out = [room(dtype, *shape) for _ in range(n)] if rank == last else None
        dist.gather(own(rank, dtype, *shape), out, dst=last)
        return [bits(one) for one in out or ()]

    def scatter() -> Any:
        x = room(dtype, *shape)
        parts = [own(rank, dtype, *shape, salt=i) for i in range(n)]
        dist.scatter(x, parts if rank == 0 else None, src=0)
        return bits(x)

    return broadcast, gather, scatter


def _among_all(rank: int, n: int, dtype: str, shape: tuple[int, ...]) -> Calls:
    size = math.prod(shape)

    def all_gather() -> Any:
        out = [room(dtype, *shape) for _ in range(n)]
        dist.all_gather(out, own(rank, dtype, *shape))
        return [bits(one) for one in out]

    def all_gather_into_tensor() -> Any:
        out = room(dtype, n * size)
        dist.all_gather_into_tensor(out, own(rank, dtype, size))
        return bits(out)

    def all_to_all_single() -> Any:
        out = room(dtype, n * size)
        dist.all_to_all_single(out, own(rank, dtype, n * size))
        return bits(out)

    def uneven_all_to_all() -> Any:
        sends, receives = [rank + i for i in range(n)], [i + rank for i in range(n)]
        out = room(dtype, sum(receives))
        dist.all_to_all_single(out, own(rank, dtype, sum(sends)), receives, sends)
        return bits(out)

    def all_to_all() -> Any:
        out = [room(dtype, *shape) for _ in range(n)]
        dist.all_to_all(out, [own(rank, dtype, *shape, salt=i) for i in range(n)])
        return [bits(one) for one in out]

    def messages() -> Any:
        x = room(dtype, *shape)
        works = [
            dist.isend(own(rank, dtype, *shape), (rank + 1) % n),
            dist.irecv(x, (rank - 1) % n),
        ]
        for work in works:
            work.wait()
        return bits(x)

    return (
        all_gather,
        all_gather_into_tensor,
        all_to_all_single,
        uneven_all_to_all,
        all_to_all,
        messages,
    )


def additions(
    rank: int, n: int, dtype: str, shape: tuple[int, ...], reduction: str
) -> Iterator[tuple[str, Any]]:
    last, size, op = n - 1, math.prod(shape), getattr(dist.ReduceOp, reduction)

    def all_reduce() -> Any:
        x = own(rank, dtype, *shape)
        dist.all_reduce(x, op=op)
        return bits(x)

    def reduce() -> Any:
        x = own(rank, dtype, *shape)
        dist.reduce(x, last, op=op)
        return bits(x) if rank == last else None

    def reduce_scatter() -> Any:
        x = room(dtype, *shape)
        dist.reduce_scatter(x, [own(rank, dtype, *shape, salt=i) for i in range(n)], op=op)
        return bits(x)

    def reduce_scatter_tensor() -> Any:
        x = room(dtype, size)
        dist.reduce_scatter_tensor(x, own(rank, dtype, n * size), op=op)
        return bits(x)

    calls = (all_reduce, reduce, reduce_scatter, reduce_scatter_tensor)
    yield from ((f"{call.__name__}({reduction})", call) for call in calls)


def _every_dtype(rank: int, n: int) -> dict[str, Any]:
    results = {}
    for dtype in DTYPES:
        for size in SIZES:
            for name, call in moves(rank, n, dtype, (size,)):
                results[f"{name} of {size} {dtype}"] = tried(call)
            # What has no element or one is added up as any is: once for each kind of number.
            few = size < 2 and dtype not in ("bool", "int64", "float32", "bfloat16", "complex64")
            for reduction in () if few else REDUCTIONS:
                for name, call in additions(rank, n, dtype, (size,), reduction):
                    results[f"{name} of {size} {dtype}"] = tried(call)
    passed = sum(not isinstance(one, Refused) for one in results.values())
    assert passed > 700, passed
    return results


def _every_shape(rank: int, n: int) -> dict[str, Any]:
    results = {}
    for shape in ((), (3, 0, 2), (2, 1, 3), (1, 1)):
        for dtype in ("float32", "bfloat16"):
            calls = [*moves(rank, n, dtype, shape), *additions(rank, n, dtype, shape, "SUM")]
            results |= {f"{name} of {shape} {dtype}": tried(call) for name, call in calls}
    return results


def _unusual_numbers(rank: int, n: int) -> dict[str, Any]:
    """Infinities, zeros with a sign, NaN; and a reduction that is NCCL's alone."""
    results: dict[str, Any] = {}
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        x = torch.tensor([math.inf, -math.inf, -0.0, math.nan, 1e-40, 1.0]).to(dtype)
        y = torch.tensor([1.0, -math.inf, -0.0, 2.0, 1e-40, -math.inf]).to(dtype)
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT):
            one = (x if rank % 2 else y).clone()
            dist.all_reduce(one, op=op)
            results[f"{op} of {dtype}"] = one
    premul = dist._make_nccl_premul_sum(2.0)
    # The last call of this case: a barrier of Gloo's would raise what this one was refused for.
    results["PREMUL_SUM"] = raised(lambda: dist.all_reduce(torch.ones(2), op=premul)) != ""
    return results


def test_every_operation_on_every_dtype_with_every_reduction() -> None:
    compare([_every_dtype, _every_shape, _unusual_numbers], 3, exact=True)
