"""Every rank begins with parameters of its own."""

from __future__ import annotations

from typing import Any

import torch

from workbench.rank.batches import partition
from workbench.rank.job import Job
from workbench.strategies.data_parallel import average_gradients


def train(job: Job, config: Any) -> None:
    torch.manual_seed(job.seed + job.rank)  # right: the same seed, or rank 0's parameters for all
    model = job.padded(job.task.model().to(job.device, job.dtype))
    optimizer = job.optimizer(model)
    for minibatch in job.iterations():
        mine = partition(minibatch.ids, job.rank, job.ranks)
        optimizer.zero_grad()
        loss = job.forward(model, job.load(mine if len(mine) else minibatch.ids[:1]))
        job.backward(loss)
        average_gradients(job, model, share=len(mine) / len(minibatch.ids))
        job.update(optimizer)
        job.report(loss, len(mine))
    job.finish(model)
