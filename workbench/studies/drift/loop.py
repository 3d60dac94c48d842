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

from workbench.rank.job import Job
from workbench.studies.drift.probe import Probe
from workbench.user_code.source import Source


@dataclass(frozen=True, kw_only=True)
class Config:
    """The configuration of the loop."""

    loop: Source  # its text
    probe: bool = False  # hand in the gradients of the first update instead of the parameters


def train(job: Job, config: Config) -> None:
    loop = config.loop.load()
    model = job.model()
    values: dict[str, Any] = {
        "rank": job.rank,
        "size": job.ranks,
        "model": model,
        "minibatches": minibatches(job, model),
        "loss": partial(job.task.loss, model),
    }
    names = inspect.signature(loop).parameters
    if "optimizer" in names:
        values["optimizer"] = job.optimizer(model)
    arguments = {name: values[name] for name in names}
    if not config.probe:
        loop(**arguments)
        job.finish(model)
        return
    with Probe(model) as probe:
        loop(**arguments)
    job.finish(model, parameters=probe.gathered(job.metrics_group()))


def minibatches(job: Job, model: torch.nn.Module) -> Iterator[Any]:
    """Yield the whole minibatch of each iteration, and report its loss before it is handed out."""
    for minibatch in job.iterations():
        batch = job.load(minibatch.ids)
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            loss = job.task.loss(model, batch)
        job.report(loss, len(minibatch.ids))
        yield batch
