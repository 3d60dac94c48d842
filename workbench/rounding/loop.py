"""A training loop as one writes it in a script, run as a strategy.

    def mine(rank, size, model, minibatches):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for images, labels in minibatches:                 # whole minibatches, equal on every rank
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images[rank::size]), labels[rank::size])
            loss.backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= size
            optimizer.step()

It names what it wants of subjects.LOOP. The loss that is compared is the task's own, of the whole
minibatch with this rank's parameters, as the minibatch is given out: before the update that it
leads to.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from workbench.job import Job
from workbench.source import Source


@dataclass(frozen=True, kw_only=True)
class Config:
    """What the loop is."""

    loop: Source  # its text


def train(job: Job, config: Config) -> None:
    loop = config.loop.load()
    model = job.model()
    given: dict[str, Any] = {
        "rank": job.rank,
        "size": job.ranks,
        "model": model,
        "minibatches": minibatches(job, model),
        "loss": partial(job.task.loss, model),
    }
    wanted = inspect.signature(loop).parameters
    if "optimizer" in wanted:
        given["optimizer"] = job.optimizer(model)
    loop(**{name: given[name] for name in wanted})
    job.finish(model)


def minibatches(job: Job, model: torch.nn.Module) -> Iterator[Any]:
    """The whole minibatch of each iteration; its loss is reported as it is given out."""
    for step in job.steps():
        batch = job.load(step.ids)
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            loss = job.task.loss(model, batch)
        job.report(loss, len(step.ids))
        yield batch
