"""An actor's rank: it plays, sends experience to replay, and pulls parameters now and then.

A block of transitions leaves in the background; an actor that is more than ``IN_FLIGHT`` blocks
ahead of replay waits for it. In lockstep it needs a certain version for each block, and waits for
that.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from workbench.rank.preemption import leave_if_told
from workbench.recording.events import CODE, Where, now
from workbench.shared_memory.control_block import ITERATION, SPARE
from workbench.training.parameter_servers.flat import Flat, Section
from workbench.training.reinforcement import messages
from workbench.training.reinforcement.exploring import Exploration
from workbench.training.reinforcement.messages import (
    END,
    EXPERIENCE,
    FAREWELL,
    GO,
    GRANT,
    NEVER,
    PARAMETERS,
    PULL,
)
from workbench.training.reinforcement.options import Distributed, warm_up_blocks
from workbench.training.reinforcement.playing import Player
from workbench.training.reinforcement.regrouping import BEFORE_ANY, kept, stay, take_part
from workbench.training.reinforcement.roles import Roles
from workbench.training.reinforcement.sequential import play, player_of
from workbench.training.reinforcement.transition_rows import MADE, TransitionRows

if TYPE_CHECKING:
    from workbench.rank.job import Job
    from workbench.training.parameter_servers.options import Options

IN_FLIGHT = 2  # blocks that an actor has sent and replay has not taken in
_METRIC = CODE["metric"]


@dataclass
class _Playing:
    """An actor that goes on where others are lost. ``sent``: transitions, by the replay's
    rank in the run.
    """

    player: Player
    version: int = 0  # of the parameters that it plays by
    sent: dict[int, int] = field(default_factory=dict)


class Actor:
    """One actor's rank.

    ``holders``: the ranks that have the parameters, each with its ranges of them. ``pull_every``:
    frames after which it pulls. ``updates``: of one iteration of a learner. ``served``: the options
    of the parameter server, if there is one.
    """

    def __init__(
        self,
        job: Job,
        options: Distributed,
        roles: Roles,
        exploration: Exploration,
        *,
        holders: Sequence[tuple[int, list[range]]] = (),
        pull_every: int,
        by_hash: bool = True,
        lockstep: bool = False,
        updates: int = 1,
        served: Options | None = None,
    ) -> None:
        self.job, self.options, self.roles = job, options, roles
        self._index = roles.first.actors.index(job.run_rank)
        model = job.build()
        flat = Flat(model)
        whole = [range(len(flat.values_N))]
        self._parts = {
            rank: Section(flat.values_N, ranges)
            for rank, ranges in holders or [(rank, whole) for rank in roles.learners]
        }
        self._kept = kept(job, _Playing) or _Playing(
            player_of(job, model, options, exploration, self._index)
        )
        self._player = self._kept.player
        self._player.plays_by(model)
        self._replays, self._sent = [*roles.replays], dict.fromkeys(roles.replays, 0)
        self._by_hash, self._lockstep, self._updates = by_hash, lockstep, updates
        self._served = served
        self._pull_every = pull_every  # in a later generation this rank has no parameters at first
        self._pulled_at = self._player.frames - (pull_every if job.team.generation else 0)
        self._ends: dict[int, Any] = {}  # what is done when a replay has ended
        self._leaving: deque[tuple[Any, Any]] = deque()  # handle, block
        self._rows = TransitionRows(job, options.record_transitions)
        self.version = self._kept.version
        self._struck = self._blocks = 0

    def run(self) -> None:
        """Play until the holders of the parameters say that the run is over."""
        job = self.job
        job.control.set_rank(job.run_rank, SPARE, int(not job.goes_on_from_memory))
        job.wait_until_all_are_ready()
        self._note_lost(take_part(job, self._kept, {}))
        if len(self._replays) > 1 and not job.goes_on_from_memory:  # else its end concerns all
            self._ends = {
                rank: messages.receive(job, messages.numbers(1), rank, NEVER)
                for rank in self._replays
            }
        job.started_ns = job.started_ns or now()
        while self._may_go_on() and self._replays:
            self._begin_block()
            block = play(job, self._player, self.options.block, self.version)
            job.recorder.mark(_METRIC, "epsilon", value=self._player.epsilon)
            self._send(block)
            self._blocks += 1
        self._leave_lost()
        for rank in [*self._replays]:
            self._post([self._sent[rank]], rank, FAREWELL)
        self._drain(0)
        job.ended_ns = now()
        stay(job, self._served)
        self._player.close()

    def _begin_block(self) -> None:
        """Let faults strike that were due at an iteration which a learner has come to since."""
        job, iteration = self.job, self._iteration(self.version)
        job.recorder.where = Where(iteration, version=self.version)
        # A step of one iteration goes as far as the slowest rank is: that is never this one.
        job.control.set_rank(job.run_rank, ITERATION, iteration + 1)
        job.session.look()
        leave_if_told(job, BEFORE_ANY)
        for one in range(self._struck, iteration + 1):
            job.strike(one)
        self._struck = iteration + 1

    def _iteration(self, version: int) -> int:
        """Return the iteration of a learner that begins with this version; the last one at most."""
        return min(version // self._updates, self.job.exp.iterations - 1)

    # -- parameters --

    def _may_go_on(self) -> bool:
        """Pull parameters if it is time to. Returns False where the run is over."""
        warm_up = warm_up_blocks(self.options)
        if self._lockstep:
            return self._blocks < warm_up or self._pull(self._blocks - warm_up + 1)
        if self._player.frames - self._pulled_at < self._pull_every:
            return True
        self._pulled_at = self._player.frames
        return self._pull(0)

    def _pull(self, version: int) -> bool:
        """Receive the parameters of this version at least. Returns False where the run is over."""
        job, start = self.job, now()
        grants = {rank: messages.numbers(2) for rank in self._parts}
        works = []
        for rank, grant in grants.items():
            works.append(messages.receive(job, grant, rank, GRANT))
            messages.send(job, [version], rank, PULL)
        for work in works:
            work.wait()
        going = [rank for rank, grant in grants.items() if grant[1] == GO]
        works = [
            messages.receive(job, self._parts[rank].section_n, rank, PARAMETERS) for rank in going
        ]
        for rank, work in zip(going, works, strict=True):
            work.wait()
            self._parts[rank].scatter()
            self._note_pull(rank, start, int(grants[rank][0]))
        if len(going) < len(grants):
            for rank in going:  # the others have ended: these need not wait for this actor
                messages.send(job, [END], rank, PULL).wait()
            return False
        newest = min(int(grant[0]) for grant in grants.values())
        job.recorder.mark(_METRIC, "policy lag", value=max(0, newest - self.version))
        self.version = self._kept.version = newest
        return True

    def _note_pull(self, rank: int, start: int, version: int) -> None:
        lane, part = self.job.recorder.lane("compute"), self._parts[rank].section_n
        lane.context(where=Where(self._iteration(version), version=version))
        nbytes = part.numel() * part.element_size()
        name = self.job.recorder.name("parameters")
        run_rank = self.job.session.run_rank(rank)
        lane.write(CODE["pull"], start, now(), run_rank, nbytes=nbytes, name=name)

    # -- experience --

    def _send(self, block: Any) -> None:
        """Send a block to the replay that it belongs to."""
        key = zlib.crc32(b"%d %d" % (self._index, self._blocks)) if self._by_hash else self._index
        self._leave_lost()
        if not self._replays:
            return
        replay = self._replays[key % len(self._replays)]
        self._rows.note(MADE, block, replay, self._index)
        self._sent[replay] += 1
        run_rank = self.job.session.run_rank(replay)
        self._kept.sent[run_rank] = self._kept.sent.get(run_rank, 0) + len(block)
        self._post(block, replay, EXPERIENCE)
        self._drain(0 if self._lockstep else IN_FLIGHT)

    def _post(self, x: Any, to: int, kind: int) -> None:
        self._leaving.append((messages.send(self.job, x, to, kind), x))

    def _drain(self, most: int) -> None:
        """Wait until at most so many blocks are on their way."""
        while len(self._leaving) > most:
            work, _ = self._leaving.popleft()
            messages.quietly(work)

    def _leave_lost(self) -> None:
        """Send nothing more to a replay that has ended; record what was lost with it."""
        for rank in [rank for rank, work in self._ends.items() if work.is_completed()]:
            del self._ends[rank]
            self._replays.remove(rank)
            run_rank = self.job.session.run_rank(rank)
            lost = self._kept.sent.pop(run_rank, 0)
            self.job.recorder.mark(_METRIC, "lost experience", value=lost, peer=run_rank)

    def _note_lost(self, reports: Mapping[int, Mapping[str, Any]]) -> None:
        """Record what replays do not have of what was sent in the generation before."""
        if not reports:
            return
        for replay, sent in [*self._kept.sent.items()]:
            came = reports.get(replay, {}).get("came", {}).get(str(self.job.run_rank), 0)
            self._kept.sent[replay] = came
            if lost := sent - came:
                self.job.recorder.mark(_METRIC, "lost experience", value=lost, peer=replay)
