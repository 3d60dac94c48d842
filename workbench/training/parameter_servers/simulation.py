"""Workers under a consistency policy, without processes: a pure discrete-event simulation.

The server accepts a push when it arrives and asks the policy for every waiting worker. Messages
take no time, so only the policy matters. The same arguments give the same outcome.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

from workbench.training.parameter_servers.clocks import Clocks, Policy

IterationNs = Callable[[int, int], int]  # (worker, iteration) -> its compute time


@dataclass(frozen=True)
class Start:
    """A granted start: ``worker`` begins ``iteration`` at ``at_ns``, ``lead`` ahead."""

    at_ns: int
    worker: int
    iteration: int
    lead: int


@dataclass(frozen=True)
class Simulated:
    """The outcome of a simulation."""

    clocks: dict[int, int]  # worker -> iterations done
    waiting: float  # share of the workers' time, 0 to 1
    staleness: list[int]  # of each push, in order: updates since its worker pulled
    starts: list[Start]

    @property
    def iterations(self) -> int:
        """Iterations of all workers."""
        return sum(self.clocks.values())


def simulate(policy: Policy, iteration_ns: IterationNs, workers: int, until_ns: int) -> Simulated:
    """Simulate ``workers`` under ``policy``, which must be new, for ``until_ns``."""
    done = dict.fromkeys(range(workers), 0)
    pushes: dict[int, tuple[int, ...]] = dict.fromkeys(done, ())
    pulled = dict.fromkeys(done, 0)  # the version that each worker computes on
    since = dict.fromkeys(done, 0)  # when each waiting worker began to wait
    version, waited = 0, 0
    staleness: list[int] = []
    starts: list[Start] = []
    ends: list[tuple[int, int]] = []  # a heap of (end of an iteration, worker)

    def start_waiting(now: int) -> None:
        """Ask the policy for every waiting worker, lowest first, as a server does."""
        nonlocal waited
        clocks = Clocks(done, pushes)
        for worker in sorted(since):
            if policy.may_start(worker, done[worker], clocks):
                waited += now - since.pop(worker)
                pulled[worker] = version
                starts.append(Start(now, worker, done[worker], done[worker] - clocks.slowest))
                heapq.heappush(ends, (now + iteration_ns(worker, done[worker]), worker))

    start_waiting(0)
    while ends and ends[0][0] <= until_ns:
        now, worker = heapq.heappop(ends)
        clock = done[worker]
        done[worker] += 1
        pushes[worker] = (*pushes[worker], now)[-2:]
        since[worker] = now
        staleness.append(version - pulled[worker])
        if not policy.synchronous or min(done.values()) > clock:  # the last push of its clock
            version += 1
        policy.pushed(worker, Clocks(done, pushes))
        start_waiting(now)
    waited += sum(until_ns - begin for begin in since.values())
    share = waited / (workers * until_ns) if until_ns else 0.0
    return Simulated(done, share, staleness, starts)
