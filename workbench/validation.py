"""What a task measures of a model beside its loss, while it trains and at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from workbench.batches import partition
from workbench.launchers.rehearsal import samples_of

if TYPE_CHECKING:
    from workbench.job import Job

VALIDATION_BATCH = 256


def aside(task: Any, model: torch.nn.Module, batch: Any) -> dict[str, float]:
    """The task's metrics of a batch, without a trace in the training."""
    if isinstance(model, DistributedDataParallel):
        model = model.module
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            found: dict[str, float] = task.metrics(model, batch)
    finally:
        for module, training in modes:
            module.training = training
    return found


@torch.no_grad()
def validate(job: Job, model: torch.nn.Module, ranks: Sequence[int]) -> dict[str, float]:
    """Means over the validation samples, each counted once however many ranks share them."""
    if not hasattr(job.task, "metrics"):
        return {}
    model.eval()
    samples = samples_of(job.task, "validation")
    mine = partition(np.arange(len(samples)), ranks.index(job.rank), len(ranks))
    names: list[str] = []
    sums = torch.zeros(0, dtype=torch.float64)
    count = 0
    for at in range(0, max(len(mine), 1), VALIDATION_BATCH):
        ids = mine[at : at + VALIDATION_BATCH]
        found = job.task.metrics(model, job.batch(samples, ids if len(ids) else np.arange(1)))
        names = sorted(found)
        values = torch.tensor([found[name] for name in names], dtype=torch.float64) * len(ids)
        sums = values if not len(sums) else sums + values
        count += len(ids)
    model.train()
    total = torch.cat([sums, torch.tensor([count], dtype=torch.float64)])
    if len(ranks) > 1:
        dist.all_reduce(total, group=job.metrics_group())
    return {name: float(value / total[-1]) for name, value in zip(names, total[:-1], strict=True)}
