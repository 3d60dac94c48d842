"""One process, the whole minibatch: what every other strategy is compared with."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.job import Job

WHOLE_MINIBATCH = True  # every rank takes all of it: there is nothing to share out


@dataclass(frozen=True, kw_only=True)
class Config:
    """No options."""


def train(job: Job, config: Config) -> None:
    model = job.model()
    optimizer = job.optimizer(model)
    for step in job.steps():
        optimizer.zero_grad()
        loss = job.forward(model, job.load(step.ids))
        job.backward(loss)
        job.update(optimizer)
        job.report(loss, len(step.ids))
    job.finish(model)
