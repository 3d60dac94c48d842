"""A worker of Elephas: it pulls, trains its partition for a round, pushes what has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from workbench.recording.events import Where
from workbench.training.elephas.rounds import Rounds
from workbench.training.parameter_servers.options import Defaults
from workbench.training.parameter_servers.worker import Worker

if TYPE_CHECKING:
    from workbench.rank.job import Job


class ElephasWorker(Worker):
    """One worker's rank. ``samples``: its partition."""

    def __init__(self, job: Job, mode: str, consistency: str, rounds: Rounds, samples: Any) -> None:
        job.train, job.taken = samples, None  # what is loaded is not part of a shared minibatch
        super().__init__(job, Defaults(consistency=consistency))
        self.rounds, self.mode, self.number = rounds, mode, job.rank - 1
        self.optimizer = job.optimizer(self.model, keep=False)

    def run(self) -> None:
        job, done = self.job, 0
        job.wait_until_all_are_ready()  # a rank that ends earlier leaves the others without groups
        self._say_spare()
        before_N = self.flat.values_N
        for minibatch in job.iterations():
            done = minibatch.iteration
            if self.rounds.begins(done):
                if not self._granted(done):
                    break
                self._pull(done)
                before_N = self.flat.values_N.clone()
                if self.mode == "synchronous":  # there a round is a new job of Spark's
                    self.optimizer = job.optimizer(self.model, keep=False)
            self._train(done)
            if self.rounds.ends(done):
                self._push_change(before_N, done)
            done += 1
        self._leave(done)

    def _train(self, iteration: int) -> None:
        """Train on this worker's rows of an iteration, if it has any left."""
        job, ids = self.job, self.rounds.ids(self.number, iteration)
        if not len(ids):
            return job.report(torch.zeros(()), 0)
        self.flat.grads_N.zero_()
        loss = job.forward(self.model, job.load(ids))
        job.backward(loss)
        job.update(self.optimizer)
        job.report(loss, len(ids))

    def _push_change(self, before_N: torch.Tensor, iteration: int) -> None:
        """Push the parameters before the round minus those after it; their share of a mean."""
        torch.sub(before_N, self.flat.values_N, out=self.flat.grads_N)
        if self.mode == "synchronous":
            self.flat.grads_N.div_(self.rounds.workers)
        first = self.rounds.first(iteration)
        self.job.recorder.where = Where(first, version=self.versions[0])
        self._push()
