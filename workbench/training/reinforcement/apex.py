"""Ape-X's learner: one rank with all parameters, which learns from replay and answers pulls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from workbench.recording.events import CODE, Where
from workbench.training.parameter_servers.flat import Flat
from workbench.training.reinforcement.asking import Asking
from workbench.training.reinforcement.options import Distributed
from workbench.training.reinforcement.pulls import Pulls
from workbench.training.reinforcement.roles import Roles
from workbench.training.reinforcement.sequential import load, note_age, target_of
from workbench.training.reinforcement.transition_rows import LEARNED, TransitionRows

if TYPE_CHECKING:
    from workbench.rank.job import Job

_METRIC = CODE["metric"]


class Learner:
    """The learner's rank.

    ``bound``: versions that it may be ahead of the parameters of any actor; None: any number.
    """

    def __init__(
        self,
        job: Job,
        options: Distributed,
        roles: Roles,
        layout: np.dtype,
        *,
        ahead: int,
        lockstep: bool,
        bound: int | None,
    ) -> None:
        self.job, self.version, self._bound = job, 0, bound
        self.model = job.model(keep=False)
        self._flat = Flat(self.model)
        self._parameter = torch.nn.Parameter(self._flat.values_N, requires_grad=False)
        self._parameter.grad = self._flat.grads_N
        self._optimizer = job.optimizer([self._parameter], keep=False)
        self._target = target_of(job, options)
        self._asking = Asking(job, options, roles, layout, ahead=ahead, lockstep=lockstep)
        self._rows = TransitionRows(job, options.record_transitions)
        self._copy: tuple[int, torch.Tensor] = -1, torch.empty(0)
        self._pulls = Pulls(job, roles.actors, lambda: self.version, self._newest)

    def run(self) -> None:
        """Learn until the last iteration, then let all others leave."""
        job = self.job
        job.wait_until_all_are_ready()
        self._pulls.begin()
        for minibatch in job.iterations():
            self.version = minibatch.iteration
            job.recorder.where = Where(self.version, version=self.version)
            self._keep_bound()
            self._learn()
        self._asking.close()
        self._pulls.end()
        while self._pulls.pulled:
            self._pulls.look()
        self._pulls.finish()
        job.finish(self.model, alone=True)

    def _learn(self) -> None:
        """Make one update."""
        job, target = self.job, self._target
        target.follow(self.model, self.version)
        shard, sampled = self._asking.minibatch(self.version, self._wait)
        note_age(job, sampled, self.version)
        self._rows.note(LEARNED, sampled["transition"], shard)
        self._flat.grads_N.zero_()
        loss = job.forward(self.model, load(job, sampled), target.loss)
        job.backward(loss)
        self._asking.priorities(shard, sampled, target)
        job.report(loss, len(sampled))
        job.update(self._optimizer)
        self.version += 1
        job.recorder.mark(_METRIC, "largest lag", value=self._pulls.lag())
        self._pulls.look(0)

    def _keep_bound(self) -> None:
        """Wait until no actor would be further behind than the bound after the next update."""
        while self._bound is not None and self._pulls.lag() >= self._bound:
            self._pulls.look()
            self.job.session.look()

    def _wait(self, work: Any) -> None:
        """Wait for a message, and answer pulls meanwhile."""
        while not work.is_completed():
            self._pulls.look(also=work)
        work.wait()

    def _newest(self) -> tuple[int, torch.Tensor]:
        """Return the version and a copy of the parameters, made when it is first asked for."""
        if self._copy[0] != self.version:
            self._copy = self.version, self._flat.values_N.clone()
        return self._copy
