"""Optimizers that communicate: ZeRO stage 1, model averaging, post-local SGD; both backends."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.algorithms.model_averaging.hierarchical_model_averager import (
    HierarchicalModelAverager,
)
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from tests.drop_in.both import compare
from tests.drop_in.training import replicas_equal, state, train
from tests.process_group.common import batches, model

KINDS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "adam": (torch.optim.Adam, {"lr": 0.01}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
}


def smooth() -> torch.nn.Module:
    """Without the biases before a normalization, whose gradients are rounding alone: Adam would
    make them as large as all others.
    """
    net = model()
    net[1] = torch.nn.Identity()  # type: ignore[index]
    return net


def zero(rank: int, n: int) -> Any:
    """Return what it holds of the state, the parameters, and its state put together on one rank."""
    out = {}
    for name, (kind, options) in KINDS.items():
        for views in (False, True):
            ddp = DistributedDataParallel(smooth())
            optimizer = ZeroRedundancyOptimizer(
                ddp.parameters(), kind, parameters_as_bucket_view=views, **options
            )
            losses = train(ddp, rank, optimizer=optimizer)
            optimizer.consolidate_state_dict(to=1)
            whole = optimizer.state_dict() if rank == 1 else {}
            out[f"{name} {views}"] = (
                losses,
                state(ddp.module),
                whole.get("state", {}),
                len(optimizer.optim.state),
            )
    return out


def zero_of_groups(rank: int, n: int) -> Any:
    """Parameter groups, one added later, state saved and loaded."""
    ddp = DistributedDataParallel(model())
    layers = [list(ddp.module[i].parameters()) for i in (0, 3, 5)]
    optimizer = ZeroRedundancyOptimizer(
        [{"params": layers[0]}, {"params": layers[1], "lr": 0.01}],
        optimizer_class=torch.optim.SGD,
        lr=0.1,
        momentum=0.9,
    )
    optimizer.add_param_group({"params": layers[2], "lr": 0.05})
    train(ddp, rank, iterations=2, optimizer=optimizer)
    for to in range(n):
        optimizer.consolidate_state_dict(to=to)
    whole = [optimizer.state_dict() if rank == n - 1 else {}]  # the one that is asked last has it
    dist.broadcast_object_list(whole, n - 1)
    optimizer.load_state_dict(whole[0])
    train(ddp, rank, iterations=2, optimizer=optimizer)
    return state(ddp.module), replicas_equal(ddp.parameters())


def zero_and_join(rank: int, n: int) -> Any:
    """DDP's and the optimizer's collectives are both shadowed by a rank that has ended."""
    ddp = DistributedDataParallel(torch.nn.Linear(12, 4))
    with torch.no_grad():
        for p in ddp.parameters():
            p.fill_(0.1)
    optimizer = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.SGD, lr=0.1)
    with Join([ddp, optimizer]):
        losses = train(ddp, rank, iterations=1 + rank, optimizer=optimizer)
    return losses, state(ddp.module), replicas_equal(ddp.parameters())


def post_local_sgd(rank: int, n: int) -> Any:
    """Gradients over all at first, then within halves, the models averaged now and then."""
    ddp = DistributedDataParallel(model())
    within, _ = dist.new_subgroups(n // 2)
    ddp.register_comm_hook(
        post_localSGD_hook.PostLocalSGDState(None, within, start_localSGD_iter=2),
        post_localSGD_hook.post_localSGD_hook,
    )
    averager = PeriodicModelAverager(period=2, warmup_steps=2)
    optimizer = PostLocalSGDOptimizer(torch.optim.SGD(ddp.parameters(), lr=0.1), averager)
    losses = train(ddp, rank, iterations=7, optimizer=optimizer)
    return losses, state(ddp.module), optimizer.state_dict()["step"]


def hierarchical_averaging(rank: int, n: int) -> Any:
    net = model()
    averager = HierarchicalModelAverager(OrderedDict([(1, n // 2), (3, n)]), warmup_steps=1)
    losses = train(
        net, rank, iterations=5, after=lambda: averager.average_parameters(list(net.parameters()))
    )
    return losses, state(net)


def clipped(rank: int, n: int) -> Any:
    """A norm over ranks that each hold a part of the gradient."""
    ddp = DistributedDataParallel(model())
    norms = []
    for x in batches(rank, 2):
        ddp(x).square().mean().backward()
        norms.append(torch.nn.utils.clip_grad_norm_(ddp.parameters(), 0.1))
    return norms, [p.grad for p in ddp.parameters()]


@pytest.mark.full
def test_optimizers_that_communicate() -> None:
    compare(
        [zero, zero_of_groups, zero_and_join, post_local_sgd, hierarchical_averaging, clipped], 4
    )
