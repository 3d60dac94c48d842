"""The part of a server that outlives servers: its replica chain, and how it takes over keys.

Nothing of it runs where the run ends with a lost server and each key has one copy.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.distributed as dist

from workbench.checkpoints.parts import Parts
from workbench.checkpoints.rows import Rows
from workbench.rank.preemption import leave_if_told
from workbench.training.parameter_servers.holding import Carried, Holding, Region, keep_shard
from workbench.training.parameter_servers.leaving import Boundary
from workbench.training.parameter_servers.members import wait_for_end
from workbench.training.parameter_servers.replication import DROPPED, GRADIENT, Chains, Update
from workbench.training.parameter_servers.shard import Shard
from workbench.training.parameter_servers.taking_over import Regain, Served

if TYPE_CHECKING:
    from workbench.rank.job import Job
    from workbench.training.parameter_servers.flat import Flat
    from workbench.training.parameter_servers.options import Options


class Serves(Protocol):
    """The interface of a server that its service needs."""

    job: Job
    config: Options
    control: dist.ProcessGroup
    servers: list[int]
    workers: range
    waiting: dict[int, int]
    newest: int  # the latest iteration that a worker began
    shards: list[Shard]
    models: list[tuple[torch.nn.Module, Flat, list[list[range]]]]

    def rows(self, number: int, server: int) -> Rows: ...
    def make_shard(self, number: int, server: int) -> Shard: ...
    def answer_all(self, iteration: int, words: dict[int, int]) -> None: ...


class Service:
    """One server's replica chain, and its holding of keys for the next generation."""

    def __init__(self, server: Serves) -> None:
        self._server, self._job = server, server.job
        self._recovers, self._replicas = server.job.goes_on_from_memory, server.config.replicas
        self._done = self._job.exp.iterations  # of a worker that has left
        self._chains: Chains | None = None
        self._own: Holding | None = None
        self._carried: Carried | None = None
        if self._replicas > 1 or self._recovers:
            self._own = self._holding(self._job.rank)
            self._own.shard.log = self
        self._boundary: Boundary | None = None
        if self._recovers and self._own is not None:
            self._job.lead = 1  # a worker may have begun the iteration after the newest granted one
            self._boundary = Boundary(server, self._own)
        if self._replicas > 1:
            group = self._job.group("replicas", range(len(server.servers)))
            self._chains = Chains(
                self._job.rank, server.servers, self._replicas, group, self._holding
            )

    def _holding(self, place: int) -> Holding:
        """Return a holding for the keys of the server at this place."""
        server = self._server
        shard, parts, rows = server.shards[0], self._job.parts, server.rows(0, place)
        if place != self._job.rank:
            shard, parts = server.make_shard(0, place), Parts()
            keep_shard(parts, shard, rows)
        undoes = self._recovers and shard.policy.synchronous
        return Holding(server.servers[place], shard, rows, parts, undoes)

    def begin(self) -> dict[int, int]:
        """Take over what there is.

        Returns the iteration with which each worker begins, by its place.
        """
        job, server = self._job, self._server
        first = job.checkpoints.put_back()
        clock = dict.fromkeys(server.workers, first)
        run_rank = job.session.run_rank
        if job.team.state == "memory":
            taking = Served(job, job.past, regain_of(server), self._own)
            taking.take_over()
            clock = {w: taking.plan_made.go_on[run_rank(w)] for w in server.workers}
        elif self._own is not None:
            whole = {run_rank(worker): first for worker in server.workers}
            self._own.begin([Region(self._own.rows, whole)], self._own.shard.version)
        if self._chains is not None and self._own is not None:
            self._chains.begin(self._own)
        self._carry(max(clock.values()))
        return clock

    def _carry(self, iteration: int) -> None:
        """Have what this server holds ready for the next generation."""
        job = self._job
        if not self._recovers or self._own is None:
            return
        before = job.past.carried if job.past is not None else None
        copies = self._chains.copies.values() if self._chains is not None else ()
        self._carried = Carried(job.team.generation, [self._own, *copies])
        self._carried.older = before if isinstance(before, Carried) else None
        job.carried, job.completed, job.begins = self._carried, iteration, True

    def forget_older(self) -> None:
        """Drop what was kept of the generation before: a worker has pushed, so all servers have
        begun.
        """
        if self._carried is not None:
            self._carried.older = None

    # -- the log of the own shard: its replica chain --

    def applies(self, gradient_n: torch.Tensor, iteration: int, workers: Collection[int]) -> None:
        """Prepare for an update."""
        assert self._own is not None
        self._own.applies(gradient_n, iteration, self._run_ranks(workers))

    def applied(self, gradient_n: torch.Tensor, iteration: int, workers: Collection[int]) -> None:
        """Send an update down the chain."""
        assert self._own is not None
        self._own.counts(iteration, self._run_ranks(workers))
        self._forward(GRADIENT, gradient_n, iteration, workers)

    def drops(self, iteration: int, worker: int) -> None:
        """Tell the chain of a gradient that was too stale."""
        assert self._own is not None
        self._own.counts(iteration, self._run_ranks([worker]))
        self._forward(DROPPED, torch.empty(0), iteration, [worker])

    def _run_ranks(self, workers: Collection[int]) -> list[int]:
        return [self._job.session.run_rank(worker) for worker in workers]

    def _forward(
        self, kind: int, gradient_n: torch.Tensor, iteration: int, workers: Collection[int]
    ) -> None:
        if self._chains is not None:
            together = self._server.shards[0].policy.synchronous
            worker = -1 if together else self._job.session.run_rank(next(iter(workers)))
            self._chains.forward(Update(kind, iteration, worker), gradient_n, workers)

    # -- the loop --

    @property
    def works(self) -> list[Any]:
        """The receives from other servers that are posted."""
        chains = self._chains.inbox.values() if self._chains is not None else ()
        boundary = self._boundary.works if self._boundary is not None else ()
        return [*(work for work, _ in chains), *boundary]

    @property
    def busy(self) -> bool:
        """Whether this server is still needed by the chains."""
        return self._chains is not None and self._chains.busy

    def awaits(self, worker: int) -> bool:
        """Return whether a push of this worker (its place) is not acknowledged yet."""
        return self._chains is not None and self._chains.awaits(worker)

    def holds(self, iteration: int) -> bool:
        """Return whether no worker may begin this iteration before all ranks have regrouped."""
        return self._boundary is not None and self._boundary.holds(iteration)

    @property
    def regroups(self) -> bool:
        """True while all ranks are about to regroup."""
        return self.holds(self._done)

    def leave_at_boundary(self, live: list[int]) -> None:
        """Leave, with all others, where all have come to the boundary at which they regroup.
        ``live``: this server's workers.
        """
        if self._boundary is not None:
            self._boundary.look(live, any(self.awaits(worker) for worker in live))

    def clocks(self, shard: Shard) -> list[int]:
        """Return all workers' clocks, which a pull has: a worker can be the last to know them."""
        if not self._recovers:
            return []
        return [shard.clock.get(worker, self._done) for worker in self._server.workers]

    def progress(self, *, finished: bool) -> None:
        """Handle what has arrived from other servers. ``finished``: no worker pushes any more."""
        if self._recovers and (self._boundary is None or not self._boundary.reached):
            leave_if_told(self._job, self._server.newest)
        if finished:
            self.say_over()
        if self._chains is None:
            return
        for key in [key for key, (work, _) in self._chains.inbox.items() if work.is_completed()]:
            self._chains.handle(key)

    def say_over(self) -> None:
        """Tell the chains that no update of this server follows."""
        if self._chains is not None:
            self._chains.say_over()

    def wait_for_end(self) -> None:
        """Wait until the first server has all that was trained, where it could be lost."""
        if self._recovers and self._job.rank != 0:
            wait_for_end(self._job, self._server.servers[0])


def regain_of(server: Serves) -> Regain:
    """Return what a server of a generation needs for taking over."""
    _, flat, ranges = server.models[0]
    owned = dict(zip(server.servers, ranges, strict=True))
    synchronous = server.shards[0].policy.synchronous
    return Regain(owned, flat.values_N, synchronous, server.config.restored_from)
