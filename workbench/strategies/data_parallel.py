"""Synchronous data parallel training by hand: all-reduce each gradient, then equal updates.

Source  Listing 13.2.1's four lines, with one change: a rank's gradient counts by its number of
        samples, since dividing the sum by p is wrong if a minibatch does not divide evenly.
Law     equal to sequential training within rounding; replicas bit-identical.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch.distributed as dist
from torch import nn

from workbench.common.errors import SpecError
from workbench.experiment.traits import Traits
from workbench.formulas.memory import Rule
from workbench.rank.attempts import Attempt
from workbench.rank.batches import held, partition
from workbench.rank.job import Job

TRAITS = Traits(
    replicas="equal",
    update="whole",
    recovers="any",
    skips="together",
    together="Each takes {share} of every batch; {averages} their gradients, so {all} stay "
    "identical.",
)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of ``strategy="data_parallel"``."""

    examples: Literal["shared", "partitioned"] = "shared"  # partitioned: a rank has every p-th only


def check_survivors(config: Config, same_ranks: bool) -> None:
    """Raise SpecError where a lost rank takes along what the others lack: its examples."""
    if config.examples == "partitioned" and not same_ranks:
        raise SpecError.at(
            "examples",
            "are lost with the rank that has them: take examples='shared', or recovery='replace'",
            config.examples,
        )


def holds(config: Config) -> Rule:
    """Return that every rank holds all."""
    return Rule()


def train(job: Job, config: Config) -> None:
    parts = held if config.examples == "partitioned" else partition
    model = job.model()
    optimizer = job.optimizer(model)
    for minibatch in job.iterations():
        mine = parts(minibatch.ids, job.rank, job.ranks)
        optimizer.zero_grad()
        with Attempt(job, minibatch, model, mine) as attempt:
            # A worker without a sample takes part with one that counts nothing.
            loss = job.forward(model, job.load(mine if len(mine) else minibatch.ids[:1]))
            job.backward(loss)
        if attempt.skipped:
            continue
        job.report(loss, len(mine))  # before others learn of the gradient: see check_survivors
        average_gradients(job, model, share=len(mine) / len(minibatch.ids))
        job.update(optimizer)
    job.finish(model)


def average_gradients(
    job: Job, model: nn.Module, share: float, group: dist.ProcessGroup | None = None
) -> None:
    """Replace every gradient by the sum over ranks of ``share`` times it: the minibatch's mean
    gradient.

    ``group``: the ranks to sum over, if not all.
    """
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        parameter.grad.mul_(share)
        with job.label(name):
            dist.all_reduce(parameter.grad, group=group)
