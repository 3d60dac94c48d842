"""A training loop for the families of drop-in tests, and what it leaves to compare."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist

from tests.process_group.common import batches

Net = torch.nn.Module


def sgd(net: Net) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5)


def train(
    net: Net,
    rank: int,
    *,
    iterations: int = 4,
    every: int = 1,
    optimizer: torch.optim.Optimizer | None = None,
    after: Callable[[], Any] = lambda: None,
) -> list[float]:
    """Train on this rank's own batches; the losses. ``every``: batches to an update, the gradients
    of all but the last kept to itself (``no_sync``). ``after``: called after each update.
    """
    optimizer, losses = optimizer or sgd(net), []
    for i, x in enumerate(batches(rank, iterations)):
        last = (i + 1) % every == 0
        with contextlib.nullcontext() if last else net.no_sync():  # type: ignore[operator]
            loss = net(x).float().square().mean()
            loss.backward()
        losses.append(float(loss.detach()))
        if last:
            optimizer.step()
            after()
            optimizer.zero_grad()
    return losses


def state(net: Net) -> dict[str, torch.Tensor]:
    """Parameters and buffers, copied."""
    return {name: x.detach().clone() for name, x in net.state_dict().items()}


def replicas_equal(tensors: Iterable[torch.Tensor]) -> bool:
    """Has every rank the same, bit for bit?"""
    for x in tensors:
        first = x.detach().clone()
        dist.broadcast(first, 0)
        if not torch.equal(first, x):
            return False
    return True
