"""One server's part of one model: its values, its optimiser, its clocks, and what it does with
gradients.

    version    updates made so far
    staleness  of a gradient: updates made since its worker pulled
    clock      of a worker: its iterations whose gradient was applied, or left out and counted
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from workbench.parameter_servers.clocks import Clocks, Policy


@dataclass(frozen=True)
class Taken:
    """What became of one gradient. ``start_ns`` to ``end_ns``: the update."""

    worker: int
    iteration: int
    version: int  # after it
    staleness: int
    start_ns: int
    end_ns: int
    applied: bool = True


class Shard:
    """``values_n`` is this server's to keep. ``busy(values_n)``: is it still being sent?"""

    def __init__(
        self,
        values_n: torch.Tensor,
        workers: Iterable[int],
        policy: Policy,
        optimizer: Callable[[list[torch.Tensor]], torch.optim.Optimizer],
        *,
        stale: str = "keep",
        drop_above: int = 0,
        busy: Callable[[torch.Tensor], bool] = lambda values_n: False,
        stretch: Callable[[int], None] = lambda start: None,
    ) -> None:
        self.policy, self.stale, self.drop_above = policy, stale, drop_above
        self._busy, self._stretch = busy, stretch
        self.values_n = values_n
        self._parameter = torch.nn.Parameter(values_n, requires_grad=False)
        self._optimizer = optimizer([self._parameter])
        self._spare: list[torch.Tensor] = []  # buffers that were sent from, to be used again
        self.version = 0
        self.clock = dict.fromkeys(workers, 0)  # of live workers
        self.pulled = dict(self.clock)  # the version that a worker holds
        self.inbox = {worker: torch.empty_like(values_n) for worker in self.clock}
        self.shares = dict.fromkeys(self.clock, 0.0)  # of the minibatch, of the gradients at hand
        self._pushes: dict[int, tuple[int, ...]] = dict.fromkeys(self.clock, ())
        self._kept: list[int] = []  # workers whose gradient of this clock is in (synchronous)
        self._whole = len(self.clock)

    @property
    def clocks(self) -> Clocks:
        return Clocks(dict(self.clock), {worker: self._pushes[worker] for worker in self.clock})

    def may_start(self, worker: int, iteration: int) -> bool:
        if worker in self._kept:  # its gradient is still needed where it lies
            return False
        return self.policy.may_start(worker, iteration, self.clocks)

    def take_in(self, worker: int, share: float) -> list[Taken]:
        """The gradient of ``worker`` is in its inbox, weighted by its ``share`` of the minibatch.

        Returns what was done by it: nothing yet while a synchronous update waits for others.
        """
        self._pushes[worker] = (*self._pushes[worker][-1:], time.monotonic_ns())
        self.shares[worker] = share
        if self.policy.synchronous:
            self._kept.append(worker)
            return self._update_together()
        staleness = self.version - self.pulled[worker]
        start, iteration = time.monotonic_ns(), self.clock[worker]
        left_out = self.stale == "drop" and staleness > self.drop_above
        if not left_out:
            gradient_n = self.inbox[worker]
            if self.stale == "scale" and staleness > 1:
                gradient_n.div_(staleness)
            self._update(gradient_n, start)
        self._count(worker)
        end = time.monotonic_ns()
        return [Taken(worker, iteration, self.version, staleness, start, end, not left_out)]

    def leave(self, worker: int) -> list[Taken]:
        """``worker`` takes part no more: nobody waits for it. It may have been the last missing."""
        self.clock.pop(worker, None)
        if worker in self._kept:
            self._kept.remove(worker)
        return self._update_together()

    def _update_together(self) -> list[Taken]:
        """One update by all gradients of a clock, in order of worker, if they are in."""
        if not self._kept or set(self._kept) != set(self.clock):
            return []
        start, last = time.monotonic_ns(), self._kept[-1]
        order = sorted(self._kept)
        total_n = self.inbox[order[0]]
        for worker in order[1:]:
            total_n.add_(self.inbox[worker])
        share = sum(self.shares[worker] for worker in order)
        if len(order) < self._whole and 0 < share < 1:
            total_n.div_(share)  # of those that are left: a mean over their samples
        iteration, staleness = self.clock[last], self.version - self.pulled[last]
        self._update(total_n, start)
        end = time.monotonic_ns()
        for worker in order:
            self._count(worker)
        self._kept.clear()
        # Updates of a server follow each other: the span is the last one's, the others its end.
        return [
            Taken(w, iteration, self.version, staleness, start if w == last else end, end)
            for w in (last, *(w for w in order if w != last))
        ]

    def _update(self, gradient_n: torch.Tensor, start: int) -> None:
        if self._busy(self.values_n):  # it is being sent: the next version gets another buffer
            before_n, self.values_n = self.values_n, self._fresh()
            self._parameter.data = self.values_n
            if rate := _plain_rate(self._optimizer):  # one pass over memory, and SGD's own kernel
                torch.add(before_n, gradient_n, alpha=-rate, out=self.values_n)
            else:
                self.values_n.copy_(before_n)
                self._step(gradient_n)
        else:
            self._step(gradient_n)
        self._stretch(start)
        self.version += 1

    def _step(self, gradient_n: torch.Tensor) -> None:
        self._parameter.grad = gradient_n
        self._optimizer.step()

    def _fresh(self) -> torch.Tensor:
        """A buffer of which nothing is being sent any more."""
        free = next((one for one in self._spare if not self._busy(one)), None)
        self._spare = [one for one in self._spare if one is not free] + [self.values_n]
        return torch.empty_like(self.values_n) if free is None else free

    def _count(self, worker: int) -> None:
        self.clock[worker] += 1
        self.policy.pushed(worker, self.clocks)


def _plain_rate(optimizer: torch.optim.Optimizer) -> float:
    """The learning rate if an update is nothing but values - rate * gradient, else 0."""
    group = optimizer.param_groups[0]
    plain = isinstance(optimizer, torch.optim.SGD) and not (
        group["momentum"] or group["weight_decay"] or group["maximize"]
        or "updates" in group  # its rate changes with them, in its own step
    )  # fmt: skip
    return float(group["lr"]) if plain else 0.0
