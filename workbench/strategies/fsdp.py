"""Fully sharded data parallel: every rank keeps a part of every layer, and gathers a layer whole
only while it computes with it.

    forward    gather 0 · compute · free | gather 1 · compute · free | ...
    backward   ... | gather 1 · compute · free · reduce-scatter its gradient | gather 0 · ...

Parameters, gradients and the optimiser's state lie on a rank as 1/p of each layer; a layer costs an
all-gather in forward, one more in backward, and a reduce-scatter: 3(p-1)/p of its bytes sent by a
rank, 3/2 of what a ring all-reduce sends.

Papers  Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
        SC 2020 (stage 3); Zhao et al., "PyTorch FSDP", VLDB 2023. This is torch's fully_shard.
Law     equal to sequential training within rounding; the parts of the ranks are the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.errors import SpecError

if TYPE_CHECKING:
    from workbench.job import Job
    from workbench.spec import Experiment

UNITS = ("layers", "whole")


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of ``strategy="fsdp"``."""

    units: str = "layers"  # what is gathered at once: a layer, or the "whole" model
    reshard_after_forward: bool = True  # free layers after forward; kept: less sent, more held
    prefetch: int = 0  # layers gathered ahead of need, while others compute; each is held meanwhile

    def __post_init__(self) -> None:
        if self.units not in UNITS:
            raise ValueError(f"units = {self.units!r}: it is {' or '.join(map(repr, UNITS))}")
        if self.prefetch < 0:
            raise ValueError(f"prefetch = {self.prefetch}: it is 0 or more layers")


def check(exp: Experiment, config: Config) -> None:
    if exp.backend == "nccl":
        raise SpecError(
            f"Experiment.backend = {exp.backend!r}: strategy 'fsdp' runs over backend='workbench' "
            "or 'gloo'"
        )


def train(job: Job, config: Config) -> None:
    from workbench.batches import partition
    from workbench.shards.sharded import Sharded

    sharded = Sharded(
        job, units=config.units, free=config.reshard_after_forward, ahead=config.prefetch
    )
    model = sharded.model
    optimizer = job.optimizer(model)
    for step in job.steps():
        mine = partition(step.ids, job.rank, job.ranks)
        optimizer.zero_grad()
        # A worker without a sample takes part with one that counts nothing.
        loss = job.forward(model, job.load(mine if len(mine) else step.ids[:1]))
        # Reduce-scatter adds up: with these weights the mean over the minibatch's samples.
        job.backward(loss, weight=len(mine) / len(step.ids))
        job.update(optimizer)
        job.report(loss, len(mine))
        sharded.note()
    # All take part in each gather, so all validate with all samples.
    job.finish(model, alone=True, parameters=sharded.whole())
