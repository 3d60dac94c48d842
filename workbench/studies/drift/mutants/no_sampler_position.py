"""The sampler's position is not restored on resuming."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.rank.batches import partition
from workbench.rank.job import Job
from workbench.strategies.data_parallel import average_gradients


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of a run that resumes."""

    at: int  # iteration


def train(job: Job, config: Config) -> None:
    model = job.model()
    optimizer = job.optimizer(model)
    for minibatch in job.iterations():
        resumed = minibatch.iteration >= config.at
        ids = job.minibatches.ids(minibatch.iteration - config.at * resumed)  # right: - 0
        mine = partition(ids, job.rank, job.ranks)
        optimizer.zero_grad()
        loss = job.forward(model, job.load(mine if len(mine) else ids[:1]))
        job.backward(loss)
        average_gradients(job, model, share=len(mine) / len(ids))
        job.update(optimizer)
        job.report(loss, len(mine))
    job.finish(model)
