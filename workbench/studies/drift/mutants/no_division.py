"""Gradients are added, and not divided by the number of ranks."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from workbench.rank.batches import partition
from workbench.rank.job import Job


def train(job: Job, config: Any) -> None:
    model = job.model()
    optimizer = job.optimizer(model)
    for minibatch in job.iterations():
        mine = partition(minibatch.ids, job.rank, job.ranks)
        optimizer.zero_grad()
        loss = job.forward(model, job.load(mine if len(mine) else minibatch.ids[:1]))
        job.backward(loss, weight=float(len(mine) > 0))
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)  # right: of each share, or divided afterwards
        job.update(optimizer)
        job.report(loss, len(mine))
    job.finish(model)
