"""DistributedDataParallel over both backends: options, gradient hooks, uneven inputs, futures."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import (
    debugging_hooks,
    default_hooks,
    optimizer_overlap_hooks,
    powerSGD_hook,
    quantization_hooks,
)
from torch.distributed.optim.utils import as_functional_optim
from torch.nn.parallel import DistributedDataParallel

from tests.drop_in.both import compare, raised
from tests.drop_in.training import replicas_equal, state, train
from tests.process_group.common import Branches, batches, model

TINY = {"bucket_cap_mb": 0.001}  # several buckets even of a small model


class Sparse(torch.nn.Module):
    """An embedding whose gradient is a sparse tensor."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(20, 6, sparse=True)
        self.out = torch.nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.table((x[:, :5] * 5).long().abs() % 20).mean(1))


class Complex(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = torch.nn.Parameter(torch.randn(12, 5, dtype=torch.complex64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x.to(torch.complex64) @ self.weight).abs()


class Twice(torch.nn.Module):
    """Uses one layer twice, the second time under activation checkpointing."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = torch.nn.Linear(12, 12), torch.nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch.utils.checkpoint import checkpoint

        return self.b(checkpoint(self.a, self.a(x).tanh(), use_reentrant=False))


def _trained(rank: int, net: torch.nn.Module, every: int = 1, **options: Any) -> Any:
    ddp = DistributedDataParallel(net, **options)
    losses = train(ddp, rank, every=every)
    return losses, state(ddp.module), replicas_equal(ddp.parameters())


def plain(rank: int, n: int) -> Any:
    return _trained(rank, model())


def bucket_views(rank: int, n: int) -> Any:
    return _trained(rank, model(), gradient_as_bucket_view=True, **TINY)


def unused_parameters(rank: int, n: int) -> Any:
    return _trained(rank, Branches(), find_unused_parameters=True)


def static_graph(rank: int, n: int) -> Any:
    return _trained(rank, model(), static_graph=True), _trained(rank, Twice(), static_graph=True)


def no_sync(rank: int, n: int) -> Any:
    return _trained(rank, model(), every=2, **TINY)


def buffers_of_their_own(rank: int, n: int) -> Any:
    return _trained(rank, model(), broadcast_buffers=False)


def sparse_gradients(rank: int, n: int) -> Any:
    ddp = DistributedDataParallel(Sparse())
    losses = train(ddp, rank, optimizer=torch.optim.SGD(ddp.parameters(), lr=0.1))
    return losses, state(ddp.module), replicas_equal(ddp.parameters())


def complex_parameters(rank: int, n: int) -> Any:
    return _trained(rank, Complex())


def in_halves(rank: int, n: int) -> Any:
    """Two models, each in a group of half of the ranks."""
    halves = [dist.new_group(list(range(n))[half::2]) for half in (0, 1)]
    ddp = DistributedDataParallel(model(), process_group=halves[rank % 2])
    return train(ddp, rank), state(ddp.module)


def some_parameters_ignored(rank: int, n: int) -> Any:
    net = model()
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(net, ["0.weight"])
    ddp = DistributedDataParallel(net)
    return train(ddp, rank), state(ddp.module)


def composable_replicate(rank: int, n: int) -> Any:
    from torch.distributed._composable.replicate import replicate

    net = replicate(model())
    return train(net, rank), state(net)


def _hooked(rank: int, hook: Any, hook_state: Any = None, **options: Any) -> Any:
    ddp = DistributedDataParallel(model(), **(TINY | options))
    if isinstance(hook, dist.BuiltinCommHookType):
        ddp._register_builtin_comm_hook(hook)
    else:
        ddp.register_comm_hook(hook_state, hook)
    return train(ddp, rank), state(ddp.module)


def hooks_by_name(rank: int, n: int) -> Any:
    return {
        hook.__name__: _hooked(rank, hook)
        for hook in (
            default_hooks.allreduce_hook,
            default_hooks.fp16_compress_hook,
            default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook),
            debugging_hooks.noop_hook,
        )
    }


def hooks_in_cpp(rank: int, n: int) -> Any:
    kinds = dist.BuiltinCommHookType
    return [_hooked(rank, kind) for kind in (kinds.ALLREDUCE, kinds.FP16_COMPRESS)]


def in_half_precision(rank: int, n: int) -> Any:
    ddp = DistributedDataParallel(torch.nn.Linear(12, 4).half(), **TINY)
    ddp(batches(rank, 1)[0].half()).float().square().mean().backward()
    return replicas_equal([p.grad for p in ddp.parameters()])


def power_sgd(rank: int, n: int) -> Any:
    """In one bucket: its callbacks wait for further collectives, for which two of Gloo's threads
    may wait forever.
    """

    def trained(hook: Any, hook_state: Any) -> Any:
        return _hooked(rank, hook, hook_state, bucket_cap_mb=25)

    def begun(**more: Any) -> powerSGD_hook.PowerSGDState:
        return powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=2, start_powerSGD_iter=2, **more
        )

    wrapped = default_hooks.fp16_compress_wrapper(powerSGD_hook.powerSGD_hook)
    return [
        trained(powerSGD_hook.powerSGD_hook, begun()),
        trained(powerSGD_hook.powerSGD_hook, begun(use_error_feedback=False)),
        trained(powerSGD_hook.powerSGD_hook, begun(warm_start=False)),
        trained(wrapped, begun()),
    ]


def optimizer_in_a_hook(rank: int, n: int) -> Any:
    """Each bucket's update runs when its future is done."""
    ddp = DistributedDataParallel(model(), **TINY)
    functional = as_functional_optim(torch.optim.SGD, lr=0.1, momentum=0.5)
    overlapped = optimizer_overlap_hooks._OptimizerHookState(functional, params=None)
    hook = optimizer_overlap_hooks._hook_then_optimizer(default_hooks.allreduce_hook, overlapped)
    ddp.register_comm_hook(None, hook)
    for x in batches(rank, 3):
        ddp(x).square().mean().backward()
        ddp.zero_grad()
    return state(ddp.module)


def a_hook_of_futures(rank: int, n: int) -> Any:
    """A chain of callbacks, on a copy in another dtype."""

    def hook(_, bucket):  # type: ignore[no-untyped-def] # torch compares the annotations
        first = dist.all_reduce(bucket.buffer().double(), async_op=True).get_future()
        halves = first.then(lambda done: done.value()[0].div_(2 * n))
        return halves.then(lambda done: bucket.buffer().copy_(done.value() * 2))

    return _hooked(rank, hook), _hooked(rank, hook, gradient_as_bucket_view=True)


def quantized(rank: int, n: int) -> Any:
    """Of these, torch knows some for GPUs alone: then both say so."""
    return [
        raised(lambda hook=hook: _hooked(rank, hook, dist.group.WORLD))  # type: ignore[misc]
        for hook in (
            quantization_hooks.quantization_pertensor_hook,
            quantization_hooks.quantization_perchannel_hook,
        )
    ]


def join(rank: int, n: int) -> Any:
    """Uneven inputs: a rank that has ended shadows the others' collectives."""
    ddp = DistributedDataParallel(torch.nn.Linear(12, 4), **TINY)
    with torch.no_grad():
        for p in ddp.parameters():
            p.fill_(0.1)
    with ddp.join():
        losses = train(ddp, rank, iterations=2 + rank)
    return losses, state(ddp.module), replicas_equal(ddp.parameters())


def join_that_refuses(rank: int, n: int) -> Any:
    ddp = DistributedDataParallel(torch.nn.Linear(12, 4))

    def early() -> None:
        with ddp.join(throw_on_early_termination=True):
            train(ddp, rank, iterations=2 + (rank == 0))

    return raised(early)


def join_of_no_sync(rank: int, n: int) -> Any:
    net = model()
    net[1] = torch.nn.Identity()
    ddp = DistributedDataParallel(net)
    with ddp.join(divide_by_initial_world_size=False):
        train(ddp, rank, iterations=2 * (1 + rank), every=2)
    return state(ddp.module)


def sync_batch_norm(rank: int, n: int) -> Any:
    """torch has it for accelerators only, and says so over either."""
    net = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model())
    refused = [raised(lambda: DistributedDataParallel(net)), raised(lambda: net(batches(0, 1)[0]))]
    return type(net[1]).__name__, refused, net.eval()(batches(rank, 1)[0]).detach()


def sampler(rank: int, n: int) -> Any:
    data = torch.utils.data.TensorDataset(torch.arange(10 * n + 1.0))
    drawn = []
    for drop in (False, True):
        each = torch.utils.data.DistributedSampler(data, seed=3, drop_last=drop)
        for epoch in (0, 1):
            each.set_epoch(epoch)
            loader = torch.utils.data.DataLoader(data, batch_size=4, sampler=each)
            for (x,) in loader:
                dist.all_reduce(x)
                drawn.append(x)
    return drawn


def test_options_of_ddp() -> None:
    compare([plain, bucket_views, unused_parameters, no_sync, sparse_gradients], 3)


@pytest.mark.full
def test_more_options_of_ddp() -> None:
    compare(
        [
            static_graph,
            buffers_of_their_own,
            complex_parameters,
            in_halves,
            some_parameters_ignored,
            composable_replicate,
            sync_batch_norm,
            sampler,
        ],
        4,
    )


@pytest.mark.full
def test_gradient_hooks_and_uneven_inputs() -> None:
    compare(
        [
            hooks_by_name,
            hooks_in_cpp,
            in_half_precision,
            power_sgd,
            optimizer_in_a_hook,
            a_hook_of_futures,
            quantized,
            join,
            join_that_refuses,
            join_of_no_sync,
        ],
        3,
    )
