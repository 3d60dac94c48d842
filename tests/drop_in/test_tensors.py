"""DTensor and tensor parallelism over both backends: layouts, operations, parallel layers."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
    ones,
)
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

from tests.drop_in.both import compare
from tests.drop_in.training import sgd
from tests.process_group.common import batches

LAYOUTS = (Replicate(), Shard(0), Shard(1), Partial("sum"), Partial("avg"), Partial("max"))


def redistribute(rank: int, n: int) -> Any:
    """From every layout to every other one, of sizes that do and do not fit the ranks."""
    mesh, out = init_device_mesh("cpu", (n,)), {}
    for shape in ((8, 4), (5, 7), (1, 3), (2, 0)):
        x = torch.arange(float(torch.Size(shape).numel())).view(shape) + 1
        for start, end in itertools.product(LAYOUTS, LAYOUTS):
            if end.is_partial():
                continue
            if start.is_partial():
                tensor = DTensor.from_local(x * (rank + 1), mesh, [start], run_check=False)
            else:
                tensor = distribute_tensor(x, mesh, [start])
            got = tensor.redistribute(mesh, [end])
            out[f"{shape} {start} {end}"] = got.to_local(), got.full_tensor()
    return out


def redistribute_on_a_grid(rank: int, n: int) -> Any:
    mesh, out = init_device_mesh("cpu", (2, n // 2), mesh_dim_names=("a", "b")), {}
    plain = (Replicate(), Shard(0), Shard(1))
    pairs = list(itertools.product(plain, plain))
    x = torch.arange(35.0).view(5, 7)
    for start, end in itertools.product(pairs, pairs):
        got = distribute_tensor(x, mesh, list(start)).redistribute(mesh, list(end))
        out[f"{start} {end}"] = got.to_local()
    part = DTensor.from_local(x * rank, mesh, [Partial(), Shard(1)], run_check=False)
    return out, part.full_tensor(), mesh["a"].get_group().size()


def redistribute_dtypes(rank: int, n: int) -> Any:
    mesh, out = init_device_mesh("cpu", (n,)), {}
    for dtype in (torch.int64, torch.bfloat16, torch.float64, torch.complex64, torch.bool):
        x = (torch.arange(24) % 5).view(6, 4).to(dtype)
        tensor = distribute_tensor(x, mesh, [Shard(0)])
        out[str(dtype)] = tensor.redistribute(mesh, [Shard(1)]).to_local(), tensor.full_tensor()
    return out


def operations(rank: int, n: int) -> Any:
    """Return what computing on pieces makes communicate, backward as well."""
    mesh = init_device_mesh("cpu", (n,))
    torch.manual_seed(1)
    a = distribute_tensor(torch.randn(9, 6), mesh, [Shard(0)]).requires_grad_()
    b = distribute_tensor(torch.randn(6, 10), mesh, [Shard(1)]).requires_grad_()
    c = distribute_tensor(torch.randn(10, 6), mesh, [Shard(1)]).requires_grad_()
    results = [
        a @ b,
        c @ b.detach(),
        a.sum(0),
        a.mean(),
        a.norm(),
        a.softmax(0),
        a.softmax(1),
        a.cumsum(0),
        a.var(0),
        (a > 0).all(),
        a.topk(2, dim=0)[0],
        a.argmax(1),
        a.t().contiguous(),
        torch.cat([a, a]),
        torch.nn.functional.layer_norm(a, [6]),
        a.std(),
    ]
    loss = sum(x.float().square().sum() for x in results if x.requires_grad)
    loss.backward()
    values = [x.full_tensor() if isinstance(x, DTensor) else x for x in results]
    count = ones(7, device_mesh=mesh, placements=[Shard(0)]).sum().full_tensor()
    grads = [x.grad.full_tensor() for x in (a, b, c)]
    return [x.detach() for x in values], grads, count


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(17, 8)
        self.norm = torch.nn.LayerNorm(8)
        self.up, self.down = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)
        self.out = torch.nn.Linear(8, 12)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.table(tokens)
        return self.out(x + self.down(self.up(self.norm(x)).relu()))


def _tokens(seed: int, count: int) -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    return [torch.randint(17, (2, 8), generator=random) for _ in range(count)]


PLAIN = {
    "table": RowwiseParallel(input_layouts=Replicate()),
    "up": ColwiseParallel(),
    "down": RowwiseParallel(),
    "out": ColwiseParallel(output_layouts=Replicate()),
}
SEQUENCE = {
    "table": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
    "norm": SequenceParallel(),
    "up": ColwiseParallel(input_layouts=Shard(1)),
    "down": RowwiseParallel(output_layouts=Shard(1)),
    "out": ColwiseParallel(
        input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False
    ),
}


def _train_layer(net: torch.nn.Module, seed: int, parallel_loss: bool) -> Any:
    import contextlib

    optimizer, losses = sgd(net), []
    for tokens in _tokens(seed, 3):
        with loss_parallel() if parallel_loss else contextlib.nullcontext():
            scores = net(tokens)
            loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), tokens.flatten() % 12)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.full_tensor() if isinstance(loss, DTensor) else loss)
    return [x.detach() for x in losses]


def _whole(net: torch.nn.Module) -> list[torch.Tensor]:
    return [
        (p.full_tensor() if isinstance(p, DTensor) else p).detach().clone()
        for p in net.parameters()
    ]


def tensor_parallel(rank: int, n: int) -> Any:
    """Columns and rows, the sequence too, a loss over split classes: all as one process has it."""
    mesh, one, out = init_device_mesh("cpu", (n,)), Layer(), {}
    expected = _train_layer(one, 3, False), _whole(one)
    for name, plan in {"plain": PLAIN, "sequence": SEQUENCE}.items():
        net = parallelize_module(Layer(), mesh, plan)
        got = _train_layer(net, 3, name == "sequence"), _whole(net)
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
        out[name] = got
    return out


def tensor_parallel_and_fsdp(rank: int, n: int) -> Any:
    """Two dimensions of a mesh: data by rows, tensors by columns."""
    mesh = init_device_mesh("cpu", (2, n // 2), mesh_dim_names=("data", "tensor"))
    net = parallelize_module(Layer(), mesh["tensor"], PLAIN)
    fully_shard(net, mesh=mesh["data"])
    return _train_layer(net, 3 + mesh.get_local_rank("data"), False), _whole(net)


def modules_by_hand(rank: int, n: int) -> Any:
    mesh = init_device_mesh("cpu", (n,))

    def cut(name: str, module: torch.nn.Module, mesh: Any) -> None:
        for key, p in list(module.named_parameters(recurse=False)):
            module.register_parameter(
                key, torch.nn.Parameter(distribute_tensor(p, mesh, [Shard(0)]))
            )

    torch.manual_seed(0)
    net = distribute_module(
        torch.nn.Linear(12, 8),
        mesh,
        cut,
        input_fn=lambda _, inputs, mesh: distribute_tensor(inputs[0], mesh, [Replicate()]),
        output_fn=lambda _, y, mesh: y.redistribute(mesh, [Replicate()]).to_local(),
    )
    net(batches(0, 1)[0]).square().mean().backward()
    grads = [p.grad.full_tensor() for p in net.parameters()]
    prepared = parallelize_module(
        torch.nn.Identity(),
        mesh,
        PrepareModuleInput(
            input_layouts=Shard(0), desired_input_layouts=Replicate(), use_local_output=True
        ),
    )
    back = parallelize_module(
        torch.nn.Identity(),
        mesh,
        PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Shard(1)),
    )
    x = torch.arange(8.0).view(1, 8) + 10 * rank
    return grads, prepared(x), back(torch.arange(8.0).view(1, 8))


def meshes(rank: int, n: int) -> Any:
    mesh = init_device_mesh("cpu", (n // 2, 2), mesh_dim_names=("a", "b"))
    flat = mesh._flatten("ab")
    x = torch.full((2,), float(rank))
    for part in (mesh["a"], mesh["b"], flat):
        dist.all_reduce(x, group=part.get_group())
    tensor = DTensor.from_local(x, flat, [Shard(0)])
    ranks = [dist.get_process_group_ranks(mesh.get_group(name)) for name in ("a", "b")]
    return x, tensor.full_tensor(), ranks, mesh.mesh, mesh.get_coordinate()


@pytest.mark.full
def test_dtensors() -> None:
    compare([redistribute, redistribute_on_a_grid, redistribute_dtypes, operations, meshes], 4)


@pytest.mark.full
def test_tensor_parallel() -> None:
    compare([tensor_parallel, tensor_parallel_and_fsdp, modules_by_hand], 4)
