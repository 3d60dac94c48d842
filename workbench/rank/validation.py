"""A task's own metrics of a model, during training and at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from workbench.rank.batches import partition
from workbench.rank.data_source import Reads, patiently
from workbench.rank.placement import need_samples
from workbench.rank.warm_up import samples_of
from workbench.tasks._environments import evaluate, plays

VALIDATION_BATCH = 256


class Validated(Reads, Protocol):
    """The interface of a rank's job that validation needs."""

    task: Any
    rank: int
    seed: int

    def metrics_group(self) -> dist.ProcessGroup: ...


def unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    """Return the user's own model, without DDP around it."""
    if isinstance(model, DistributedDataParallel):
        inner: torch.nn.Module = model.module
        return inner
    return model


def aside(task: Any, model: torch.nn.Module, batch: Any) -> dict[str, float]:
    """Return the task's metrics of a batch, without a trace in the training."""
    model = unwrapped(model)
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            result: dict[str, float] = task.metrics(model, batch)
    finally:
        for module, training in modes:
            module.training = training
    return result


def _batch(job: Validated, samples: Any, ids: np.ndarray) -> Any:
    return patiently(job, lambda: job.batch(samples, ids))


@torch.no_grad()
def validate(job: Validated, model: torch.nn.Module, ranks: Sequence[int]) -> dict[str, float]:
    """Return means over the validation samples, each counted once however many ranks share them; of
    a task that plays, the mean return of some episodes.
    """
    if plays(job.task):
        return evaluate(job.task, model, job.seed)
    if not hasattr(job.task, "metrics"):
        if len(ranks) > 1 and job.goes_on_from_memory:  # until all have come, each may be needed
            dist.barrier(group=job.metrics_group())
        return {}
    model.eval()
    read = patiently(job, lambda: samples_of(job.task, "validation"))
    samples = need_samples(read, "validation", job.task)
    mine = partition(np.arange(len(samples)), ranks.index(job.rank), len(ranks))
    names: list[str] = []
    sums = torch.zeros(0, dtype=torch.float64)
    count = 0
    for at in range(0, max(len(mine), 1), VALIDATION_BATCH):
        ids = mine[at : at + VALIDATION_BATCH]
        result = job.task.metrics(model, _batch(job, samples, ids if len(ids) else np.arange(1)))
        names = sorted(result)
        values = torch.tensor([result[name] for name in names], dtype=torch.float64) * len(ids)
        sums = values if not len(sums) else sums + values
        count += len(ids)
    model.train()
    total = torch.cat([sums, torch.tensor([count], dtype=torch.float64)])
    if len(ranks) > 1:
        dist.all_reduce(total, group=job.metrics_group())
    return {name: float(value / total[-1]) for name, value in zip(names, total[:-1], strict=True)}
