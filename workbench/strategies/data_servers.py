"""Servers of training data: the first ranks read examples and send them, the others train.

A worker asks for its part of minibatches ahead of time, so that they travel while it computes; the
workers average their gradients by all-reduce, as in data_parallel. What servers send counts as
bytes of training (result.bytes_sent), beside the gradients of the workers.

Law    equal to sequential training within rounding; replicas bit-identical. A worker whose requests
       run ahead of its training by more than the way of an answer does not wait for examples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.errors import SpecError

if TYPE_CHECKING:
    from workbench.job import Job
    from workbench.spec import Experiment


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of ``strategy="data_servers"``."""

    servers: int = 1  # ranks 0 to servers - 1 serve, the others work
    ahead: int = 2  # minibatches that a worker asks for before it needs them: its prefetch; 0: none

    def __post_init__(self) -> None:
        for name, least in (("servers", 1), ("ahead", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} = {getattr(self, name)}: it is {least} or more")


def check(exp: Experiment, config: Config) -> None:
    """Raises SpecError for what cannot be with so many ranks."""
    workers = exp.ranks - config.servers
    if workers < config.servers:
        raise SpecError(
            f"Experiment.ranks = {exp.ranks} with options.servers = {config.servers} leaves "
            f"{max(workers, 0)} workers, and each asks one server: there must be as many workers "
            "as servers, or more"
        )
    if exp.backend != "workbench":
        raise SpecError(
            f"Experiment.backend = {exp.backend!r}: strategy 'data_servers' runs over "
            "backend='workbench'"
        )
    if exp.memory_limit is not None:
        raise SpecError(
            f"Experiment.memory_limit = {exp.memory_limit!r}: strategy 'data_servers' does not "
            "measure what its ranks hold; leave it out"
        )


def train(job: Job, config: Config) -> None:
    from workbench.inputs.asking import Examples
    from workbench.inputs.serving import Server
    from workbench.strategies.data_parallel import average_gradients

    workers = range(config.servers, job.ranks)
    for name in ("data", "workers", "metrics"):  # every rank makes them, in this order
        job.group(name, None if name == "data" else workers)
    if job.rank < config.servers:
        return Server(job, config.servers, config.ahead).run()
    examples = Examples(job, config.servers, config.ahead)
    model = job.model()
    optimizer = job.optimizer(model)
    for step in job.steps():
        batch, samples = examples.of(step)
        optimizer.zero_grad()
        job.backward(loss := job.forward(model, batch))
        average_gradients(job, model, samples / len(step.ids), group=job.group("workers"))
        job.update(optimizer)
        job.report(loss, samples)
    examples.close()
    job.finish(model, within=workers)
