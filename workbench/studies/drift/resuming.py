"""Known bugs of resuming: one process that goes on from a checkpoint without some of its state.

A training that is right until an iteration, and from then on equals one of these to the last bits,
has that bug. ``train`` is the strategy; judge.py says so.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from workbench.experiment.optimizers import states
from workbench.experiment.spec import Experiment
from workbench.rank.job import Job

Lost = Literal["optimizer", "sampler", "generators"]
WORDS: dict[Lost, str] = {
    "optimizer": "the optimizer's state is not restored on resuming",
    "sampler": "the sampler's position is not restored on resuming",
    "generators": "the random generators are not restored on resuming",
}


class Resumed(NamedTuple):
    """The state that a training lost, and the iteration at which it resumed."""

    lost: Lost
    at: int


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of a run that resumes: where, and without what."""

    at: int  # iteration, from 1 on
    lost: Lost


def train(job: Job, config: Config) -> None:
    model = job.model()
    optimizer = job.optimizer(model)
    beginning = generators()
    for minibatch in job.iterations():
        ids = minibatch.ids
        if config.lost == "sampler" and minibatch.iteration >= config.at:
            ids = job.minibatches.ids(minibatch.iteration - config.at)
        if config.lost == "optimizer" and minibatch.iteration == config.at:
            optimizer = job.optimizer(model, keep=False)
        if config.lost == "generators" and minibatch.iteration == config.at:
            set_generators(beginning)
        optimizer.zero_grad()
        loss = job.forward(model, job.load(ids))
        job.backward(loss)
        job.update(optimizer)
        job.report(loss, len(ids))
    job.finish(model)


def generators() -> tuple[Any, ...]:
    """Return the states of the generators of torch, numpy and Python."""
    return torch.get_rng_state(), np.random.get_state(), random.getstate()


def same_generators(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Return whether these states are equal: nothing was drawn in between."""
    return (
        torch.equal(one[0], other[0])
        and all(np.array_equal(a, b) for a, b in zip(one[1], other[1], strict=True))
        and one[2] == other[2]
    )


def set_generators(states: tuple[Any, ...]) -> None:
    """Set the generators of torch, numpy and Python to these states."""
    torch.set_rng_state(states[0])
    np.random.set_state(states[1])
    random.setstate(states[2])


def may_lose(exp: Experiment, draws: bool = True) -> list[Lost]:
    """Return the state that matters to an experiment. ``draws``: its task draws random numbers."""
    matters: dict[Lost, bool] = {
        "optimizer": states(exp.optimizer, exp.momentum) > 0 or bool(exp.warmup),
        "sampler": True,
        "generators": draws,
    }
    return [lost for lost in WORDS if matters[lost]]


def moments(since: int | None, last: int) -> Iterable[int]:
    """Return the iterations at which a training of ``last`` ones may have resumed.

    ``since``: that of its first wrong update, as far as losses show it; None: they do not, as only
    the last update is wrong. A loss that is wrong itself, of another minibatch, shows a resumption
    one iteration early.
    """
    first = last - 1 if since is None else since
    return [at for at in (first, first + 1) if 1 <= at < last]
