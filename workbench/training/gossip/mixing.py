"""A round of mixing: ranks send their parameters to neighbors and take a weighted mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from workbench.recording.events import OPTIMIZER

if TYPE_CHECKING:
    from workbench.rank.job import Job
    from workbench.training.gossip.graphs import Graph


class Mixing:
    """Mixes this rank's parameters ``x_N`` over ``graph``.

    They must not change between ``start`` and ``finish``, while they are being sent.
    """

    def __init__(self, job: Job, graph: Graph, x_N: torch.Tensor) -> None:
        self.job, self.x_N = job, x_N
        self.receivers = graph.out_of(job.rank)
        self.theirs = {rank: torch.empty_like(x_N) for rank in graph.into(job.rank)}
        self.weights = graph.weights[job.rank]
        self.works: list[dist.Work | None] = []

    def start(self) -> None:
        """Post the messages; they travel while this rank computes."""
        with self.job.label("parameters"):
            self.works = [dist.irecv(x_N, rank) for rank, x_N in self.theirs.items()]
            self.works += [dist.isend(self.x_N, rank) for rank in self.receivers]

    def finish(self) -> None:
        """Wait for the messages, then mix."""
        for work in self.works:
            assert work is not None
            work.wait()
        with self.job.computing(OPTIMIZER, "mix"):
            mixed_N = torch.zeros_like(self.x_N)
            # In the order of ranks, so that ranks with the same neighbors get the same bits.
            for rank in sorted((*self.theirs, self.job.rank)):
                mixed_N.add_(self.theirs.get(rank, self.x_N), alpha=float(self.weights[rank]))
            self.x_N.copy_(mixed_N)
