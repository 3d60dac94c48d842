"""Functional collectives, gradients through them, and what torch.compile makes of them."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

from tests.drop_in.both import compare, tried


def _functional(rank: int, n: int) -> dict[str, Any]:
    group: Any = dist.group.WORLD
    x = torch.full((4, 3), float(rank + 1))
    wide = torch.arange(float(2 * n)) + rank
    xs = [x, x[:2] * 2]
    calls: dict[str, Any] = {
        "all_reduce": lambda: functional.all_reduce(x, "sum", group),
        "all_reduce(max)": lambda: functional.all_reduce(x, "max", group),
        "all_reduce(avg)": lambda: functional.all_reduce(x, "avg", group),
        "all_reduce by ranks": lambda: functional.all_reduce(x, "sum", list(range(n))),
        "broadcast": lambda: functional.broadcast(x, 1, group),
        "all_gather_tensor": lambda: functional.all_gather_tensor(x, 0, group),
        "all_gather_tensor, dim 1": lambda: functional.all_gather_tensor(x, 1, group),
        "reduce_scatter_tensor": lambda: functional.reduce_scatter_tensor(wide, "sum", 0, group),
        "all_reduce_coalesced": lambda: functional.all_reduce_coalesced(xs, "sum", group),
        "all_gather_into_tensor_coalesced": lambda: functional.all_gather_into_tensor_coalesced(
            xs, group
        ),
        "reduce_scatter_tensor_coalesced": lambda: functional.reduce_scatter_tensor_coalesced(
            [wide, wide * 2], "sum", [0, 0], group
        ),
        "all_to_all_single": lambda: functional.all_to_all_single(wide, None, None, group),
        "uneven all_to_all_single": lambda: functional.all_to_all_single(
            torch.arange(float(n * (rank + 1))), list(range(1, n + 1)), [rank + 1] * n, group
        ),
        "permute_tensor": lambda: functional.permute_tensor(
            wide, [(i + 1) % n for i in range(n)], group
        ),
        "by name": lambda: torch.ops._c10d_functional.wait_tensor(
            torch.ops._c10d_functional.all_reduce(x, "sum", group.group_name)
        ),
        "in place": lambda: torch.ops._c10d_functional.wait_tensor(
            torch.ops._c10d_functional.all_reduce_(x.clone(), "sum", group.group_name)
        ),
    }
    return {name: tried(lambda call=call: _plain(call())) for name, call in calls.items()}


def _plain(result: Any) -> Any:
    """Waited for, and no tensor of a class of its own."""
    if isinstance(result, torch.Tensor):
        return (result + 0.0).clone() if not hasattr(result, "wait") else result.wait().clone()
    return [_plain(one) for one in result]


def _through_autograd(rank: int, n: int) -> dict[str, Any]:
    """Gradients through torch.distributed.nn and the autograd forms of functional collectives."""
    import torch.distributed.nn as nn

    group: Any = dist.group.WORLD

    def leaf(*shape: int) -> torch.Tensor:
        return (
            torch.arange(float(torch.Size(shape).numel())).reshape(shape) + rank
        ).requires_grad_()

    def with_gradient(make: Any, *shape: int) -> list[torch.Tensor]:
        x = leaf(*shape)
        y = make(x)
        parts = [y] if isinstance(y, torch.Tensor) else list(y)
        parts = [part for part in parts if part.requires_grad]
        sum((part * part * (rank + 1)).sum() for part in parts).backward()  # type: ignore
        assert x.grad is not None
        return [*(part.detach().clone() for part in parts), x.grad]

    calls: dict[str, tuple[Any, tuple[int, ...]]] = {
        "nn.all_reduce": (lambda x: nn.all_reduce(x), (3,)),
        "nn.broadcast": (lambda x: nn.broadcast(x, 1), (3,)),
        "nn.all_gather": (lambda x: nn.all_gather(x), (3,)),
        "nn.reduce": (lambda x: nn.reduce(x, 0), (3,)),
        "nn.gather": (lambda x: nn.gather(x, 0), (3,)),
        "nn.scatter": (lambda x: nn.scatter(list(x.chunk(n)), 0), (n, 2)),
        "nn.reduce_scatter": (
            lambda x: nn.reduce_scatter(torch.empty(1, 2), list(x.chunk(n))),
            (n, 2),
        ),
        "nn.all_to_all_single": (
            lambda x: nn.all_to_all_single(torch.empty(n, 2), x),
            (n, 2),
        ),
        "nn.all_to_all": (
            lambda x: nn.all_to_all([torch.empty(1, 2) for _ in range(n)], list(x.chunk(n))),
            (n, 2),
        ),
        "all_gather_tensor_autograd": (
            lambda x: functional.all_gather_tensor_autograd(x, 0, group),
            (3,),
        ),
        "reduce_scatter_tensor_autograd": (
            lambda x: functional.reduce_scatter_tensor_autograd(x, "sum", 0, group),
            (n, 2),
        ),
        "all_to_all_single_autograd": (
            lambda x: functional.all_to_all_single_autograd(x, None, None, group),
            (n, 2),
        ),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            name: tried(lambda make=make, shape=shape: with_gradient(make, *shape))
            for name, (make, shape) in calls.items()
        }


def _compiled(rank: int, n: int) -> list[torch.Tensor]:
    """One graph with collectives in it, without a compiler for its kernels."""
    group: Any = dist.group.WORLD

    def step(x: torch.Tensor) -> torch.Tensor:
        total = functional.all_reduce(x * 2, "sum", group)
        return functional.all_gather_tensor(total + rank, 0, group) + 1

    def plain(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        dist.all_reduce(y)
        return y + 1

    x = torch.full((4,), float(rank))
    compiled = [torch.compile(f, backend="aot_eager", fullgraph=True) for f in (step, plain)]
    return [f(x) for f in compiled]


@pytest.mark.full
def test_functional_collectives_and_gradients_through_them() -> None:
    compare([_functional, _through_autograd], 3, exact=True)


@pytest.mark.full
def test_a_compiled_graph_with_collectives() -> None:
    compare([_compiled], 2, exact=True)
