"""No rank averages: each trains for itself."""

from __future__ import annotations

from typing import Any

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
        job.update(optimizer)  # right: after the gradients were averaged over all ranks
        job.report(loss, len(mine))
    job.finish(model)
