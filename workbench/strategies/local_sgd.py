"""Local SGD: every worker trains for itself, and every H iterations all take the mean of their
parameters.

One message in H instead of one an iteration; in between the replicas drift apart. With ``warmup``
the gradients are averaged at first, as in post-local SGD: far from a minimum drift costs most.

Papers  Stich, "Local SGD Converges Fast and Communicates Little", ICLR 2019;
        Lin, Stich, Patel & Jaggi, "Don't Use Large Mini-Batches, Use Local SGD", ICLR 2020.
Cost    a rank sends 2(p-1)/p·L bytes in H iterations (ring; L bytes of parameters).
Law     H=1 with SGD, with momentum too, is data parallel within rounding: the mean of steps is the
        step of the mean. With Adam it is not.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.common.errors import SpecError
from workbench.experiment.traits import Traits

if TYPE_CHECKING:
    from workbench.experiment.spec import Experiment
    from workbench.rank.job import Job

TRAITS = Traits(
    title="Local SGD",
    replicas="rounds",
    update="rounds",
    recovers="any",
    skips="together",
    scene="peers",
)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of ``strategy="local_sgd"``."""

    every: int = 8  # iterations between two averagings: larger sends less and drifts further
    warmup: int = 0  # iterations at first in which gradients are averaged instead

    def __post_init__(self) -> None:
        for name, least in (("every", 1), ("warmup", 0)):
            if getattr(self, name) < least:
                raise SpecError.at(name, f"must be {least} or more", getattr(self, name))


def check_survivors(config: Config, same_ranks: bool) -> None:
    """Refuse nothing: at the end of a round every rank has all, and from there all go on."""


def prepare(exp: Experiment, config: Config) -> dict[str, str]:
    from workbench.rank.averaging import all_peers

    often = "every iteration" if config.every == 1 else f"every {config.every} iterations"
    after = f", after {config.warmup} with averaged gradients" if config.warmup else ""
    words = f"All take the mean of their parameters {often}{after}."
    return all_peers(exp.ranks, config.every, words, first=config.warmup + config.every - 1)


def train(job: Job, config: Config) -> None:
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

    from workbench.rank.attempts import Attempt
    from workbench.rank.batches import partition
    from workbench.strategies.data_parallel import average_gradients

    job.lead = config.every - 1  # iterations that others may be ahead, until all meet
    model = job.model()
    optimizer = job.optimizer(model)
    with warnings.catch_warnings():  # of a period of 1, which is there to be compared
        warnings.simplefilter("ignore", UserWarning)
        first = config.warmup + config.every - 1  # the iteration after which all average first
        averager = PeriodicModelAverager(period=config.every, warmup_steps=first)
    for minibatch in job.iterations():
        mine = partition(minibatch.ids, job.rank, job.ranks)
        optimizer.zero_grad()
        with Attempt(job, minibatch, model, mine) as attempt:
            loss = job.forward(model, job.load(mine if len(mine) else minibatch.ids[:1]))
            # A worker's gradient counts by its samples, or uneven minibatches have a wrong mean.
            job.backward(loss, weight=len(mine) * job.ranks / len(minibatch.ids))
        if not attempt.skipped:  # before others learn of the gradient: see take_over
            job.report(loss, len(mine))
        if minibatch.iteration < config.warmup and not attempt.skipped:
            average_gradients(job, model, share=1 / job.ranks)
        if not attempt.skipped:
            job.update(optimizer)
        with job.label(f"average {1 + (minibatch.iteration - first) // config.every}"):
            averager.step = minibatch.iteration  # a run that is resumed begins later
            averager.average_parameters(model.parameters())
        job.sketch(model)
        since = minibatch.iteration - first
        if minibatch.iteration < config.warmup or (since >= 0 and since % config.every == 0):
            job.end_round(minibatch.iteration)
    job.finish(model, average=True)
