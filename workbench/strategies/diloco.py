"""DiLoCo: workers train for themselves for H iterations; what they moved is averaged and taken as a
gradient by an outer optimizer.

Outer gradient  Δ = θ_old - mean over workers of θ_i, the way back to where the round began.
Outer update    θ_old ← θ_old - outer_lr · Nesterov(Δ); every worker goes on from there. The inner
                optimizer, the experiment's, keeps what it has gathered (momentum, averages).

Paper  Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models",
       arXiv 2311.08105, 2023: H = 500, outer_lr = 0.7, momentum 0.9, inner AdamW.
Cost   as local SGD: 2(p-1)/p·L bytes a rank in H iterations (ring); two more copies of the model.
Law    outer_lr = 1 without momentum is local SGD: θ_old - Δ is the mean of the parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.common.errors import SpecError
from workbench.experiment.option_ranges import check_counts
from workbench.experiment.traits import Traits

if TYPE_CHECKING:
    from workbench.experiment.spec import Experiment
    from workbench.rank.job import Job

TRAITS = Traits(
    title="DiLoCo",
    replicas="rounds",
    update="rounds",
    recovers="any",
    skips="together",
    scene="peers",
)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of ``strategy="diloco"``."""

    every: int = 8  # iterations of a round (H): larger sends less and drifts further
    outer_lr: float = 0.7  # share of the mean move that is made; 1 without momentum: local SGD
    outer_momentum: float = 0.9  # Nesterov's, over rounds: 0 is none, larger remembers longer

    def __post_init__(self) -> None:
        check_counts(self, "every")
        if self.outer_lr <= 0:
            raise SpecError.at("outer_lr", "must be more than 0", self.outer_lr)
        if not 0 <= self.outer_momentum < 1:
            why = "must be 0 or more, and below 1"
            raise SpecError.at("outer_momentum", why, self.outer_momentum)


def check_survivors(config: Config, same_ranks: bool) -> None:
    """Refuse nothing: at the end of a round every rank has all, and from there all go on."""


def prepare(exp: Experiment, config: Config) -> dict[str, str]:
    from workbench.rank.averaging import all_peers

    often = "every iteration" if config.every == 1 else f"every {config.every} iterations"
    words = f"All take one outer step {often}, along the mean of their moves."
    return all_peers(exp.ranks, config.every, words, first=config.every - 1)


def train(job: Job, config: Config) -> None:
    import torch

    from workbench.rank.attempts import Attempt
    from workbench.rank.averaging import average_
    from workbench.rank.batches import partition
    from workbench.recording.events import OPTIMIZER

    job.lead = config.every - 1  # iterations that others may be ahead, until all meet
    model = job.model()
    optimizer = job.optimizer(model)
    old = [parameter.detach().clone() for parameter in model.parameters()]  # of the round's start
    outer = torch.optim.SGD(
        old, lr=config.outer_lr, momentum=config.outer_momentum, nesterov=config.outer_momentum > 0
    )
    for number, start in enumerate(old):
        job.keep(f"round's start/{number}", start)
    job.keep("outer optimizer", outer)
    for minibatch in job.iterations():
        mine = partition(minibatch.ids, job.rank, job.ranks)
        optimizer.zero_grad()
        with Attempt(job, minibatch, model, mine) as attempt:
            loss = job.forward(model, job.load(mine if len(mine) else minibatch.ids[:1]))
            # A worker's gradient counts by its samples, or uneven minibatches have a wrong mean.
            job.backward(loss, weight=len(mine) * job.ranks / len(minibatch.ids))
        if not attempt.skipped:
            job.report(loss, len(mine))  # before others learn of the gradient: see take_over
            job.update(optimizer)
        if (minibatch.iteration + 1) % config.every == 0:
            for start, parameter in zip(old, model.parameters(), strict=True):
                start.grad = start - parameter.detach()
            with job.label(f"average {(minibatch.iteration + 1) // config.every}"):
                average_(start.grad for start in old if start.grad is not None)
            with job.computing(OPTIMIZER, "mix"), torch.no_grad():
                outer.step()
                for start, parameter in zip(old, model.parameters(), strict=True):
                    parameter.copy_(start)
        job.sketch(model)
        if (minibatch.iteration + 1) % config.every == 0:
            job.end_round(minibatch.iteration)
    job.finish(model, average=True)
