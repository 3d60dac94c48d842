"""Branches of a model's graph on two ranks at the same time.

A pipeline has stages that follow each other. Where a graph forks, its branches need not: rank 1
computes one of them while rank 0 computes the other. What enters the branch is sent to rank 1, what
leaves it is sent back, and so are the gradients. Which branch is chosen by measured time, or by
hand. Each rank holds its own layers while it trains.

Source  a graph of operations that is partitioned so that each node goes to a device: Mirhoseini et
        al., "Device Placement Optimization with Reinforcement Learning", ICML 2017.
Cost    a message each for what enters, what leaves, and their gradients; an iteration takes
        stem + max(own branch, side branch + its messages) + head.
Law     equal to sequential training within rounding. Layers that draw random numbers draw them on
        their own rank.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.common.errors import SpecError
from workbench.experiment.traits import Traits

if TYPE_CHECKING:
    from workbench.experiment.spec import Experiment
    from workbench.rank.job import Job

TRAITS = Traits(
    replicas="divided",
    update="whole",
    whole_minibatch=True,
    messages="neighbors",
    scene="timeline",
    together="One has the stem and a branch of the graph; the other one has the branch beside it.",
)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of ``strategy="branches"``."""

    branch: str | tuple[str, ...] = ""  # layers, or modules, for rank 1; left out: by their time


def check(exp: Experiment, config: Config) -> None:
    """Raise SpecError for what two branches cannot do."""
    if exp.ranks != 2:
        raise SpecError.at("ranks", "strategy 'branches' has two branches: ranks=2", exp.ranks)
    if exp.pads_ns is not None:
        raise SpecError.at(
            "pad_compute", "pads whole passes, not branches: pad layers of the model", exp.pads_ns
        )


def train(job: Job, config: Config) -> None:
    from workbench.training.branches.choosing import agree
    from workbench.training.branches.rank import Branches

    branches = Branches(
        job, agree(job, (config.branch,) if isinstance(config.branch, str) else config.branch)
    )
    gc.collect()  # a traced model is part of a cycle: the other rank's layers are freed now
    for module in branches.module:
        job.keep("model", module, "divided")
    optimizer = job.optimizer(branches.module, scope="divided")
    for minibatch in job.iterations():
        optimizer.zero_grad()
        loss = branches.step(minibatch.ids)
        if loss is not None:
            job.report(loss, len(minibatch.ids))
        job.update(optimizer)
    job.finish(branches.assemble())
