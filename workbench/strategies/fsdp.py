"""Fully sharded data parallel: every rank keeps a part of every layer, and gathers a layer whole
only while it computes with it.

    forward    gather 0 · compute · free | gather 1 · compute · free | ...
    backward   ... | gather 1 · compute · free · reduce-scatter its gradient | gather 0 · ...

Parameters, gradients and the optimizer's state lie on a rank as 1/p of each layer; a layer costs an
all-gather in forward, one more in backward, and a reduce-scatter: 3(p-1)/p of its bytes sent by a
rank, 3/2 of what a ring all-reduce sends.

Papers  Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
        SC 2020 (stage 3); Zhao et al., "PyTorch FSDP", VLDB 2023. This is torch's fully_shard.
Law     equal to sequential training within rounding; the parts of the ranks are the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.common.errors import SpecError
from workbench.experiment.option_ranges import check_buddies
from workbench.experiment.traits import Traits
from workbench.formulas.memory import Rule

if TYPE_CHECKING:
    from workbench.experiment.spec import Experiment
    from workbench.rank.job import Job

TRAITS = Traits(
    title="FSDP",
    replicas="divided",
    update="whole",
    recovers="replaced",
    skips="together",
    messages="collectives",
    scene="shards",
    together="Each keeps {share} of every layer, and gathers the rest of a layer when it computes "
    "with it.",
    idle=(
        ("prefetch", "units", ("whole",)),
        ("buddy_every", "recovery", ("abort", "restart")),
    ),
)

UNITS = ("layers", "whole")


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of ``strategy="fsdp"``."""

    units: str = "layers"  # what is gathered at once: a layer, or the "whole" model
    reshard_after_forward: bool = True  # free layers after forward; kept: less sent, more held
    prefetch: int = 0  # layers gathered ahead of need, while others compute; each is held meanwhile
    buddy_every: int = 1  # iterations between copies on the next rank, for recovery="replace"

    def __post_init__(self) -> None:
        if self.units not in UNITS:
            why = f"must be {' or '.join(map(repr, UNITS))}"
            raise SpecError.at("units", why, self.units, allowed=UNITS)
        if self.prefetch < 0:
            raise SpecError.at("prefetch", "must be 0 or more layers", self.prefetch)
        check_buddies(self.buddy_every)


def check(exp: Experiment, config: Config) -> None:
    if exp.backend == "nccl":
        raise SpecError.at(
            "backend", "strategy 'fsdp' runs over backend='workbench' or 'gloo'", exp.backend
        )


def check_survivors(config: Config, same_ranks: bool) -> None:
    """Accept any option: a lost rank's part comes from the next rank's copy."""


def holds(config: Config) -> Rule:
    """Return that all is divided, and whether layers are freed after forward. Raises SpecError for
    layers that are gathered ahead, as the buffers of such gathers last as long as they happen to.
    """
    if config.prefetch:
        why = "wb.fits has no formula for layers that are gathered ahead"
        raise SpecError.at("options.prefetch", why, config.prefetch)
    return Rule(level=3, units=config.units, free=config.reshard_after_forward)


def train(job: Job, config: Config) -> None:
    from workbench.rank.batches import partition
    from workbench.rank.shared_passes import SharedPass
    from workbench.training.buddies.copies import Buddies
    from workbench.training.fsdp.sharded import Sharded

    sharded = Sharded.of_task(
        job, by=config.units, free=config.reshard_after_forward, ahead=config.prefetch
    )
    model = sharded.model
    job.keep("model", model, "divided")
    optimizer = job.optimizer(model, scope="divided")
    buddies, shared = Buddies(job, config.buddy_every), SharedPass(job, model)
    for minibatch in job.iterations():
        buddies.begin(minibatch.iteration)
        mine = partition(minibatch.ids, job.rank, job.ranks)
        optimizer.zero_grad()
        # A worker without a sample takes part with one that counts nothing.
        batches = shared.load(minibatch, [mine if len(mine) else minibatch.ids[:1]])
        loss = job.forward(model, batches[0]) if batches else None
        if loss is not None and shared.accepts(loss):
            # Reduce-scatter adds up: with these weights the mean over the minibatch's samples.
            job.backward(loss, weight=len(mine) / len(minibatch.ids))
            job.update(optimizer)
            job.report(loss, len(mine))
        else:
            sharded.free()  # what backward would have freed
        sharded.note()
        buddies.end(minibatch.iteration)
    # All take part in each gather, so all validate with all samples.
    job.finish(model, alone=True, parameters=sharded.whole())
    buddies.meet()
