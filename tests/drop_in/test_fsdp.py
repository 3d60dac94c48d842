"""Fully sharded data parallelism over both backends: FSDP2 (fully_shard), HSDP, and FSDP1."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    BackwardPrefetch,
    CPUOffloadPolicy,
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    ShardingStrategy,
    StateDictType,
    fully_shard,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor import DTensor, Shard

from tests.drop_in.both import compare
from tests.drop_in.training import sgd, train
from tests.process_group.common import batches

CPU = torch.device("cpu")


class Block(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(width, 3 * width), torch.nn.Linear(3 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.up(x).tanh())


def blocks() -> torch.nn.Module:
    """Shapes that four ranks cannot cut evenly."""
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(12, 10),
        Block(10),
        torch.nn.LayerNorm(10),
        Block(10),
        torch.nn.Linear(10, 3),
    )


def sharded(mesh: Any, **options: Any) -> Any:
    net = blocks()
    for part in (net[1], net[3]):
        fully_shard(part, mesh=mesh, **options)
    return fully_shard(net, mesh=mesh, **options)


def local(net: torch.nn.Module) -> list[torch.Tensor]:
    """Return what this rank holds."""
    return [p.to_local().detach().clone() for p in net.parameters()]  # type: ignore[attr-defined]


def whole(net: torch.nn.Module) -> list[torch.Tensor]:
    return [p.full_tensor().detach().clone() for p in net.parameters()]  # type: ignore[attr-defined]


# -- FSDP2 --


def fsdp2(rank: int, n: int) -> Any:
    mesh = init_device_mesh("cpu", (n,))
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    low = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    out = {}
    for name, options in {
        "plain": {},
        "kept": {"reshard_after_forward": False},
        "by two": {"reshard_after_forward": n // 2},
        "bfloat16, sums in float32": {"mp_policy": half},
        "bfloat16": {"mp_policy": low},
        "offloaded": {"offload_policy": CPUOffloadPolicy(pin_memory=False)},
        "other dimension": {
            "shard_placement_fn": lambda p: (
                Shard(1) if p.dim() > 1 and p.shape[1] % n == 0 else None
            )
        },
    }.items():
        net = sharded(mesh, **options)
        out[name] = train(net, rank), local(net), whole(net)
    return _low_precision_apart(out, "bfloat16")


def _low_precision_apart(out: dict[str, Any], name: str) -> dict[str, Any]:
    """Sums of so few bits depend on their order: they are near, that is all."""
    low = out.pop(name)
    torch.testing.assert_close(low, out["plain"], rtol=0.1, atol=0.02)
    return out


def fsdp2_equals_one_process(rank: int, n: int) -> Any:
    plain, split = blocks(), sharded(init_device_mesh("cpu", (n,)))
    for net in (plain, split):
        optimizer = sgd(net)
        for i in range(3):
            every = torch.cat([batches(r, 3)[i] for r in range(n)])
            net(every if net is plain else batches(rank, 3)[i]).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    for a, b in zip(plain.parameters(), whole(split), strict=True):
        torch.testing.assert_close(a.detach(), b, rtol=1e-5, atol=1e-6)


def fsdp2_by_hand(rank: int, n: int) -> Any:
    """Gradients gathered over microbatches, prefetching, an unshard that is not waited for."""
    net = sharded(init_device_mesh("cpu", (n,)))
    net.set_modules_to_forward_prefetch([net[1], net[3]])
    net[3].set_modules_to_backward_prefetch([net[1]])
    optimizer = sgd(net)
    norms = []
    for i, x in enumerate(batches(rank, 4)):
        last = i % 2 == 1
        net.set_is_last_backward(last)
        net.set_requires_gradient_sync(last)
        handle = net.unshard(async_op=True)
        handle.wait()
        net(x).square().mean().backward()
        if last:
            norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            norms.append(norm.full_tensor() if isinstance(norm, DTensor) else norm)
            optimizer.step()
            optimizer.zero_grad()
    net.reshard()
    return norms, whole(net)


def fsdp2_state(rank: int, n: int) -> Any:
    """Whole state on one rank, and from one rank to all."""
    mesh = init_device_mesh("cpu", (n,))
    net = sharded(mesh)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    train(net, rank, optimizer=optimizer)
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    saved = get_model_state_dict(net, options=options)
    adam = get_optimizer_state_dict(net, optimizer, options=options)
    again = sharded(mesh)
    loading = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(again, saved, options=loading)
    return dict(saved), adam.get("state", {}), whole(again)


def hsdp(rank: int, n: int) -> Any:
    mesh = init_device_mesh("cpu", (2, n // 2), mesh_dim_names=("replicate", "shard"))
    net = sharded(mesh)
    losses = train(net, rank)
    accumulating = sharded(mesh)
    optimizer = sgd(accumulating)
    for i, x in enumerate(batches(rank, 4)):
        last = i % 2 == 1
        accumulating.set_requires_all_reduce(last)  # sums within a host, then over all
        accumulating(x).square().mean().backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
    names = [mesh.get_local_rank("replicate"), mesh["shard"].size(), mesh.get_coordinate()]
    return losses, local(net), whole(net), whole(accumulating), names


# -- FSDP1 --


def _fsdp1(rank: int, **options: Any) -> Any:
    net = FullyShardedDataParallel(
        blocks(), device_id=CPU, auto_wrap_policy=ModuleWrapPolicy({Block}), **options
    )
    every = options.pop("every", 1)
    losses = train(net, rank, every=every)
    with FullyShardedDataParallel.summon_full_params(net):
        full = {name: p.detach().clone() for name, p in net.named_parameters()}
    return losses, full, [p.detach().clone() for p in net.parameters()]


def fsdp1(rank: int, n: int) -> Any:
    half = MixedPrecision(
        param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16
    )
    out = {
        name: _fsdp1(rank, **options)
        for name, options in {
            "plain": {},
            "gradients": {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP},
            "none": {"sharding_strategy": ShardingStrategy.NO_SHARD},
            "original parameters": {"use_orig_params": True},
            "prefetch": {"backward_prefetch": BackwardPrefetch.BACKWARD_POST},
            "bfloat16": {"mixed_precision": half},
            "forward prefetch": {"forward_prefetch": True, "limit_all_gathers": False},
        }.items()
    }
    return _low_precision_apart(out, "bfloat16")


def fsdp1_hybrid(rank: int, n: int) -> Any:
    mesh = init_device_mesh("cpu", (2, n // 2), mesh_dim_names=("replicate", "shard"))
    return [
        _fsdp1(rank, device_mesh=mesh, sharding_strategy=strategy)
        for strategy in (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2)
    ]


def fsdp1_no_sync(rank: int, n: int) -> Any:
    net = FullyShardedDataParallel(blocks(), device_id=CPU)
    losses = train(net, rank, every=2)
    norm = None
    net(batches(rank, 1)[0]).square().mean().backward()
    norm = net.clip_grad_norm_(0.1)
    return losses, norm, [p.detach().clone() for p in net.parameters()]


def fsdp1_state(rank: int, n: int) -> Any:
    mesh = init_device_mesh("cpu", (n,))
    net = FullyShardedDataParallel(
        blocks(),
        device_id=CPU,
        device_mesh=mesh,
        use_orig_params=True,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    train(net, rank, optimizer=optimizer)
    out = []
    for kind in (StateDictType.FULL_STATE_DICT, StateDictType.SHARDED_STATE_DICT):
        with contextlib.ExitStack() as stack:
            stack.enter_context(FullyShardedDataParallel.state_dict_type(net, kind))
            saved = net.state_dict()
            adam = FullyShardedDataParallel.optim_state_dict(net, optimizer)
            net.load_state_dict(saved)
            loaded = FullyShardedDataParallel.optim_state_dict_to_load(net, optimizer, adam)
            optimizer.load_state_dict(loaded)
            out.append([_plain(x) for x in saved.values()])
            out.append([_plain(x) for x in _leaves(adam["state"])])
    train(net, rank, iterations=2, optimizer=optimizer)
    return out, [p.detach().clone() for p in net.parameters()]


def fsdp1_sharded_tensors(rank: int, n: int) -> Any:
    """Without a mesh, its sharded state is of ShardedTensors."""
    net = FullyShardedDataParallel(blocks(), device_id=CPU)
    train(net, rank)
    with FullyShardedDataParallel.state_dict_type(net, StateDictType.SHARDED_STATE_DICT):
        saved = net.state_dict()
        out = [_plain(x) for x in saved.values()]
        net.load_state_dict(saved)
    return out, [type(x).__name__ for x in saved.values()]


def _leaves(tree: Any) -> list[Any]:
    return [x for y in tree.values() for x in _leaves(y)] if isinstance(tree, dict) else [tree]


def _plain(x: Any) -> Any:
    if isinstance(x, DTensor):
        return x.full_tensor()
    if hasattr(x, "local_shards"):
        return [shard.tensor.clone() for shard in x.local_shards()]
    return x


@pytest.mark.full
def test_fsdp2_and_hsdp() -> None:
    compare([fsdp2, fsdp2_equals_one_process, fsdp2_by_hand, fsdp2_state, hsdp], 4)


@pytest.mark.full
def test_fsdp1() -> None:
    compare([fsdp1, fsdp1_hybrid, fsdp1_no_sync, fsdp1_state, fsdp1_sharded_tensors], 4)
