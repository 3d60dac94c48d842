"""One server's shard of one model: its values, optimizer and clocks, and how it applies gradients.

version    updates made so far
staleness  of a gradient: updates made since its worker pulled
clock      of a worker: its iterations whose gradient was applied, or dropped and counted
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch

from workbench.training.parameter_servers.clocks import Clocks, Policy
from workbench.training.parameter_servers.memory import ServerMemory


@dataclass(frozen=True)
class Outcome:
    """The outcome of one gradient. ``start_ns`` to ``end_ns`` is the update."""

    worker: int
    iteration: int
    version: int  # after the update
    staleness: int
    start_ns: int
    end_ns: int
    applied: bool = True


class Log(Protocol):
    """Hears of every gradient before the shard goes on: a replica chain, or none."""

    def applies(self, gradient_n: torch.Tensor, iteration: int, workers: Collection[int]) -> None:
        """Hear that this gradient of these workers is applied next; it may be changed."""

    def applied(self, gradient_n: torch.Tensor, iteration: int, workers: Collection[int]) -> None:
        """Hear that the values have it. May raise: what it tells of is done."""

    def drops(self, iteration: int, worker: int) -> None:
        """Hear that a worker's gradient was too stale."""


class Shard:
    """One server's shard of one model.

    ``values_n``: owned by the shard. ``busy(values_n)``: whether that buffer is still being sent.
    """

    def __init__(
        self,
        values_n: torch.Tensor,
        workers: Iterable[int],
        policy: Policy,
        optimizer: Callable[[list[torch.Tensor]], torch.optim.Optimizer],
        *,
        stale: str = "keep",
        skips: bool = False,
        drop_above: int = 0,
        busy: Callable[[torch.Tensor], bool] = lambda values_n: False,
        stretch: Callable[[int], None] = lambda start: None,
        log: Log | None = None,
        stride: int = 1,
        end: int | None = None,
        room: Callable[[torch.Tensor], torch.Tensor] = torch.empty_like,
        memory: ServerMemory | None = None,
    ) -> None:
        """Prepare. ``stride``: iterations of one push; ``end``: the run's, at which the last may be
        of fewer; ``room``: makes the memory of another buffer of values;
        ``memory``: counts what is held.
        """
        self._stride, self._end = stride, end
        self.policy, self.stale, self.drop_above = policy, stale, drop_above
        self._skips = skips  # is a push of NaN one of a share that was left out?
        self._busy, self._stretch, self.log, self._room = busy, stretch, log, room
        self.values_n = values_n
        self.parameter = torch.nn.Parameter(values_n, requires_grad=False)
        self.optimizer = optimizer([self.parameter])
        self._spare: list[torch.Tensor] = []  # buffers to reuse once they have been sent
        self.version = 0
        self.clock = dict.fromkeys(workers, 0)  # of live workers
        self.pulled = dict(self.clock)  # the version that a worker holds
        self.inbox = {worker: torch.empty_like(values_n) for worker in self.clock}
        self.shares = dict.fromkeys(self.clock, 0.0)  # of the minibatch, by worker
        self._pushes: dict[int, tuple[int, ...]] = dict.fromkeys(self.clock, ())
        self._kept: list[int] = []  # workers whose gradient of this clock has arrived (synchronous)
        self._whole, self._memory = len(self.clock), memory
        if memory is not None:
            memory.add(self)

    @property
    def buffers(self) -> int:
        """How many more buffers of values there are, which are or were being sent."""
        return len(self._spare)

    def state_dict(self) -> dict[str, int]:
        """Return what a checkpoint keeps beside the values and the optimizer: the version."""
        return {"version": self.version}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Take over what a checkpoint kept."""
        self.version = state["version"]

    def begin(self, clock: Mapping[int, int]) -> None:
        """Set the clock of each worker to the iteration that it begins with."""
        self.clock = dict(clock)
        self.pulled = dict.fromkeys(self.clock, self.version)

    @property
    def clocks(self) -> Clocks:
        """The clocks of the live workers, as a policy sees them."""
        return Clocks(dict(self.clock), {worker: self._pushes[worker] for worker in self.clock})

    def after(self, iteration: int) -> int:
        """Return the iteration with which a worker goes on after its push of this one."""
        after = iteration + self._stride
        return after if self._end is None else min(after, self._end)

    def keeps(self, worker: int) -> bool:
        """Return whether the gradient of ``worker`` still waits in the inbox for the update."""
        return worker in self._kept

    def may_start(self, worker: int, iteration: int) -> bool:
        """Return whether the policy lets ``worker`` start ``iteration``."""
        if self.keeps(worker):
            return False
        return self.policy.may_start(worker, iteration, self.clocks)

    @property
    def reads_once(self) -> bool:
        """Whether a gradient is read once, as it comes, and never written: then it may stay where
        its worker has it, and is passed to ``take_in``.
        """
        alone = not self.policy.synchronous and self.log is None
        return alone and self.stale != "scale" and bool(_plain_rate(self.optimizer))

    def take_in(
        self, worker: int, share: float, gradient_n: torch.Tensor | None = None
    ) -> list[Outcome]:
        """Apply or drop the gradient of ``worker``, weighted by its ``share`` of the minibatch. It
        is in the inbox, unless it is given.

        Returns the outcomes; none while a synchronous update waits for other workers.
        """
        self._pushes[worker] = (*self._pushes[worker][-1:], time.monotonic_ns())
        self.shares[worker] = share
        if self.policy.synchronous:
            self._kept.append(worker)
            return self._update_together()
        gradient_n = self.inbox[worker] if gradient_n is None else gradient_n
        staleness = self.version - self.pulled[worker]
        start, iteration = time.monotonic_ns(), self.clock[worker]
        dropped = self.stale == "drop" and staleness > self.drop_above
        dropped = dropped or self._left_out(gradient_n)
        if not dropped:
            if self.stale == "scale" and staleness > 1:
                gradient_n.div_(staleness)
            self._update(gradient_n, start, [worker])
        elif self.log is not None:
            self.log.drops(iteration, worker)
        self._count(worker)
        end = time.monotonic_ns()
        return [Outcome(worker, iteration, self.version, staleness, start, end, not dropped)]

    def leave(self, worker: int) -> list[Outcome]:
        """Remove ``worker``, and make the synchronous update that may have waited only for it."""
        self.clock.pop(worker, None)
        if worker in self._kept:
            self._kept.remove(worker)
        return self._update_together()

    def _update_together(self) -> list[Outcome]:
        """Make one update from all gradients of a clock, in order of worker, once all are in."""
        if not self._kept or set(self._kept) != set(self.clock):
            return []
        start, last = time.monotonic_ns(), self._kept[-1]
        order = sorted(self._kept)
        applied = [worker for worker in order if not self._left_out(self.inbox[worker])]
        iteration, staleness = self.clock[last], self.version - self.pulled[last]
        if applied:
            total_n = self.inbox[applied[0]]
            for worker in applied[1:]:
                total_n.add_(self.inbox[worker])
            share = sum(self.shares[worker] for worker in applied)
            if len(applied) < self._whole and 0 < share < 1:
                total_n.div_(share)  # a mean over the samples of the workers that remain
            self._update(total_n, start, order)
        elif self.log is not None:
            self.log.applies(self.inbox[last].zero_(), iteration, order)
            for worker in order:
                self.log.drops(iteration, worker)
        end = time.monotonic_ns()
        for worker in order:
            self._count(worker)
        self._kept.clear()
        # Updates never overlap: one worker's row has the span, the others only its end.
        spans = last if last in applied or not applied else applied[0]
        return [
            Outcome(w, iteration, self.version, staleness, begun, end, w in applied)
            for w in (spans, *(w for w in order if w != spans))
            for begun in [start if w == spans else end]
        ]

    def _left_out(self, gradient_n: torch.Tensor) -> bool:
        """Return whether its worker has left its share of the minibatch out."""
        if not self._skips or not len(gradient_n):
            return False
        return bool(gradient_n[0].isnan())

    def follow(self, gradient_n: torch.Tensor) -> None:
        """Make the update that the owner of these keys has made."""
        self._optimize(gradient_n)
        self.version += 1

    def _update(self, gradient_n: torch.Tensor, start: int, workers: Collection[int]) -> None:
        """Make the next version of the values."""
        iteration = min(self.clock[worker] for worker in workers)
        if self.log is not None:
            self.log.applies(gradient_n, iteration, workers)
        if self._busy(self.values_n):  # still being sent: write the next version to another buffer
            before_n, self.values_n = self.values_n, self._fresh()
            self.parameter.data = self.values_n
            if rate := _plain_rate(self.optimizer):  # one pass over memory, with SGD's own kernel
                torch.add(before_n, gradient_n, alpha=-rate, out=self.values_n)
            else:
                self.values_n.copy_(before_n)
                self._optimize(gradient_n)
        else:
            self._optimize(gradient_n)
        self._stretch(start)
        self.version += 1
        if self._memory is not None:
            self._memory.weigh()
        if self.log is not None:
            self.log.applied(gradient_n, iteration, workers)

    def _optimize(self, gradient_n: torch.Tensor) -> None:
        """Let the optimizer apply ``gradient_n`` in place."""
        if rate := _plain_rate(self.optimizer):  # what SGD's step comes to, without the way there
            self.parameter.data.add_(gradient_n, alpha=-rate)
            return
        self.parameter.grad = gradient_n
        self.optimizer.step()

    def _fresh(self) -> torch.Tensor:
        """Return a buffer that is not being sent."""
        free = next((spare for spare in self._spare if not self._busy(spare)), None)
        self._spare = [spare for spare in self._spare if spare is not free] + [self.values_n]
        return self._room(self.values_n) if free is None else free

    def _count(self, worker: int) -> None:
        """Advance the clock of ``worker``."""
        self.clock[worker] = self.after(self.clock[worker])
        self.policy.pushed(worker, self.clocks)


def _plain_rate(optimizer: torch.optim.Optimizer) -> float:
    """Return the learning rate if an update is exactly values - rate * gradient, else 0."""
    group = optimizer.param_groups[0]
    plain = isinstance(optimizer, torch.optim.SGD) and not (
        group["momentum"]
        or group["weight_decay"]
        or group["maximize"]
        or "updates" in group  # a rate that changes with the updates
    )
    return float(group["lr"]) if plain else 0.0
