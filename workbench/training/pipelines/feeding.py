"""Feeds a replica's share of every minibatch to the first stage, and turns outputs into losses.

The share is cut into microbatches; on the last stage each loss is weighted by the microbatch's
share of the whole minibatch.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import torch

from workbench.rank.batches import Minibatch, partition
from workbench.rank.job import Job
from workbench.rank.metrics import METRICS_EVERY
from workbench.rank.shared_passes import SharedPass
from workbench.training.pipelines.loss_stub import answering, arguments

Key = tuple[int, int]  # iteration, microbatch in it


class Feeding:
    """Microbatches and losses of one rank.

    ``share``: of every minibatch, which part and of how many.
    ``first`` and ``last``: whether this rank has that stage; a rank with neither loads nothing.
    ``longest``: iterations after which none of an iteration's microbatches is in flight.
    """

    def __init__(
        self,
        job: Job,
        share: tuple[int, int],
        microbatches: int,
        *,
        first: bool,
        last: bool,
        longest: int,
    ) -> None:
        self.job, self.share, self.microbatches = job, share, microbatches
        self.first, self.last, self.longest = first, last, longest
        self.ids: dict[int, list[np.ndarray]] = {}  # by iteration, of each microbatch
        self.shares: dict[int, list[float]] = {}  # of the whole minibatch
        self.batches: dict[Key, Any] = {}
        self.losses: dict[int, float] = defaultdict(float)
        self.metrics: dict[int, dict[str, float]] = {}
        self._answer: tuple[Key, Any, Any] | None = None  # to be measured
        self.counts = True  # the samples: no other rank reports the same loss

    def split(self, ids: np.ndarray) -> tuple[list[np.ndarray], list[float]]:
        """Return the sample ids of the replica's microbatches, and their shares of the minibatch.

        An empty microbatch gets a sample of weight 0.
        """
        mine = partition(ids, *self.share)
        parts = np.array_split(mine, self.microbatches)
        shares = [len(part) / len(ids) for part in parts]
        return [part if len(part) else ids[:1] for part in parts], shares

    def begin(self, minibatch: Minibatch, shared: SharedPass) -> bool:
        """Load this iteration's microbatches for the first and last stage. Returns False where all
        ranks leave the minibatch out.
        """
        iteration = minibatch.iteration
        self.ids[iteration], self.shares[iteration] = self.split(minibatch.ids)
        parts = self.ids[iteration] if self.first or self.last else []
        batches = shared.load(minibatch, parts)
        for number, batch in enumerate(batches or ()):
            self.batches[iteration, number] = batch
        for kept in (self.ids, self.shares):
            kept.pop(iteration - self.longest, None)
        return batches is not None

    def forget(self, iteration: int) -> None:
        """Forget what was computed of a minibatch that is left out."""
        self.losses.pop(iteration, None)
        self.metrics.pop(iteration, None)

    def whole_loss(self, iteration: int) -> torch.Tensor | None:
        """Return the sum of the microbatches' weighted losses; None: they are on another rank."""
        return torch.tensor(self.losses[iteration]) if self.last else None

    def samples(self, key: Key) -> int:
        return len(self.ids[key[0]][key[1]])

    def inputs(self, key: Key, model: torch.nn.Module) -> tuple[Any, ...]:
        """Return the model's arguments for this microbatch."""
        batch = self.batches[key] if self.last else self.batches.pop(key)
        return arguments(self.job.task, model, batch)

    def loss(self, key: Key, output: Any) -> torch.Tensor:
        """Return the task's loss of the model's output, weighted by the microbatch's share."""
        job, batch, (iteration, number) = self.job, self.batches.pop(key), key
        whole: torch.Tensor = job.task.loss(answering(output), batch)
        mine = self.ids[iteration][number]
        loss = job.corruption.loss(whole, mine, uses_inputs=self.first)
        share = self.shares[iteration][number]
        self.losses[iteration] += float(loss.detach()) * share
        if iteration % METRICS_EVERY == 0 and job.recorder.active and hasattr(job.task, "metrics"):
            self._answer = key, output, batch
        return loss * share

    def measure(self) -> None:
        """Compute the task's metrics of the microbatch of the latest loss, outside its span."""
        if self._answer is None:
            return
        (iteration, number), output, batch = self._answer
        self._answer = None
        with torch.no_grad():
            result = self.job.task.metrics(answering(output), batch)
        sums, share = self.metrics.setdefault(iteration, {}), self.shares[iteration][number]
        for name, value in result.items():
            sums[name] = sums.get(name, 0.0) + float(value) * share

    def report(self, iteration: int, samples: int) -> None:
        """Report an iteration whose losses are complete; ``samples``: of the whole minibatch."""
        if not self.last:
            return
        share, loss = sum(self.shares[iteration]), self.losses.pop(iteration)
        mean = loss / share if share else 0.0
        sums = self.metrics.pop(iteration, None)
        if share and sums and self.counts:
            self.job.record_metrics({n: one / share for n, one in sums.items()}, "minibatch")
        count = round(share * samples) if self.counts else 0
        self.job.report(torch.tensor(mean, dtype=torch.float64), count)
