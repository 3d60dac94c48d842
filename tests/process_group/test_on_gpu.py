"""Tensors on a GPU: every operation through pinned host memory, in order with the caller's stream.

Several ranks share one GPU.
"""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from tests.processes import values

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")


def _late(x: torch.Tensor) -> torch.Tensor:
    """The same values, there only when the GPU has come to them."""
    torch.cuda._sleep(20_000_000)
    return x * 1


def _on_gpu(rank: int, n: int) -> None:
    total = n * (n - 1) / 2
    for elements in (1, 1000, 300_000):
        own = torch.full((elements,), float(rank), device="cuda")
        x = _late(own)
        dist.all_reduce(x)
        assert (x == total).all()
        x = _late(own)
        dist.broadcast(x, n - 1)
        assert (x == n - 1).all()
        x = _late(own)
        dist.reduce(x, 0)
        assert (x == (total if rank == 0 else rank)).all()
        parts = [torch.empty_like(own) for _ in range(n)]
        dist.all_gather(parts, _late(own))
        assert all((part == r).all() for r, part in enumerate(parts))
        whole = torch.empty(n * elements, device="cuda")
        work = dist.all_gather_into_tensor(whole, _late(own), async_op=True)
        work.wait()
        assert (whole.view(n, -1) == torch.arange(n, device="cuda")[:, None]).all()
        x = torch.empty_like(own)
        dist.reduce_scatter_tensor(x, _late(whole))
        assert (x == n * rank).all()
        out = torch.empty_like(whole)
        dist.all_to_all_single(out, _late(whole + 10 * rank))
        assert (out.view(n, -1)[:, 0].cpu() == rank + 10.0 * torch.arange(n)).all()
        dist.scatter(x, [_late(part) for part in parts] if rank == 0 else None, src=0)
        assert (x == rank).all()
        dist.gather(_late(x), parts if rank == n - 1 else None, dst=n - 1)
        assert rank != n - 1 or all((part == r).all() for r, part in enumerate(parts))
    with pytest.raises(RuntimeError, match="must be on one device"):
        dist.all_gather_into_tensor(torch.empty(n), torch.ones(1, device="cuda"))
    dist.barrier()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_every_operation_of_tensors_on_a_gpu(n: int) -> None:
    values(_on_gpu, n)
