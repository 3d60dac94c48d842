"""Tensor parallelism: the weights of layers are split over the ranks, which all take the whole
minibatch.

A rank computes some of a layer's outputs, or a summand of them; collectives within forward and
backward put these together. training/tensor_parallel/planning.py says which layers are split and
how. All that lies between, and the loss, every rank computes alike. ``pad_compute`` pads a forward
and a backward with their collectives.

Paper  Shoeybi et al., "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model
       Parallelism", arXiv 1909.08053, 2019.
Law    equal to sequential training within rounding; what is whole on every rank stays the same
       bits.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.experiment.option_ranges import check_buddies
from workbench.experiment.traits import Traits

if TYPE_CHECKING:
    from workbench.experiment.spec import Experiment
    from workbench.rank.job import Job
    from workbench.training.tensor_parallel.model import Sharded

TRAITS = Traits(
    replicas="divided",
    update="whole",
    recovers="replaced",
    whole_minibatch=True,
    skips="together",
    plans_tensors=True,
    idle=(("buddy_every", "recovery", ("abort", "restart")),),
)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of ``strategy="tensor_parallel"``."""

    # Between split layers each rank takes its part of the sequence, not all of it as the others do.
    sequence_parallel: bool = False
    buddy_every: int = 1  # iterations between copies on the next rank, for recovery="replace"

    def __post_init__(self) -> None:
        check_buddies(self.buddy_every)


def prepare(exp: Experiment, config: Config) -> dict[str, str]:
    """Raise SpecError if no layer can be split over this number of ranks.

    A user's own task does not run here: its ranks raise before they train.
    """
    from workbench.training.tensor_parallel.ahead import look_ahead

    look_ahead(exp, exp.ranks, by_tokens=config.sequence_parallel)
    return {}


def check_survivors(config: Config, same_ranks: bool) -> None:
    """Accept any option: a lost rank's part comes from the next rank's copy."""


def train(job: Job, config: Config) -> None:
    import torch.distributed as dist

    from workbench.rank.shared_passes import SharedPass
    from workbench.store.result import digest
    from workbench.training.buddies.copies import Buddies

    own = split(job, config)
    model = job.padded(own.model.to(job.device))
    job.keep("model", model)
    optimizer = job.optimizer(model)
    buddies, shared = Buddies(job, config.buddy_every), SharedPass(job, model)
    for minibatch in job.iterations():
        buddies.begin(minibatch.iteration)
        optimizer.zero_grad()
        batches = shared.load(minibatch, [minibatch.ids])
        loss = job.forward(model, batches[0]) if batches else None
        if loss is not None and shared.accepts(loss):
            job.backward(loss)
            for name in own.partial:
                with job.label(name):
                    dist.all_reduce(model.get_parameter(name).grad)
            job.update(optimizer)
            # The ranks' losses are one and the same: it is counted once.
            job.report(loss, len(minibatch.ids) if job.rank == 0 else 0)
        buddies.end(minibatch.iteration)
    job.finish(model, alone=True)
    whole = {name: value.detach().cpu() for name, value in own.rest.items()}
    job.parameters = whole | own.assembled(own.model.state_dict())
    job.digest = digest(job.parameters)
    buddies.meet()


def split(job: Job, config: Config) -> Sharded:
    """Return this rank's shard of the model; rank 0 publishes how it is split."""
    import torch
    from torch import fx

    from workbench.rank.data_source import reread
    from workbench.training.splitting.measuring import measure
    from workbench.training.tensor_parallel import model as sharded_model
    from workbench.training.tensor_parallel import planning as sharding
    from workbench.training.tensor_parallel.layers import Ranks
    from workbench.training.tensor_parallel.tokens import by_tokens

    model = job.build()
    with torch.random.fork_rng(devices=[]):  # as if it had not been tried out
        batch = reread(job, lambda: job.batch(job.train, job.minibatches.ids(0)))
        called = sharding.arguments(job.task, model, batch)
        args = fx.node.map_aggregate(
            called, lambda one: one.cpu() if isinstance(one, torch.Tensor) else one
        )
        plan, tokens = sharding.plan(model, args, job.ranks), None
        if config.sequence_parallel:
            plan, tokens = by_tokens(plan)
        if job.rank == 0 and job.recorder.active:
            costs = measure(plan.traced, args, budget_s=0.1)
            job.tell({"model": json.dumps(sharded_model.facts_of(plan, costs, tokens))})
    ranks = Ranks(job.rank, job.ranks, job.metrics_group(), job.label)
    return sharded_model.shard(plan, ranks, tokens)
