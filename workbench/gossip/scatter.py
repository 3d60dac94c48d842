"""MALT's scatter and gather: what a rank sends to its peers, and what it makes of what has come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from workbench.events import CODE, OPTIMIZER
from workbench.work import wait_any

if TYPE_CHECKING:
    from workbench.gossip.graphs import Graph
    from workbench.job import Job


class Scatter:
    """Of this rank's parameters ``x_N``: what they have changed by since the last average, or as a
    ``whole``.

    Without ``wait`` a peer to which the last message is still under way is left out, so that one
    who is slow to take them holds up nobody ("left out" rows).
    """

    def __init__(
        self, job: Job, graph: Graph, x_N: torch.Tensor, *, whole: bool, wait: bool
    ) -> None:
        self.job, self.x_N, self.wait = job, x_N, wait
        self.label = "parameters" if whole else "update"
        self.base_N = torch.zeros_like(x_N) if whole else x_N.clone()
        self.whole = whole
        self.sent_N = x_N
        self.sending: dict[int, dist.Work | None] = dict.fromkeys(graph.out_of(job.rank))
        self.theirs = {rank: torch.empty_like(x_N) for rank in graph.into(job.rank)}
        self.counts = torch.zeros(job.ranks, job.ranks, dtype=torch.int64)  # messages, from and to
        self.taken = dict.fromkeys(self.theirs, 0)
        self.metrics = job.group("metrics")
        if self.theirs:
            # Who is done leaves a receive behind that nothing will come for.
            dist.group.WORLD.spare([*self.theirs])  # type: ignore[union-attr]
        self.coming = {rank: self._await(rank) for rank in self.theirs}

    def _await(self, rank: int) -> dist.Work:
        with self.job.label(self.label):
            work = dist.irecv(self.theirs[rank], rank)
        assert work is not None
        return work

    def send(self) -> None:
        self.sent_N = self.x_N - self.base_N
        for peer, last in self.sending.items():
            if not self.wait and last is not None and not last.is_completed():
                self.job.recorder.mark(CODE["metric"], "left out", value=1.0, peer=peer)
                continue
            with self.job.label(self.label):
                self.sending[peer] = dist.isend(self.sent_N, peer)
            self.counts[self.job.rank, peer] += 1

    def average(self) -> None:
        """The mean of what was sent and of what has come (with ``wait``: one of every peer) takes
        the place of this rank's own.
        """
        came = [*self._one_each()] if self.wait else self._here()
        with self.job.computing(OPTIMIZER, "mix"):
            # In the order of ranks, so that ranks that have the same make the same bits of it.
            each = sorted([(self.job.rank, self.sent_N), *came], key=lambda one: one[0])
            mean_N = torch.zeros_like(self.x_N)
            for _, one_N in each:
                mean_N.add_(one_N, alpha=1 / len(each))
            self.x_N.copy_(mean_N.add_(self.base_N))
            if not self.whole:
                self.base_N.copy_(self.x_N)
        self.job.recorder.mark(CODE["metric"], "averaged", value=float(len(each)))

    def _one_each(self) -> Iterator[tuple[int, torch.Tensor]]:
        for rank in self.theirs:
            self.coming[rank].wait()
            yield rank, self._take(rank)

    def _here(self) -> list[tuple[int, torch.Tensor]]:
        """What has come by now, all of it, as copies."""
        came: list[tuple[int, torch.Tensor]] = []
        while here := wait_any([*self.coming.values()], 0.0) if self.coming else []:
            ranks = [*self.coming]
            for rank in [ranks[at] for at in here]:
                self.coming[rank].wait()
                came.append((rank, self._take(rank)))
        return came

    def _take(self, rank: int) -> torch.Tensor:
        """What has come of a peer; what comes next has a place of its own."""
        came_N, self.theirs[rank] = self.theirs[rank], torch.empty_like(self.x_N)
        self.taken[rank] += 1
        self.coming[rank] = self._await(rank)
        return came_N

    def end(self) -> None:
        """Take what is still under way, which comes too late to count."""
        dist.all_reduce(self.counts, group=self.metrics)
        for rank in self.theirs:
            while self.taken[rank] < int(self.counts[rank, self.job.rank]):
                self.coming[rank].wait()
                self._take(rank)
        for last in self.sending.values():
            if last is not None:
                last.wait()
