"""MALT's scatter and gather: a rank sends to its peers, and combines what has arrived.

A message of ``scatter="updates"`` is c_i = x_i - (x_i at the start): all that rank i has learned
and all that it has folded in from others. A rank combines these sums and puts its own start back:

    x_i <- start_i + gather(c_i, {c_j of the peers j that were heard from since the last scatter})

So news travels on: what a rank folds in is part of its next message. A message replaces the one
before it of the same sender, so nothing counts twice, on whatever paths it comes, and a message
that is missed loses nothing: the next one holds it too.

Walk    ring of 4, cb = 1, a message to the next rank; rank 0 alone learns 1, once:
            start    1    0    0    0
            round 1  1/2  1/2  0    0
            round 2  1/4  1/2  1/4  0
            round 3  1/8  3/8  3/8  1/8     all have heard of it: the diameter is 3
            ...      1/4  1/4  1/4  1/4     the mean
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from workbench.common.errors import SpecError
from workbench.process_group.direct import group_of
from workbench.process_group.work import wait_any
from workbench.recording.events import CODE, OPTIMIZER
from workbench.training.gossip.facts import MISSED
from workbench.user_code.source import Source, load_path

if TYPE_CHECKING:
    from workbench.rank.job import Job
    from workbench.training.gossip.graphs import Graph

Gather = Callable[[torch.Tensor, Mapping[int, torch.Tensor]], torch.Tensor]
AVERAGE = "average"
LEFT_OUT, OVERWRITTEN, TOO_LATE = MISSED


def gather_of(value: str | Source) -> Gather | None:
    """Return a user's function ``gather(mine_N, theirs)``; None for the mean. Runs its code."""
    if value == AVERAGE:
        return None
    function = value.load() if isinstance(value, Source) else load_path(value)
    if not callable(function):
        raise SpecError.at("options.gather", "is not a function gather(mine_N, theirs)", value)
    return function  # type: ignore[no-any-return]


class Scatter:
    """Scatters this rank's parameters ``x_N``: their change since the start, or the ``whole``.

    ``bound``: how many scatters a peer's newest message may be behind this rank's own. 0: one
    message of every peer at each scatter (BSP). None: no rank waits (ASP), and a peer that has not
    yet taken the last message is left out, so that a slow peer delays no other.
    """

    def __init__(
        self,
        job: Job,
        graph: Graph,
        x_N: torch.Tensor,
        *,
        whole: bool,
        bound: int | None,
        gather: Gather | None = None,
    ) -> None:
        self.job, self.x_N, self.bound, self.gather = job, x_N, bound, gather
        self.label = "parameters" if whole else "update"
        self.start_N = torch.zeros_like(x_N) if whole else x_N.clone()
        self.sent_N, self.scatters = x_N, 0
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

    def _missed(self, why: str, peer: int) -> None:
        self.job.recorder.mark(CODE["metric"], why, value=1.0, peer=peer)

    def send(self) -> None:
        """Send to every peer that can take a message."""
        self.sent_N = self.x_N - self.start_N
        self.scatters += 1
        for peer, last in self.sending.items():
            if self.bound is None and last is not None and not last.is_completed():
                self._missed(LEFT_OUT, peer)
                continue
            with self.job.label(self.label):
                self.sending[peer] = dist.isend(self.sent_N, peer)
            self.counts[self.job.rank, peer] += 1

    def combine(self) -> None:
        """Replace this rank's parameters by the gather of those sent and those received.

        With ``bound`` 0: one message of every peer; else the newest of each that has arrived.
        """
        came = self._one_each() if self.bound == 0 else self._newest()
        with self.job.computing(OPTIMIZER, "mix"):
            theirs = {rank: came[rank] for rank in sorted(came)}
            gathered_N = self._gathered(theirs) if self.gather else self._mean(theirs)
            torch.add(self.start_N, gathered_N, out=self.x_N)
        self.job.recorder.mark(CODE["metric"], "averaged", value=float(1 + len(came)))

    def _mean(self, theirs: Mapping[int, torch.Tensor]) -> torch.Tensor:
        """Return the mean of a message of this rank and those received."""
        mean_N = torch.zeros_like(self.x_N)
        # In the order of ranks, so that ranks that have the same make the same bits of it.
        for rank in sorted((*theirs, self.job.rank)):
            mean_N.add_(theirs.get(rank, self.sent_N), alpha=1 / (1 + len(theirs)))
        return mean_N

    def _gathered(self, theirs: Mapping[int, torch.Tensor]) -> torch.Tensor:
        """Return the answer of the user's function. Raises SpecError where it does not fit."""
        assert self.gather is not None
        answer = self.gather(self.sent_N.clone(), theirs)
        if isinstance(answer, torch.Tensor) and answer.shape == self.x_N.shape:
            return answer.to(self.x_N)
        got = tuple(answer.shape) if isinstance(answer, torch.Tensor) else type(answer).__name__
        raise SpecError.at(
            "options.gather",
            f"must return a tensor of shape {tuple(self.x_N.shape)}, as mine_N; on rank "
            f"{self.job.rank} it returned {got}",
        )

    def _one_each(self) -> dict[int, torch.Tensor]:
        return {rank: self._take(rank) for rank in self.theirs}

    def _newest(self) -> dict[int, torch.Tensor]:
        """Return the newest message of each peer that has sent one since the last time; with a
        ``bound`` wait for those of a peer that is further behind.
        """
        came: dict[int, torch.Tensor] = {}
        while here := wait_any([*self.coming.values()], 0.0) if self.coming else []:
            ranks = [*self.coming]
            for rank in [ranks[at] for at in here]:
                self._newer(rank, came)
        for rank in self.theirs if self.bound is not None else ():
            while self.arrivals[rank] < self.scatters - (self.bound or 0):
                self._newer(rank, came)
        return came

    def _newer(self, rank: int, came: dict[int, torch.Tensor]) -> None:
        if rank in came:
            self._missed(OVERWRITTEN, rank)
        came[rank] = self._take(rank)

    def _take(self, rank: int) -> torch.Tensor:
        """Wait for a peer's next message and return it; post the next receive to a new buffer."""
        self.coming[rank].wait()
        came_N, self.theirs[rank] = self.theirs[rank], torch.empty_like(self.x_N)
        self.arrivals[rank] += 1
        self.coming[rank] = self._await(rank)
        return came_N

    def end(self) -> None:
        """Receive the messages still under way, which come too late to count."""
        dist.all_reduce(self.counts, group=self.metrics)
        for rank in self.theirs:
            while self.arrivals[rank] < int(self.counts[rank, self.job.rank]):
                self._take(rank)
                self._missed(TOO_LATE, rank)
        for last in self.sending.values():
            if last is not None:
                last.wait()
