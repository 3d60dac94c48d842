"""The choice of the branch that rank 1 computes: by hand, or measured by rank 0 and broadcast."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch.distributed as dist

from workbench.rank.data_source import reread
from workbench.training.branches.fork import Fork, find, fork_of
from workbench.training.pipelines.loss_stub import arguments
from workbench.training.splitting.measuring import measure
from workbench.training.splitting.traced import trace

if TYPE_CHECKING:
    from workbench.rank.job import Job

BUDGET_S = 0.2  # for measuring layers


def agree(job: Job, names: Sequence[str]) -> Fork:
    """Return the fork, equal on both ranks. ``names``: of layers, or of modules of them; one that
    is empty: by measured time.
    """
    model = job.build()
    batch = reread(job, lambda: job.batch(job.train, job.minibatches.ids(0)))
    args = arguments(job.task, model, batch)
    traced = trace(model, len(args))
    if any(names):
        fork = fork_of(traced, names)
    else:
        side: list[list[int]] = [[]]
        if job.rank == 0:
            costs = measure(traced, args, budget_s=BUDGET_S).layers
            side = [sorted(find(traced, [one.seconds for one in costs]).side)]
        dist.broadcast_object_list(side, 0, group=job.metrics_group())
        fork = Fork(traced, frozenset(side[0]))
    if job.rank == 0:
        job.tell({"branch": json.dumps([traced.names[one] for one in sorted(fork.side)])})
    return fork
