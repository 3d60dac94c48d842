"""All ranks take the same part of the minibatch."""

from __future__ import annotations

from typing import Any

from workbench.rank.batches import partition
from workbench.rank.job import Job
from workbench.strategies.data_parallel import average_gradients


def train(job: Job, config: Any) -> None:
    model = job.model()
    optimizer = job.optimizer(model)
    for minibatch in job.iterations():
        mine = partition(minibatch.ids, 0, job.ranks)  # right: of job.rank
        optimizer.zero_grad()
        loss = job.forward(model, job.load(mine))
        job.backward(loss)
        average_gradients(job, model, share=1 / job.ranks)
        job.update(optimizer)
        job.report(loss, len(mine))
    job.finish(model)
