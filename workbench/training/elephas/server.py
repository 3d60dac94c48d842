"""The server of Elephas: it subtracts what workers push; in hogwild mode, all pushes at a time.

It is the parameter server that there is: a push is subtracted by an update rule of SGD with the
rate 1, and clocks advance by the iterations of a round.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from workbench.training.elephas.rounds import Rounds
from workbench.training.parameter_servers.clocks import policy
from workbench.training.parameter_servers.flat import Section
from workbench.training.parameter_servers.options import Defaults
from workbench.training.parameter_servers.server import Server
from workbench.training.parameter_servers.service import Service
from workbench.training.parameter_servers.shard import Outcome, Shard

if TYPE_CHECKING:
    from workbench.rank.job import Job


class ElephasServer(Server):
    """The server's rank."""

    def __init__(self, job: Job, mode: str, consistency: str, rounds: Rounds) -> None:
        self.mode, self.rounds = mode, rounds
        super().__init__(job, Defaults(consistency=consistency))

    def make_shard(self, number: int, server: int) -> Shard:
        _, flat, ranges = self.models[number]
        make: type[Shard] = LockFreeShard if self.mode == "hogwild" else Shard
        return make(
            Section(flat.values_N, ranges[server]).gather().clone(),
            self.workers,
            policy(self.config.consistency),
            partial(torch.optim.SGD, lr=1.0),
            busy=self._is_leaving,
            stretch=self.job.stretch,
            stride=self.rounds.length,
            end=self.rounds.iterations,
        )

    def make_service(self) -> Service:
        return _Collects(self) if self.mode == "hogwild" else Service(self)

    def collected(self, shard: Shard, outcomes: list[Outcome]) -> None:
        """Record pushes that threads have subtracted; a worker whose last it was is done."""
        own = self.lane
        for outcome in outcomes:  # which overlap: a lane for each worker's
            self.lane = self.job.recorder.lane(f"server {outcome.worker}")
            self._record(shard, [outcome])
        self.lane = own
        self._let_finished_leave()

    def _share(self, worker: int, iteration: int) -> float:
        """Return a worker's share of a mean of differences: an equal one."""
        return 1.0 / len(self.workers)


class LockFreeShard(Shard):
    """A shard from which each push is subtracted on a thread of its own, without a lock: others may
    write, and the values may leave, meanwhile.
    """

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._pool = ThreadPoolExecutor(
            len(self.clock), "workbench push", torch.set_num_threads, (1,)
        )
        self.applying: dict[int, Future[tuple[int, int]]] = {}

    def keeps(self, worker: int) -> bool:
        return worker in self.applying

    @property
    def reads_once(self) -> bool:
        """False: a thread reads a push after ``take_in`` has returned."""
        return False

    def take_in(
        self, worker: int, share: float, gradient_n: torch.Tensor | None = None
    ) -> list[Outcome]:
        self._pushes[worker] = (*self._pushes[worker][-1:], time.monotonic_ns())
        self.applying[worker] = self._pool.submit(self._subtract, self.inbox[worker])
        return []

    def _subtract(self, change_n: torch.Tensor) -> tuple[int, int]:
        start = time.monotonic_ns()
        self.values_n.sub_(change_n)
        self._stretch(start)
        return start, time.monotonic_ns()

    def collect(self) -> list[Outcome]:
        """Count the pushes that have been subtracted since the last call."""
        result = []
        for worker in [one for one, future in self.applying.items() if future.done()]:
            start, end = self.applying.pop(worker).result()
            iteration, staleness = self.clock[worker], self.version - self.pulled[worker]
            self.version += 1
            self._count(worker)
            result.append(Outcome(worker, iteration, self.version, staleness, start, end))
        return result

    def leave(self, worker: int) -> list[Outcome]:
        self.clock.pop(worker, None)
        self.applying.pop(worker, None)
        return []


class _Applying:
    """A push that is being subtracted, as something to wait for."""

    def __init__(self, future: Future[Any]) -> None:
        self.is_completed = future.done


class _Collects(Service):
    """The work of a lock-free server beside its messages: it counts what its threads have done."""

    def __init__(self, server: ElephasServer) -> None:
        super().__init__(server)
        self._elephas = server

    @property
    def _shard(self) -> LockFreeShard:
        shard = self._elephas.shards[0]
        assert isinstance(shard, LockFreeShard)
        return shard

    @property
    def works(self) -> list[Any]:
        return [_Applying(future) for future in self._shard.applying.values()]

    def progress(self, *, finished: bool) -> None:
        if outcomes := self._shard.collect():
            self._elephas.collected(self._shard, outcomes)
