"""Training on a GPU that the ranks share: what a CPU would give, in every strategy."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import workbench as wb
from tests.live import lenet
from tests.processes import command
from workbench import laws
from workbench.presets import catalogue

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")

TEXT = {"task": "char_transformer", "batch_size": 8}
EXPERIMENTS: dict[str, dict[str, Any]] = {
    "one process": {"strategy": "sequential", "ranks": 1},
    "ring": {"strategy": "data_parallel", "ranks": 3, "all_reduce": "ring"},
    "momentum": {"strategy": "data_parallel", "momentum": 0.9},
    "Adam": {"strategy": "ddp", "optimizer": "adam", "lr": 1e-3},
    "over Gloo": {"strategy": "ddp", "backend": "gloo"},
    "a server": {"strategy": "parameter_server", "ranks": 3},
    "local steps": {"strategy": "local_sgd"},
    "gossip": {"strategy": "gossip", "ranks": 4},
    "largest gradients": {"strategy": "top_k"},
    "fused": {"strategy": "fusion"},
    "shards": {"strategy": "fsdp", **TEXT},
    "inside the layers": {"strategy": "tensor_parallel", **TEXT},
    "stages": {"strategy": "pipeline", **TEXT},
}
ON_CPU = {"Reinforcement learning"}  # groups of presets whose environments need it


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_losses_are_those_of_a_cpu(name: str) -> None:
    exp = lenet(dtype="float64", iterations=10, **EXPERIMENTS[name])
    on_cpu = wb.run(exp.replace(device="cpu")).wait(timeout=180)
    run = wb.run(exp.replace(device="cuda"))
    on_gpu = run.wait(timeout=180)
    assert laws.check_events(run.events) == []
    assert len(on_gpu.losses) == len(on_cpu.losses) > 0
    assert np.abs(np.subtract(on_gpu.losses, on_cpu.losses)).max() < 1e-8
    for key, value in on_cpu.parameters.items():
        assert (on_gpu.parameters[key].cpu() - value).abs().max() < 1e-8, key


@pytest.mark.full
@pytest.mark.parametrize(
    "name", [name for name, one in catalogue.presets().items() if one.group not in ON_CPU]
)
def test_a_preset_runs(name: str) -> None:
    exp = catalogue.presets()[name].experiment
    moments = [getattr(fault, "at_iteration", None) or 0 for fault in exp.faults]
    iterations = min(exp.iterations, max([8, *(moment + 5 for moment in moments)]))
    run = wb.run(exp.replace(device="cuda", iterations=iterations))
    result = run.wait(timeout=180, check=False)
    meant = "SIGKILL" if any(isinstance(one, wb.Kill) for one in exp.faults) else "memory_limit"
    assert result.ok or meant in str(result.error), result.error
    assert exp.faults or laws.check_events(run.events) == []


def test_nccl_alone() -> None:
    """A single rank may have the whole GPU; its losses are those of one process."""
    exp = lenet(strategy="ddp", ranks=1, dtype="float64", device="cuda", iterations=10)
    ours = wb.run(exp).wait(timeout=180)
    nccl = wb.run(exp.replace(backend="nccl")).wait(timeout=180)
    assert np.abs(np.subtract(ours.losses, nccl.losses)).max() < 1e-8


def test_a_checkpoint_goes_on(tmp_path: Path) -> None:
    """Ten iterations are five, a checkpoint, and five more; the GPU's generator goes on, too."""
    exp = lenet(strategy="data_parallel", dtype="float64", device="cuda", iterations=10)
    whole = wb.run(exp).wait(timeout=180)
    plan = wb.Checkpoint(folder=str(tmp_path), every=5)
    wb.run(exp.replace(checkpoint=plan, iterations=5)).wait(timeout=180)
    rest = wb.run(exp.replace(resume=str(tmp_path))).wait(timeout=180)
    assert rest.losses[-5:] == pytest.approx(whole.losses[-5:], abs=1e-9)


@pytest.mark.parametrize("recovery", ["shrink", "replace"])
def test_a_killed_rank_is_recovered_from(recovery: str) -> None:
    exp = lenet(
        ranks=3,
        device="cuda",
        iterations=30,
        recovery=recovery,
        faults=[wb.Kill(rank=1, at_iteration=10)],
    )
    run = wb.run(exp)
    result = run.wait(timeout=180)
    assert result.ok and len(result.losses) == 30, result.error


NCCL = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile
torch.cuda.set_device(0)
dist.init_process_group("nccl")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4096, 4096, device="cuda"))
sgd = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.ones(64, 4096, device="cuda")
for _ in range(20):
    sgd.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    sgd.step()
big = torch.ones(64_000_000, device="cuda")
for _ in range(5):
    dist.all_reduce(big)
dist.broadcast(big, 0)
dist.barrier()
torch.cuda.synchronize()
print("loss", loss.item(), dist.get_backend())
dist.destroy_process_group()
"""


def test_an_attached_job_over_nccl_shows_its_operations(tmp_path: Path) -> None:
    """By CUDA events; the job prints what it prints alone."""
    (tmp_path / "train.py").write_text(NCCL)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1"]
    alone = command([*torchrun, str(tmp_path / "train.py")], 240)
    trace = tmp_path / "trace"
    attach = [sys.executable, "-m", "workbench.cli", "attach", "--no-page", "--trace", str(trace)]
    seen = command([*attach, "--", *torchrun, str(tmp_path / "train.py")], 240)
    assert (seen.returncode, seen.stdout) == (0, alone.stdout), seen.stderr[-4000:]
    assert "nccl" in seen.stdout
    events = wb.load(trace).events
    calls = events.filter(kind="collective").group_by("collective").len().sort("collective").rows()
    assert dict(calls)["all_reduce"] >= 25 and dict(calls)["broadcast"] >= 1
    assert laws.check_events(events) == []
    assert ((events["end_ns"] - events["start_ns"]) > 0).all()
