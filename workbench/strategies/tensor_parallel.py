"""Tensor parallelism: the weights of layers are split over the ranks, which all take the whole
minibatch.

A rank computes some of a layer's outputs, or a summand of them; collectives within forward and
backward put these together. workbench/sharding.py says which layers are split and how. All that
lies between, and the loss, every rank computes alike. ``pad_compute`` pads a forward and a backward
with their collectives.

Paper  Shoeybi et al., "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model
       Parallelism", arXiv 1909.08053, 2019.
Law    equal to sequential training within rounding; what is whole on every rank stays the same
       bits.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench import source

if TYPE_CHECKING:
    from workbench.job import Job
    from workbench.sharding.model import Sharded
    from workbench.spec import Experiment

WHOLE_MINIBATCH = True  # every rank takes all of it: there is nothing to share out


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of ``strategy="tensor_parallel"``."""

    # Between split layers each rank takes its part of the sequence, not all of it as the others do.
    sequence_parallel: bool = False


def prepare(exp: Experiment, config: Config) -> dict[str, str]:
    """Raises SpecError where no layer can be split over so many ranks. A user's own task is not
    run in here: its ranks say so before they train.
    """
    if isinstance(exp.task, str) and not source.split_path(exp.task):
        import torch
        from torch.utils.data import default_collate

        from workbench.sharding import planning as sharding
        from workbench.sharding.tokens import by_tokens

        with torch.random.fork_rng(devices=[]):
            task = source.load("tasks", exp.task, "Task")(**exp.task_options)
            data = task.dataset("train")
            batch = default_collate([data[i] for i in range(min(2, exp.batch_size, len(data)))])
            model = task.model()
            plan = sharding.plan(model, sharding.arguments(task, model, batch), exp.ranks)
            if config.sequence_parallel:
                by_tokens(plan)
    return {}


def train(job: Job, config: Config) -> None:
    import torch.distributed as dist

    from workbench.result import digest
    from workbench.sharding.model import assemble

    own = split(job, config)
    model = job.padded(own.model.to(job.device))
    optimizer = job.optimizer(model)
    for step in job.steps():
        optimizer.zero_grad()
        loss = job.forward(model, job.load(step.ids))
        job.backward(loss)
        for name in own.partial:
            with job.label(name):
                dist.all_reduce(model.get_parameter(name).grad)
        job.update(optimizer)
        # The ranks' losses are one and the same: it is counted once.
        job.report(loss, len(step.ids) if job.rank == 0 else 0)
    job.finish(model, alone=True)
    job.parameters = assemble(own)
    job.digest = digest(job.parameters)


def split(job: Job, config: Config) -> Sharded:
    """This rank's part of the model; rank 0 tells how it is split."""
    import torch
    from torch import fx

    from workbench.sharding import model as sharded_model
    from workbench.sharding import planning as sharding
    from workbench.sharding.layers import Ranks
    from workbench.sharding.tokens import by_tokens
    from workbench.splitting.measuring import measure

    model = job.build()
    with torch.random.fork_rng(devices=[]):  # as if it had not been tried out
        batch = job.batch(job.train, job.minibatches.ids(0))
        called = sharding.arguments(job.task, model, batch)
        args = fx.node.map_aggregate(
            called, lambda one: one.cpu() if isinstance(one, torch.Tensor) else one
        )
        plan, tokens = sharding.plan(model, args, job.ranks), None
        if config.sequence_parallel:
            plan, tokens = by_tokens(plan)
        if job.rank == 0 and job.recorder.active:
            costs = measure(plan.traced, args, budget_s=0.1)
            job.tell({"model": json.dumps(sharded_model.described(plan, costs, tokens))})
    ranks = Ranks(job.rank, job.ranks, job.metrics_group(), job.label)
    return sharded_model.shard(plan, ranks, tokens)
