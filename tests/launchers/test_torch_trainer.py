"""Ray Train's TorchTrainer over our backend, which it passes to ``init_process_group`` before the
user's function runs: nothing there has imported the workbench (`make test-launchers`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import workbench as wb
from workbench import laws

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]
STEPS = 5


def train(config: dict[str, Any]) -> None:
    """Train a small model by DDP, in each of Ray's workers; write what the rank saw."""
    import torch
    import torch.distributed as dist
    from ray.train import get_context
    from ray.train.torch import prepare_model

    rank = get_context().get_world_rank()
    torch.manual_seed(0)
    model = prepare_model(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(config["steps"]):
        torch.manual_seed(10 * rank + step)
        x = torch.randn(6, 8)
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dist.all_reduce(mean := loss.detach() / dist.get_world_size())
        losses.append(mean.item())
    result = {"backend": dist.get_backend(), "losses": losses, "ours": "workbench" in sys.modules}
    Path(config["folder"], f"{rank}.json").write_text(json.dumps(result))


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Yield a Ray of this machine alone."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
        import ray.train.torch
    except ImportError as error:
        pytest.skip(f"not run here: {error}")
    # By value: this module imports the workbench, and Ray's workers are not to.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    for last in (False, False, True):  # its raylet gives up after 15 s, where cores are busy
        try:
            ray.init(address="local", num_cpus=3, include_dashboard=False, log_to_driver=False)
            break
        except Exception:
            ray.shutdown()
            if last:
                raise
    yield ray
    ray.shutdown()


def losses_over(backend: str, folder: Path, trace: Path | None = None) -> list[float]:
    """Train on two workers; return the losses that both saw."""
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    folder.mkdir()
    environment = {} if trace is None else {"WORKBENCH_TRACE": str(trace)}
    TorchTrainer(
        train,
        train_loop_config={"folder": str(folder), "steps": STEPS},
        torch_config=TorchConfig(backend=backend),
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            storage_path=str(folder / "results"),
            worker_runtime_env={"env_vars": environment},
        ),
    ).fit()
    first, second = (json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1))
    assert first == second
    assert first["backend"] == backend and first["ours"] == (backend == "workbench")
    losses: list[float] = first["losses"]
    return losses


def test_its_losses_are_those_over_gloo_and_every_chunk_is_seen(ray: Any, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    losses = losses_over("workbench", tmp_path / "ours", trace)
    assert losses == losses_over("gloo", tmp_path / "gloo") and len(losses) == STEPS
    loaded = wb.load(trace)
    assert loaded.dropped == 0 and laws.check_events(loaded.events) == []
    events = loaded.events.with_columns(pl.col(pl.Categorical).cast(pl.String))
    calls = events.filter(kind="collective", collective="all_reduce")
    per_rank = dict(calls.group_by("rank").len().iter_rows())
    assert per_rank == {0: 2 * STEPS, 1: 2 * STEPS}, "DDP's bucket and the mean, at each step"
    assert set(events.filter(kind="send")["rank"]) == {0, 1}, "chunk by chunk"
