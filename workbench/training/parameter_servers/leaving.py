"""The boundary at which all ranks leave their group, because one was told to go or one more waits
to join: no push is on its way then, so nothing is lost and nothing is done again.

The first server sets it, two iterations beyond the newest that it has granted, so that no worker
has begun it. Each server holds back the grants of that iteration until all of its workers have
asked for it, and tells the other servers whether it was told to go. A server that goes gives its
keys to a rank that stays, with the state of their optimizer; then all leave.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.distributed as dist

from workbench.checkpoints.rows import Rows
from workbench.common.errors import WorkbenchError
from workbench.rank.moving import finish, receive, send
from workbench.shared_memory.control_block import LEAVES, LOST, OUTDATED, REGROUP
from workbench.training.parameter_servers.holding import (
    Carried,
    HandedOver,
    Holding,
    Region,
)

if TYPE_CHECKING:
    from workbench.rank.job import Job

NOTE, KEYS = 2, 3  # tags of the group "control": what a server tells the others, and its keys
STAYS, GOES = 0, 1


class Granting(Protocol):
    """The interface of a server that its boundary needs."""

    job: Job
    control: dist.ProcessGroup
    servers: list[int]
    workers: range
    waiting: dict[int, int]

    def answer_all(self, iteration: int, words: dict[int, int]) -> None: ...


class Boundary:
    """One server's part in it. ``own``: what the server holds."""

    def __init__(self, server: Granting, own: Holding) -> None:
        self._server, self._job, self._own = server, server.job, own
        self._others = [one for one in range(len(server.servers)) if one != server.job.rank]
        self._notes = {one: torch.zeros(1, dtype=torch.int64) for one in self._others}
        self._inbox: list[Any] = [
            dist.irecv(note, one, group=server.control, tag=NOTE)
            for one, note in self._notes.items()
        ]
        self._goes: bool | None = None  # None: its workers are not all at the boundary yet

    @property
    def reached(self) -> bool:
        """True once this server has told the others whether it goes; a later notice is too late."""
        return self._goes is not None

    @property
    def iteration(self) -> int:
        """The iteration that no worker begins in this generation; 0: there is none."""
        words = self._job.control.words
        at = words[REGROUP] if words[LOST] <= self._job.team.generation else 0
        return at if 0 < at < self._job.exp.iterations else 0

    def holds(self, iteration: int) -> bool:
        """Return whether no worker may begin this iteration."""
        return 0 < self.iteration <= iteration

    @property
    def works(self) -> list[Any]:
        """The receives from other servers that have not ended."""
        return [work for work in self._inbox if not work.is_completed()]

    def look(self, live: list[int], awaited: bool) -> None:
        """Leave, once all servers have come to the boundary. ``live``: this server's workers;
        ``awaited``: a push of theirs is not in all copies yet.
        """
        server, at = self._server, self.iteration
        if not at:
            return
        if self._goes is None:
            if awaited or not live or any(server.waiting.get(one) != at for one in live):
                return
            self._goes = bool(self._job.control.rank_word(self._job.run_rank, LEAVES))
            note = torch.tensor([GOES if self._goes else STAYS])
            for one in self._others:
                dist.isend(note, one, group=server.control, tag=NOTE)
        if self.works:
            return
        for work in self._inbox:
            work.wait()
        self._leave(at, live)

    def _leave(self, at: int, live: list[int]) -> None:
        """Hand over what is to be handed over, answer the workers and leave."""
        server = self._server
        going = {one for one, note in self._notes.items() if int(note) == GOES}
        heir = self._heir(going | ({self._job.rank} if self._goes else set()), live)
        words = {one: GOES if self._goes and one == heir else STAYS for one in live}
        server.answer_all(at, words)
        if self._goes and heir is not None:
            finish(hand_over(self._own, heir, server.control))
        elif heir == self._job.rank:
            for one in sorted(going):
                receive_keys(self._job, one, server.control)
        raise WorkbenchError(OUTDATED, how="aborted")

    def _heir(self, going: set[int], live: list[int]) -> int | None:
        """Return the place of the rank that keeps the keys of servers that go: the first server
        that stays, else the first worker that was not told to go; None: there is none.
        """
        staying = [one for one in range(len(self._server.servers)) if one not in going]
        run_rank, word = self._job.session.run_rank, self._job.control.rank_word
        staying += [one for one in live if not word(run_rank(one), LEAVES)]
        return next(iter(staying), None)


def hand_over(own: Holding, to: int, group: dist.ProcessGroup) -> Any:
    """Begin to send a server's keys to a rank that stays. Return what to wait for."""
    facts = {
        "server": own.server,
        "version": own.version,
        "regions": [[one.rows.as_lists(), [*one.clock.items()]] for one in own.regions],
    }
    return send(own.snapshot(), facts, to, group, tag=KEYS)


def receive_keys(job: Job, frm: int, group: dist.ProcessGroup) -> None:
    """Receive the keys of a server that goes, and take them along to the next generation."""
    state, facts = receive(frm, group, tag=KEYS)
    regions = [Region(Rows.from_lists(rows), dict(clock)) for rows, clock in facts["regions"]]
    assert isinstance(job.carried, Carried)
    job.carried.holdings.append(HandedOver(facts["server"], state, regions, facts["version"]))
