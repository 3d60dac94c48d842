"""MALT's scatter and gather: a rank sends to its peers, and averages what has arrived."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from workbench.process_group.direct import group_of
from workbench.process_group.work import wait_any
from workbench.recording.events import CODE, OPTIMIZER

if TYPE_CHECKING:
    from workbench.rank.job import Job
    from workbench.training.gossip.graphs import Graph


class Scatter:
    """Scatters this rank's parameters ``x_N``: their change since the last average, or the
    ``whole``.

    Without ``wait`` a peer that has not yet taken the last message is skipped ("left out" rows), so
    that a slow peer delays no other.
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
        self.arrivals = dict.fromkeys(self.theirs, 0)
        self.metrics = job.group("metrics")
        if self.theirs:
            # After a peer's end a posted receive remains that no message will match.
            group_of().spare([*self.theirs])
        self.coming = {rank: self._await(rank) for rank in self.theirs}

    def _await(self, rank: int) -> dist.Work:
        with self.job.label(self.label):
            work = dist.irecv(self.theirs[rank], rank)
        assert work is not None
        return work

    def send(self) -> None:
        """Send to every peer that can take a message."""
        self.sent_N = self.x_N - self.base_N
        for peer, last in self.sending.items():
            if not self.wait and last is not None and not last.is_completed():
                self.job.recorder.mark(CODE["metric"], "left out", value=1.0, peer=peer)
                continue
            with self.job.label(self.label):
                self.sending[peer] = dist.isend(self.sent_N, peer)
            self.counts[self.job.rank, peer] += 1

    def average(self) -> None:
        """Replace this rank's parameters by the mean of those sent and those received.

        With ``wait``: one message of every peer; without: all that have arrived.
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
        """Return copies of all messages that have arrived."""
        came: list[tuple[int, torch.Tensor]] = []
        while here := wait_any([*self.coming.values()], 0.0) if self.coming else []:
            ranks = [*self.coming]
            for rank in [ranks[at] for at in here]:
                self.coming[rank].wait()
                came.append((rank, self._take(rank)))
        return came

    def _take(self, rank: int) -> torch.Tensor:
        """Return a peer's arrived message, and post the next receive to a new buffer."""
        came_N, self.theirs[rank] = self.theirs[rank], torch.empty_like(self.x_N)
        self.arrivals[rank] += 1
        self.coming[rank] = self._await(rank)
        return came_N

    def end(self) -> None:
        """Receive the messages still under way, which come too late to count."""
        dist.all_reduce(self.counts, group=self.metrics)
        for rank in self.theirs:
            while self.arrivals[rank] < int(self.counts[rank, self.job.rank]):
                self.coming[rank].wait()
                self._take(rank)
        for last in self.sending.values():
            if last is not None:
                last.wait()
