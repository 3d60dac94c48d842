"""A replica's part of every minibatch, cut into microbatches: loaded, given to the first stage, and
on the last one turned into losses, by their share of the whole minibatch.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import torch

from workbench.batches import partition
from workbench.job import METRICS_EVERY, Job
from workbench.pipelines.standin import answering, arguments

Key = tuple[int, int]  # iteration, microbatch in it


class Feeding:
    """``first`` and ``last``: whether this rank has that stage; in between nothing is loaded.

    ``longest``: iterations after which nothing of one is under way any more.
    """

    def __init__(
        self, job: Job, replicas: int, microbatches: int, *, first: bool, last: bool, longest: int
    ) -> None:
        self.job, self.replicas, self.microbatches = job, replicas, microbatches
        self.first, self.last, self.longest = first, last, longest
        self.ids: dict[int, list[np.ndarray]] = {}  # by iteration, of each microbatch
        self.shares: dict[int, list[float]] = {}  # of the whole minibatch
        self.batches: dict[Key, Any] = {}
        self.losses: dict[int, float] = defaultdict(float)
        self.metrics: dict[int, dict[str, float]] = {}
        self._answer: tuple[Key, Any, Any] | None = None  # to be measured

    def split(self, ids: np.ndarray) -> tuple[list[np.ndarray], list[float]]:
        """The sample ids of the replica's microbatches, and their shares of the minibatch; one
        without any gets a sample that counts nothing.
        """
        mine = partition(ids, self.job.replica, self.replicas)
        parts = np.array_split(mine, self.microbatches)
        shares = [len(part) / len(ids) for part in parts]
        return [part if len(part) else ids[:1] for part in parts], shares

    def begin(self, iteration: int, ids: np.ndarray) -> None:
        """Load what this iteration's first and last stages need."""
        self.ids[iteration], self.shares[iteration] = self.split(ids)
        if self.first or self.last:
            for number, part in enumerate(self.ids[iteration]):
                self.batches[iteration, number] = self.job.load(part)
        for kept in (self.ids, self.shares):
            kept.pop(iteration - self.longest, None)

    def samples(self, key: Key) -> int:
        return len(self.ids[key[0]][key[1]])

    def inputs(self, key: Key, model: torch.nn.Module) -> tuple[Any, ...]:
        """What the model is called with for this microbatch."""
        batch = self.batches[key] if self.last else self.batches.pop(key)
        return arguments(self.job.task, model, batch)

    def loss(self, key: Key, given: Any) -> torch.Tensor:
        """The task's loss of what the model gave, by the microbatch's share of the samples."""
        job, batch, (iteration, number) = self.job, self.batches.pop(key), key
        loss: torch.Tensor = job.task.loss(answering(given), batch)
        share = self.shares[iteration][number]
        self.losses[iteration] += float(loss.detach()) * share
        if iteration % METRICS_EVERY == 0 and job.recorder.active and hasattr(job.task, "metrics"):
            self._answer = key, given, batch
        return loss * share

    def measure(self) -> None:
        """The task's metrics of the microbatch whose loss was the last, outside its span."""
        if self._answer is None:
            return
        (iteration, number), given, batch = self._answer
        self._answer = None
        with torch.no_grad():
            found = self.job.task.metrics(answering(given), batch)
        sums, share = self.metrics.setdefault(iteration, {}), self.shares[iteration][number]
        for name, value in found.items():
            sums[name] = sums.get(name, 0.0) + float(value) * share

    def report(self, iteration: int, samples: int) -> None:
        """Of an iteration whose losses are all there; ``samples``: of the whole minibatch."""
        if not self.last:
            return
        share, loss = sum(self.shares[iteration]), self.losses.pop(iteration)
        mean = loss / share if share else 0.0
        if share and (sums := self.metrics.pop(iteration, None)):
            self.job.record_metrics({n: one / share for n, one in sums.items()}, "minibatch")
        self.job.report(torch.tensor(mean, dtype=torch.float64), round(share * samples))
