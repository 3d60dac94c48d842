"""Gorila's ranks around the parameter server that there is: its learners, its bundles, its servers.

A server is one of strategies/parameter_server.py whose workers are the learners; besides, it
answers the pulls of actors. A learner is one of its workers, whose minibatches come from replay,
and a bundle one that plays them itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from workbench.recording.events import CODE
from workbench.training.parameter_servers.holding import Carried
from workbench.training.parameter_servers.options import Defaults
from workbench.training.parameter_servers.server import Server
from workbench.training.parameter_servers.service import Service
from workbench.training.parameter_servers.worker import Worker
from workbench.training.reinforcement.asking import Asking
from workbench.training.reinforcement.exploring import Exploration
from workbench.training.reinforcement.options import Distributed, warm_up_blocks
from workbench.training.reinforcement.outliers import Outliers
from workbench.training.reinforcement.playing import Player
from workbench.training.reinforcement.pulls import Pulls
from workbench.training.reinforcement.regrouping import kept
from workbench.training.reinforcement.replay import Replay
from workbench.training.reinforcement.roles import Roles
from workbench.training.reinforcement.sequential import (
    load,
    note_age,
    play,
    player_of,
    replay_of,
    target_of,
)
from workbench.training.reinforcement.transition_rows import (
    DRAWN,
    INSERTED,
    LEARNED,
    MADE,
    TransitionRows,
)

if TYPE_CHECKING:
    from workbench.rank.job import Job

_METRIC = CODE["metric"]


@dataclass(frozen=True, kw_only=True)
class ServerOptions(Defaults):
    """The options of a parameter server, as Gorila has them: each gradient is applied as it comes,
    unless it missed more than ``drop_above`` updates.
    """

    def prepare(self, job: Job, roles: Roles) -> None:
        """Have every rank make the same groups, in the same order; name the checkpoints' writer."""
        for name in ("control", "metrics"):
            job.group(name)
        if self.replicas > 1:
            job.group("replicas", roles.servers)
        job.checkpoints.writers = range(roles.servers.start, roles.learners.stop)


class GorilaServer(Server):
    """A server's rank. ``bound``: versions that it may be ahead of the parameters of any actor."""

    labels = "gradients", "parameters"

    def __init__(self, job: Job, config: ServerOptions, roles: Roles, bound: int | None) -> None:
        self.roles, self.bound = roles, bound
        self.pulls: Pulls | None = None
        super().__init__(job, config)

    def find_workers(self) -> range:
        return self.roles.learners

    @property
    def spared(self) -> Iterable[int]:
        return {*self.roles.learners, *self.roles.spare}

    def make_service(self) -> Service:
        return _WithActors(self)

    def _samples(self, worker: int, iteration: int) -> int:
        """Return the samples of a learner's minibatch: it has one of its own."""
        return self.job.exp.batch_size

    def _is_leaving(self, values_n: torch.Tensor) -> bool:
        pulled = self.pulls is not None and self.pulls.is_leaving(values_n)
        return pulled or super()._is_leaving(values_n)


class _WithActors(Service):
    """The work of a server beside its learners' gradients: it answers actors."""

    def __init__(self, server: GorilaServer) -> None:
        super().__init__(server)
        self._gorila, self._shard = server, server.shards[0]
        self._bound, self._begun = server.bound, False
        actors = () if server.roles.bundles else server.roles.actors
        shard = self._shard
        self._pulls = server.pulls = Pulls(
            server.job, actors, lambda: shard.version, lambda: (shard.version, shard.values_n)
        )

    def begin(self) -> dict[int, int]:
        self._pulls.begin()
        return super().begin()

    @property
    def works(self) -> list[Any]:
        return [*super().works, *self._pulls.inbox.works]

    @property
    def busy(self) -> bool:
        return super().busy or bool(self._pulls.pulled)

    def awaits(self, worker: int) -> bool:
        """Return whether this learner's next gradient might leave an actor too far behind."""
        if super().awaits(worker) or self._bound is None:
            return super().awaits(worker)
        computing = len(self._shard.clock.keys() - self._gorila.waiting.keys())
        return self._pulls.lag() + computing >= self._bound

    def progress(self, *, finished: bool) -> None:
        super().progress(finished=finished)
        self._pulls.look(0)

    def say_over(self) -> None:
        super().say_over()
        self._pulls.end()

    def wait_for_end(self) -> None:
        self._pulls.finish()
        super().wait_for_end()


class _Learns(Worker):
    """A worker that learns from transitions, wherever they come from."""

    def __init__(
        self,
        job: Job,
        config: ServerOptions,
        options: Distributed,
        roles: Roles,
        outliers: float,
    ) -> None:
        self.roles = roles
        super().__init__(job, config)
        self.options = options
        self.target = target_of(job, options)
        self._outliers = Outliers(outliers)
        self.rows = TransitionRows(job, options.record_transitions)

    def find_workers(self) -> range:
        return self.roles.learners

    def run(self) -> None:
        """Learn until the last iteration, or until a server stops this learner."""
        job, done = self.job, 0
        self.begin()
        job.wait_until_all_are_ready()
        self._say_spare()
        for minibatch in job.iterations():
            done = minibatch.iteration
            if not self._granted(done):
                break
            with job.label("parameters"):
                self._pull(done)
            self.target.follow(self.model, min(self.versions))
            self._learn(min(self.versions))
            with job.label("gradients"):
                self._push()
            done += 1
        self.end()
        self._leave(done)

    def _learn(self, version: int) -> None:
        """Compute the gradient of a minibatch whose loss is not an outlier."""
        job, outlier = self.job, True
        while outlier:
            shard, sampled = self.draw(version)
            note_age(job, sampled, version)
            self.rows.note(LEARNED, sampled["transition"], shard)
            self.flat.grads_N.zero_()
            loss = job.forward(self.model, load(job, sampled), self.target.loss)
            if outlier := self._outliers.is_one(float(loss.detach())):
                job.recorder.mark(_METRIC, "outlier", value=float(loss.detach()))
        job.backward(loss)
        self.learned(shard, sampled)
        job.report(loss, len(sampled))

    def begin(self) -> None:
        """Prepare, before any rank trains."""

    def draw(self, version: int) -> tuple[int, np.ndarray]:
        """Return transitions, and the shard of replay that they are from."""
        raise NotImplementedError

    def learned(self, shard: int, sampled: np.ndarray) -> None:
        """Take over the priorities of what was learned from."""
        raise NotImplementedError

    def end(self) -> None:
        """Leave."""


class GorilaLearner(_Learns):
    """A learner's rank: it draws from replay ranks."""

    def __init__(
        self,
        job: Job,
        config: ServerOptions,
        options: Distributed,
        roles: Roles,
        outliers: float,
        asking: Asking,
    ) -> None:
        super().__init__(job, config, options, roles, outliers)
        self._asking = asking

    def draw(self, version: int) -> tuple[int, np.ndarray]:
        return self._asking.minibatch(version, lambda work: work.wait())

    def learned(self, shard: int, sampled: np.ndarray) -> None:
        self._asking.priorities(shard, sampled, self.target)

    def end(self) -> None:
        self._asking.close()


@dataclass
class _InBundle:
    """A bundle that goes on where others are lost. ``played``: iterations for which it has."""

    player: Player
    replay: Replay
    played: int = 0


class Bundle(_Learns):
    """An actor, a replay and a learner in one rank, in turns, as the paper ran them."""

    def __init__(
        self,
        job: Job,
        config: ServerOptions,
        options: Distributed,
        roles: Roles,
        outliers: float,
        exploration: Exploration,
    ) -> None:
        super().__init__(job, config, options, roles, outliers)
        self._number = number = roles.first.actors.index(job.run_rank)
        self._kept = kept(job, _InBundle) or self._begin(exploration, number)
        self._player, self._replay = self._kept.player, self._kept.replay
        self._player.plays_by(self.model)
        if isinstance(job.carried, Carried):
            job.carried.beside = self._kept

    def _begin(self, exploration: Exploration, number: int) -> _InBundle:
        player = player_of(self.job, self.model, self.options, exploration, number)
        capacity = self.options.capacity
        self.rows.holds(capacity)
        return _InBundle(player, replay_of(self.job, player.layout, self.options, capacity, number))

    def draw(self, version: int) -> tuple[int, np.ndarray]:
        """Play, before the first draw of an iteration; then draw."""
        job = self.job
        iteration = job.recorder.where.iteration
        if self._kept.played <= iteration:
            for _ in range(1 if self._replay.inserted else warm_up_blocks(self.options)):
                block = play(job, self._player, self.options.block, version)
                self._replay.add(block)
                self.rows.note(MADE, block, job.rank, self._number)
                self.rows.note(INSERTED, block, job.rank)
            self._kept.played = iteration + 1
        sampled = self._replay.sample(job.exp.batch_size)
        self.rows.note(DRAWN, sampled["transition"], job.rank)
        return job.rank, sampled

    def learned(self, shard: int, sampled: np.ndarray) -> None:
        self._replay.update(self.target.priorities(sampled))

    def end(self) -> None:
        self._player.close()
