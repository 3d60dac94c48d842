"""ZeRO 1 and 2: every rank has all parameters, and a part of the optimizer's state updates them.

    backward   reduce-scatter the gradients: each rank receives the sum for its part
    update     of its part
    after      all-gather the parameters

As a ring all-reduce is a reduce-scatter and an all-gather, level 1 sends what DDP sends,
2(p-1)/p of the parameters' bytes. The levels differ in how long a rank keeps its whole gradient:
at level 1 until all microbatches are done, at level 2 until its layer has been reduced, which
with m microbatches makes m reduce-scatters: (m+1)(p-1)/p. Level 3 is ``strategy="fsdp"``, level 0
is DDP.

Paper   Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
        SC 2020, sections 5 and 7.
Law     equal to sequential training within rounding; replicas bit-identical.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.common.errors import SpecError
from workbench.experiment.option_ranges import check_buddies, check_counts
from workbench.experiment.traits import Traits
from workbench.formulas.memory import Rule

if TYPE_CHECKING:
    from workbench.experiment.spec import Experiment
    from workbench.rank.job import Job

TRAITS = Traits(
    title="ZeRO",
    replicas="divided",
    update="whole",
    recovers="replaced",
    skips="together",
    messages="collectives",
    scene="timeline",
    together="Each takes {share} of every batch and updates {share} of the parameters, which it "
    "then sends to the others.",
    idle=(("buddy_every", "recovery", ("abort", "restart")),),
)

LEVELS, UNITS = (1, 2), ("layers", "whole")


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of ``strategy="zero"``."""

    zero: int = 1  # what is divided: 1, the optimizer's state; 2, that and the gradients
    units: str = "layers"  # what is reduced at once: a layer, or the "whole" model
    accumulate: int = 1  # backward passes per update, a part of the samples each
    buddy_every: int = 1  # iterations between copies on the next rank, for recovery="replace"

    def __post_init__(self) -> None:
        if self.zero not in LEVELS:
            raise SpecError.at(
                "zero",
                "must be 1 or 2. Level 3, which divides the parameters too, is strategy='fsdp', "
                "and level 0 is strategy='ddp'",
                self.zero,
                allowed=LEVELS,
            )
        if self.units not in UNITS:
            why = f"must be {' or '.join(map(repr, UNITS))}"
            raise SpecError.at("units", why, self.units, allowed=UNITS)
        check_counts(self, "accumulate")
        check_buddies(self.buddy_every)


def check(exp: Experiment, config: Config) -> None:
    if exp.backend == "nccl":
        raise SpecError.at(
            "backend", "strategy 'zero' runs over backend='workbench' or 'gloo'", exp.backend
        )


def check_survivors(config: Config, same_ranks: bool) -> None:
    """Accept any option: a lost rank's part comes from the next rank's copy."""


def holds(config: Config) -> Rule:
    """Return what is divided, and into which units."""
    return Rule(level=config.zero, units=config.units, accumulate=config.accumulate)


def train(job: Job, config: Config) -> None:
    from workbench.rank.batches import partition
    from workbench.rank.shared_passes import SharedPass
    from workbench.training.buddies.copies import Buddies
    from workbench.training.zero.units import Zero, by_layer

    model = job.model(keep=False)
    zero = Zero(job, config.zero, model, by_layer(model, config.units))
    job.keep("model", zero.parts, "divided")
    optimizer = job.optimizer(zero.slices.values(), scope="divided")
    buddies, shared = Buddies(job, config.buddy_every), SharedPass(job, zero.model)
    for minibatch in job.iterations():
        buddies.begin(minibatch.iteration)
        mine = partition(minibatch.ids, job.rank, job.ranks)
        parts = [partition(mine, k, config.accumulate) for k in range(config.accumulate)]
        zero.begin()
        total: Any = 0.0
        # A worker without a sample takes part with one that counts nothing.
        batches = shared.load(minibatch, [one if len(one) else minibatch.ids[:1] for one in parts])
        for number, (batch, part) in enumerate(zip(batches or (), parts, strict=False)):
            zero.expect(last=number == config.accumulate - 1)
            loss = job.forward(zero.model, batch)
            if not shared.accepts(loss):
                break
            total += loss.detach() * len(part)
            # Reduce-scatter adds up: with these weights the mean over the minibatch's samples.
            job.backward(loss, weight=len(part) / len(minibatch.ids))
            zero.reduce()
        else:
            if batches:
                job.update(optimizer)
                zero.gather()
                job.report(total / max(1, len(mine)), len(mine))
        buddies.end(minibatch.iteration)
    job.finish(zero.model)
    buddies.meet()
