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

from workbench.common.errors import SpecError
from workbench.experiment.traits import Traits

if TYPE_CHECKING:
    from workbench.experiment.spec import Experiment
    from workbench.rank.job import Job


TRAITS = Traits(
    replicas="served",
    update="whole",
    recovers="replaced",
    skips="together",
    messages="servers",
    serves="examples",
    scene="timeline",
)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of ``strategy="data_servers"``."""

    servers: int = 1  # ranks 0 to servers - 1 serve, the others work
    ahead: int = 2  # minibatches that a worker asks for before it needs them: its prefetch; 0: none

    def __post_init__(self) -> None:
        for name, least in (("servers", 1), ("ahead", 0)):
            if getattr(self, name) < least:
                raise SpecError.at(name, f"must be {least} or more", getattr(self, name))


def check(exp: Experiment, config: Config) -> None:
    """Raise SpecError for options that do not fit the number of ranks."""
    workers = exp.ranks - config.servers
    if workers < config.servers:
        raise SpecError.at(
            "ranks",
            f"options.servers = {config.servers} leaves {max(workers, 0)} workers, and each asks "
            "one server: there must be as many workers as servers, or more",
            exp.ranks,
        )
    if exp.backend != "workbench":
        raise SpecError.at(
            "backend", "strategy 'data_servers' runs over backend='workbench'", exp.backend
        )
    if exp.memory_limit is not None:
        raise SpecError.at(
            "memory_limit",
            "strategy 'data_servers' does not measure what its ranks hold; leave it out",
            exp.memory_limit,
        )


def check_survivors(config: Config, same_ranks: bool) -> None:
    """Refuse nothing: a server keeps nothing but data, and every worker has what is trained."""


def train(job: Job, config: Config) -> None:
    from workbench.rank.attempts import Attempt
    from workbench.strategies.data_parallel import average_gradients
    from workbench.training.data_servers.asking import Examples, meet
    from workbench.training.data_servers.serving import Server

    workers = range(config.servers, job.ranks)
    for name in ("data", "workers", "metrics"):  # every rank makes them, in this order
        job.group(name, None if name == "data" else workers)
    if job.rank < config.servers:
        return Server(job, config.servers, config.ahead).run()
    job.checkpoints.writers = workers
    job.parts.equal, job.parts.writes = True, job.rank == workers[0]
    examples = Examples(job, config.servers, config.ahead)
    model = job.model()
    optimizer = job.optimizer(model)
    for minibatch in job.iterations():
        optimizer.zero_grad()
        with Attempt(job, minibatch, model, examples.share(minibatch)) as attempt:
            batch, samples = examples.of(minibatch)
            job.backward(loss := job.forward(model, batch))
        if attempt.skipped:
            continue
        job.report(loss, samples)  # before others learn of the gradient: see take_over
        average_gradients(job, model, samples / len(minibatch.ids), group=job.group("workers"))
        job.update(optimizer)
    examples.close()
    job.finish(model, within=workers)
    meet(job)
