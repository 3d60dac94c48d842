"""A replay's rank: takes in experience, draws minibatches for learners, takes back priorities.

It waits for whichever message comes next and never for one rank. A request is answered once so
many transitions have been inserted as it asks for; in lockstep it asks for all that sequential
training would have by then.

Conservation  transitions that came = inserted + dropped, by actor. ``max_policy_lag`` with "drop":
              a transition is dropped if the policy that made it is more updates old than that, as
              far as this rank knows from requests.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.common.errors import PeerLost
from workbench.rank.preemption import leave_if_told
from workbench.recording.events import CODE, Where, now
from workbench.shared_memory.control_block import ITERATION, SPARE
from workbench.training.reinforcement import messages
from workbench.training.reinforcement.messages import (
    END,
    EXPERIENCE,
    FAREWELL,
    MINIBATCH,
    PRIORITIES,
    REQUEST,
    Inbox,
)
from workbench.training.reinforcement.options import Distributed
from workbench.training.reinforcement.regrouping import BEFORE_ANY, kept, stay, take_part
from workbench.training.reinforcement.replay import PRIORITY, Replay
from workbench.training.reinforcement.roles import Roles
from workbench.training.reinforcement.sequential import replay_of
from workbench.training.reinforcement.transition_rows import (
    DRAWN,
    DROPPED,
    INSERTED,
    TransitionRows,
)

if TYPE_CHECKING:
    from workbench.rank.job import Job
    from workbench.training.parameter_servers.options import Options


AGES = 12  # equal parts of what replay holds, from the newest to the oldest; pages draw as many
TELL_NS = 250_000_000  # at least between two times that it tells how likely each is drawn


@dataclass
class _Kept:
    """A replay that goes on where others are lost. ``came``, ``dropped``: transitions, by the
    actor's rank in the run.
    """

    replay: Replay
    came: dict[int, int] = field(default_factory=dict)
    dropped: dict[int, int] = field(default_factory=dict)


class ReplayRank:
    """One shard of replay. ``max_lag``: updates; None: nothing is dropped.

    ``ahead``: minibatches that are drawn for a learner before the priorities of an earlier one have
    come back. ``updates``: of one iteration of a learner. ``served``: the options of the parameter
    server, if there is one.
    """

    def __init__(
        self,
        job: Job,
        options: Distributed,
        roles: Roles,
        layout: np.dtype,
        *,
        max_lag: int | None,
        ahead: int,
        updates: int = 1,
        served: Options | None = None,
    ) -> None:
        self.job, self.options, self.roles = job, options, roles
        self._layout, self._max_lag, self._updates = layout, max_lag, updates
        self._served = served
        self._ahead, self._owed = ahead, dict.fromkeys(roles.learners, 0)
        self._sent: dict[int, int] = {}  # actor -> transitions that it has sent, once it has left
        first = roles.first.replays
        shard, shards = first.index(job.run_rank), len(first)
        capacity = -(-options.capacity // shards)
        self._kept = kept(job, _Kept) or _Kept(replay_of(job, layout, options, capacity, shard))
        self._replay = self._kept.replay
        self._prioritised = options.replay == "prioritised"
        self._lane = job.recorder.lane("server")
        self._rows = TransitionRows(job, options.record_transitions, "server")
        if not self._replay.inserted:
            self._rows.holds(self._replay.capacity)
        self._inbox = Inbox(job, self._lost)
        self._actors, self._learners = {*roles.actors}, {*roles.learners}
        self._requests: list[tuple[int, int, int]] = []  # learner, count, inserted before
        self._leaving: list[Any] = []  # minibatches that have not left yet
        self._told_ns = 0  # when it told how likely transitions are drawn
        self._newest = self._struck = 0  # the version that any learner has told
        self._came = dict.fromkeys(roles.actors, 0)  # transitions in this generation, by actor
        for actor in map(job.session.run_rank, roles.actors):
            self._kept.came.setdefault(actor, 0)
            self._kept.dropped.setdefault(actor, 0)

    def run(self) -> None:
        """Serve until all learners and all actors have left."""
        job = self.job
        spare = job.rank in self.roles.spare and not job.goes_on_from_memory
        job.control.set_rank(job.run_rank, SPARE, int(spare))
        job.wait_until_all_are_ready()
        take_part(job, self._kept, {"came": self._kept.came})
        job.started_ns = job.started_ns or now()
        for actor in self.roles.actors:
            self._expect_block(actor)
            self._inbox.expect(messages.numbers(1), actor, FAREWELL, self._farewell)
        for learner in self.roles.learners:
            self._inbox.expect(messages.numbers(3), learner, REQUEST, self._request)
            self._expect_priorities(learner)
        while self._actors or self._learners:
            self._inbox.look()
            job.session.look()
            leave_if_told(job, BEFORE_ANY)
        for work, _ in self._leaving:
            messages.quietly(work)
        job.ended_ns = now()
        stay(job, self._served)
        kept = self._kept
        counts = {"came": kept.came, "dropped": kept.dropped, "inserted": self._replay.inserted}
        job.tell({f"replay {job.run_rank}": json.dumps(counts)})

    # -- experience --

    def _expect_block(self, actor: int) -> None:
        room = np.zeros(self.options.block, self._layout)
        self._inbox.expect(room, actor, EXPERIENCE, self._experience)

    def _experience(self, actor: int, block: np.ndarray) -> None:
        """Insert a block, without what is too old."""
        run_rank = self.job.session.run_rank(actor)
        self._came[actor] += len(block)
        self._kept.came[run_rank] += len(block)
        lag = np.maximum(self._newest - block["version"], 0)
        self._mark("insert lag", float(lag.mean()), actor)
        if self._max_lag is not None and (old := lag > self._max_lag).any():
            self._kept.dropped[run_rank] += int(old.sum())
            self._mark("dropped experience", int(old.sum()), actor)
            self._rows.note(DROPPED, block[old], actor)
            block = block[~old]
        self._replay.add(block)
        self._rows.note(INSERTED, block, actor)
        self._mark("inserted", len(block), actor)
        self._expect_block(actor)
        self._let_leave(actor)
        self._answer()

    def _farewell(self, actor: int, message: Any) -> None:
        self._sent[actor] = int(message) * self.options.block
        self._let_leave(actor)

    def _let_leave(self, actor: int) -> None:
        """Await nothing more from an actor that has left, once all that it sent has come."""
        if self._came[actor] == self._sent.get(actor):
            self._actors.discard(actor)
            self._inbox.forget(actor)

    # -- learners --

    def _request(self, learner: int, message: Any) -> None:
        """Note what a learner asks for; answer it if it can be."""
        count, version, inserted = message.tolist()
        if count == END:
            self._learners.discard(learner)
            return self._inbox.forget(learner)
        if version > self._newest:
            self._newest = version
            self._strike(min(version // self._updates, self.job.exp.iterations - 1))
        self._requests.append((learner, count, inserted))
        self._answer()
        self._inbox.expect(messages.numbers(3), learner, REQUEST, self._request)

    def _answer(self) -> None:
        """Draw for all that have asked and whose transitions are there."""
        waiting = []
        for learner, count, inserted in self._requests:
            if self._replay.inserted < inserted or self._owed[learner] > self._ahead:
                waiting.append((learner, count, inserted))
                continue
            start = now()
            sampled = self._replay.sample(count)
            self._rows.note(DRAWN, sampled["transition"], learner)
            self.job.stretch(start)
            self._lane.context(where=self.job.recorder.where)
            nbytes, name = sampled.nbytes, self.job.recorder.name("sample")
            run_rank = self.job.session.run_rank(learner)
            self._lane.write(CODE["load"], start, now(), run_rank, nbytes=nbytes, name=name)
            self._leaving = [one for one in self._leaving if not one[0].is_completed()]
            work = messages.send(self.job, sampled, learner, MINIBATCH)
            self._leaving.append((work, sampled))
            self._owed[learner] += self._prioritised
        self._requests = waiting

    def _expect_priorities(self, learner: int) -> None:
        if self._prioritised:
            room = np.zeros(self.job.exp.batch_size, PRIORITY)
            self._inbox.expect(room, learner, PRIORITIES, self._update)

    def _update(self, learner: int, priorities: np.ndarray) -> None:
        """Take over priorities; what waited for them is drawn then."""
        self._mark("evicted before", self._replay.update(priorities), learner)
        self._owed[learner] -= 1
        self._tell_likelihood(learner)
        self._expect_priorities(learner)
        self._answer()

    def _tell_likelihood(self, learner: int) -> None:
        """Record, now and then, how much more often than the mean what is so old is drawn."""
        if now() - self._told_ns < TELL_NS:
            return
        self._told_ns = now()
        for part, value in enumerate(self._replay.likelihood(AGES)):
            self._mark("likelihood", float(value), learner, part)

    # -- the rest --

    def _lost(self, rank: int) -> None:
        """Go on without a rank that has ended."""
        self._actors.discard(rank)
        self._learners.discard(rank)
        self._requests = [one for one in self._requests if one[0] != rank]
        starved = not self._actors and any(one[2] > self._replay.inserted for one in self._requests)
        if starved:
            raise PeerLost(
                f"every actor has ended, and replay has {self._replay.inserted} transitions: too "
                "few to learn from",
                rank,
                how="ended",
                found_by=self.job.rank,
            )

    def _strike(self, iteration: int) -> None:
        """Let faults strike that are due by this iteration."""
        job = self.job
        job.recorder.where = Where(iteration, version=self._newest)
        job.control.set_rank(job.run_rank, ITERATION, iteration + 1)
        for one in range(self._struck, iteration + 1):
            job.strike(one, computes=False)
        self._struck = iteration + 1

    def _mark(self, name: str, value: float, peer: int, chunk: int = -1) -> None:
        moment = now()
        self._lane.context(where=self.job.recorder.where)
        number, run_rank = self.job.recorder.name(name), self.job.session.run_rank(peer)
        self._lane.write(
            CODE["metric"], moment, moment, run_rank, chunk=chunk, name=number, value=value
        )
