"""Synchronous data parallel training by hand: all-reduce each gradient, then everybody updates
alike.

Source  Listing 13.2.1's four lines, with one change: a worker's gradient counts by its number of
samples,
        since dividing the sum by p is wrong as soon as a minibatch does not divide evenly.
Law     equal to sequential training within rounding; replicas bit-identical.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch.distributed as dist
from torch import nn

from workbench.batches import held, partition
from workbench.job import Job


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of ``strategy="data_parallel"``."""

    examples: Literal["shared", "partitioned"] = "shared"  # partitioned: a rank has every p-th only


def train(job: Job, config: Config) -> None:
    parts = held if config.examples == "partitioned" else partition
    model = job.model()
    optimizer = job.optimizer(model)
    for step in job.steps():
        mine = parts(step.ids, job.rank, job.ranks)
        optimizer.zero_grad()
        # A worker without a sample takes part with one that counts nothing.
        loss = job.forward(model, job.load(mine if len(mine) else step.ids[:1]))
        job.backward(loss)
        average_gradients(job, model, share=len(mine) / len(step.ids))
        job.update(optimizer)
        job.report(loss, len(mine))
    job.finish(model)


def average_gradients(
    job: Job, model: nn.Module, share: float, group: dist.ProcessGroup | None = None
) -> None:
    """Every gradient becomes the sum over ranks of ``share`` times it: the whole minibatch's mean
    gradient. ``group``: of whom, if not of all.
    """
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        parameter.grad.mul_(share)
        with job.label(name):
            dist.all_reduce(parameter.grad, group=group)
