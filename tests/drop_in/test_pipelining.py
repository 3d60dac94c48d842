"""torch.distributed.pipelining over both backends, and against one process: every schedule."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, SplitPoint, pipeline
from torch.distributed.pipelining.schedules import get_schedule_class
from torch.nn.parallel import DistributedDataParallel

from tests.drop_in.both import compare

MICROBATCHES, WIDTH = 8, 6
CPU = torch.device("cpu")
SINGLE = ("GPipe", "1F1B")
LOOPED = ("LoopedBFS", "Interleaved1F1B", "InterleavedZeroBubble")
VEES = ("ZBVZeroBubble", "DualPipeV")


class Part(torch.nn.Module):
    def __init__(self, index: int) -> None:
        super().__init__()
        torch.manual_seed(index)
        self.layer = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layer(x).tanh()


def _loss(y: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (y - target).square().mean()


def _batch(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(2 * MICROBATCHES, WIDTH, generator=random) for _ in range(2))
    return x, y


def _expected(stages: int) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Gradients by parameter and the output, of one process."""
    net, (x, target) = torch.nn.Sequential(*map(Part, range(stages))), _batch()
    y = net(x)
    _loss(y, target).backward()
    return [p.grad for p in net.parameters()], y.detach()  # type: ignore[misc]


def _step(schedule: Any, first: bool, last: bool, seed: int = 0) -> Any:
    x, target = _batch(seed)
    losses: list[torch.Tensor] = []
    options = {"target": target, "losses": losses} if last else {}
    y = schedule.step(*((x,) if first else ()), **options)
    return (y.detach() if last else None), [loss.detach() for loss in losses]


def _run(name: str, indexes: list[int], total: int, group: Any = None) -> Any:
    """Two updates' worth of one schedule on this rank: outputs, losses, gradients."""
    parts = [Part(i) for i in indexes]
    stages = [
        PipelineStage(part, i, total, CPU, group=group)
        for part, i in zip(parts, indexes, strict=True)
    ]
    kind = get_schedule_class(name)
    schedule = kind(stages[0] if name in SINGLE else stages, MICROBATCHES, loss_fn=_loss)
    first, last = 0 in indexes, total - 1 in indexes
    got = _step(schedule, first, last)
    grads = [p.grad.clone() for part in parts for p in part.parameters()]
    again = _step(schedule, first, last, seed=1)
    return got, grads, again, [p.grad.clone() for part in parts for p in part.parameters()]


def _checked(name: str, indexes: list[int], total: int) -> Any:
    (y, losses), grads, *more = _run(name, indexes, total)
    expected, output = _expected(total)
    mine = [expected[2 * i + k] for i in indexes for k in (0, 1)]
    torch.testing.assert_close(grads, mine, rtol=1e-4, atol=1e-6)
    if y is not None:
        torch.testing.assert_close(y, output, rtol=1e-5, atol=1e-6)
    return y, losses, grads, more


def one_stage_a_rank(rank: int, n: int) -> Any:
    return {name: _checked(name, [rank], n) for name in SINGLE}


def two_stages_a_rank(rank: int, n: int) -> Any:
    return {name: _checked(name, [rank, rank + n], 2 * n) for name in LOOPED}


def a_vee(rank: int, n: int) -> Any:
    return {name: _checked(name, [rank, 2 * n - 1 - rank], 2 * n) for name in VEES}


def split_by_tracing(rank: int, n: int) -> Any:
    """The frontend of torch: a model that is traced and cut at layers."""
    net = torch.nn.Sequential(*map(Part, range(n)))
    x, _ = _batch()
    points = {str(i): SplitPoint.BEGINNING for i in range(1, n)}
    cut = pipeline(net, mb_args=(x.chunk(MICROBATCHES)[0],), split_spec=points)
    stage = cut.build_stage(rank, CPU)
    schedule = get_schedule_class("1F1B")(stage, MICROBATCHES, loss_fn=_loss)
    out = _step(schedule, rank == 0, rank == n - 1)
    return out, [p.grad for p in stage.submod.parameters()]


def inference(rank: int, n: int) -> Any:
    stage = PipelineStage(Part(rank), rank, n, CPU)
    schedule = get_schedule_class("GPipe")(stage, MICROBATCHES)
    x, _ = _batch()
    with torch.no_grad():
        y = schedule.eval(x) if rank == 0 else schedule.eval()
    return y


def with_data_parallelism(rank: int, n: int) -> Any:
    """Stages by columns of a mesh, their replicas by rows: DDP's, then FSDP2's."""
    mesh = init_device_mesh("cpu", (2, n // 2), mesh_dim_names=("data", "stage"))
    stages, out = mesh["stage"], []
    index, total = mesh.get_local_rank("stage"), n // 2
    for kind in ("ddp", "fsdp"):
        part: Any = Part(index)
        if kind == "ddp":
            part = DistributedDataParallel(part, process_group=mesh["data"].get_group())
        else:
            fully_shard(part, mesh=mesh["data"])
        stage = PipelineStage(part, index, total, CPU, group=stages.get_group())
        schedule = get_schedule_class("1F1B")(stage, MICROBATCHES, loss_fn=_loss)
        done = _step(schedule, index == 0, index == total - 1, mesh.get_local_rank("data"))
        grads = [p.grad for p in part.parameters()]
        out.append((done, [g.full_tensor() if hasattr(g, "full_tensor") else g for g in grads]))
    return out


@pytest.mark.full
def test_pipelining() -> None:
    compare(
        [
            one_stage_a_rank,
            two_stages_a_rank,
            a_vee,
            split_by_tracing,
            inference,
            with_data_parallelism,
        ],
        4,
    )
