"""Replica chains: every update goes to the next servers before its pushes are acknowledged.

    owner      applies the update, sends its gradient to the next server of the chain
    next ones  apply it to their copy of the owner's keys, and send it on
    the last   tells the owner; only then does the owner grant the next start to the workers whose
               pushes it was

The grant is the acknowledgement of a push. So whatever a worker knows to be done survives
``replicas - 1`` servers of a chain. In lockstep the gradients of a clock are summed first, and the
sum is sent on: one message for all of them.

Paper  van Renesse & Schneider, "Chain Replication for Supporting High Throughput and Availability",
       OSDI 2004; replication after aggregation: Li et al., OSDI 2014, section 3.6.
Cost   (replicas - 1) times a server's share of the parameters, sent for every update; in memory the
       same, with the optimizer's state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from workbench.checkpoints.rows import Rows
from workbench.rank.moving import Sent, finish, receive, send
from workbench.training.parameter_servers.holding import Holding, Region

GRADIENT, DROPPED, OVER = 0, 1, 2  # what a chain's message is of
Key = tuple[str, int]  # ("update" or "done", the owner's place)


@dataclass(frozen=True)
class Update:
    """An update as it goes down a chain. ``worker``: whose push it was; -1: all workers' sum."""

    kind: int
    iteration: int
    worker: int  # its rank in the run

    def message(self) -> torch.Tensor:
        """Return it as a message."""
        return torch.tensor([self.kind, self.iteration, self.worker])


class Chains:
    """The chains that one server is in: that of its own keys, and those of servers before it."""

    def __init__(
        self,
        me: int,
        servers: Sequence[int],
        replicas: int,
        group: dist.ProcessGroup,
        make: Callable[[int], Holding],
    ) -> None:
        """Prepare the chains of the server ``me``, a place among ``servers`` (ranks in the run).
        ``make``: returns a holding for the keys of the server at this place.
        """
        self._me, self._count, self._group = me, len(servers), group
        self.length = min(replicas, len(servers))
        self._before = [(me - back) % self._count for back in range(1, self.length)]
        self.copies = {owner: make(owner) for owner in self._before}
        self.inbox: dict[Key, tuple[Any, torch.Tensor]] = {}
        self._unacknowledged: deque[Collection[int]] = deque()  # workers of each update, in order
        self._sent: Sent = []
        self._open = set(self._before)  # owners that send more
        self._said_over = False

    def begin(self, holding: Holding) -> None:
        """Give the next servers a copy of this one's keys, and take theirs."""
        regions = [[one.rows.as_lists(), list(one.clock.items())] for one in holding.regions]
        facts: dict[str, Any] = {"regions": regions, "version": holding.shard.version}
        sent: Sent = []
        for ahead in range(1, self.length):
            to = (self._me + ahead) % self._count
            sent += send(holding.snapshot(), facts, to, self._group, self._seed_tag(self._me))
        for owner in self._before:
            snapshot, facts = receive(owner, self._group, self._seed_tag(owner))
            self.copies[owner].put_back(snapshot)
            of = [Region(Rows.from_lists(rows), dict(clock)) for rows, clock in facts["regions"]]
            self.copies[owner].begin(of, facts["version"])
            self._await("update", owner, (self._me - 1) % self._count, 3)
        finish(sent)
        if self.length > 1:
            self._await("done", self._me, self._last, 1)

    def forward(self, update: Update, gradient_n: torch.Tensor, workers: Collection[int]) -> None:
        """Send an update of this server's own keys down its chain."""
        if self.length > 1:
            self._unacknowledged.append(frozenset(workers))
            self._send_on(self._me, update, gradient_n)

    def awaits(self, worker: int) -> bool:
        """Return whether a push of this worker is not acknowledged by the chain yet."""
        return any(worker in workers for workers in self._unacknowledged)

    def say_over(self) -> None:
        """Tell the next servers that no update follows."""
        if self.length > 1 and not self._said_over:
            self._said_over = True
            self._send_on(self._me, Update(OVER, 0, -1), None)

    @property
    def busy(self) -> bool:
        """Whether a server before this one may send more, or one after it has not confirmed all."""
        return bool(self._open or self._unacknowledged)

    def handle(self, key: Key) -> None:
        """Handle a message that has arrived: an update of another server, or a confirmation."""
        what, owner = key
        work, message = self.inbox.pop(key)
        work.wait()
        self._sent = [(one, part) for one, part in self._sent if not one.is_completed()]
        if what == "done":
            self._unacknowledged.popleft()
            self._await("done", self._me, self._last, 1)
            return
        update = Update(*message.tolist())
        gradient_n = self._take(owner, update)
        if self._last_of(owner) != self._me:
            self._send_on(owner, update, gradient_n)
        elif update.kind != OVER:
            confirm = torch.zeros(1, dtype=torch.int64)
            self._post(confirm, owner, self._done_tag(owner))
        if update.kind == OVER:
            self._open.discard(owner)
        else:
            self._await("update", owner, (self._me - 1) % self._count, 3)

    def _take(self, owner: int, update: Update) -> torch.Tensor | None:
        """Apply an update to the copy of its owner's keys. Returns its gradient."""
        copy, before = self.copies[owner], (self._me - 1) % self._count
        workers = [*copy.regions[0].clock] if update.worker < 0 else [update.worker]
        gradient_n = None
        if update.kind == GRADIENT:
            gradient_n = torch.empty_like(copy.shard.values_n)
            dist.recv(gradient_n, before, group=self._group, tag=self._update_tag(owner))
            copy.applies(gradient_n, update.iteration, workers)
            copy.shard.follow(gradient_n)
        if update.kind != OVER:
            copy.counts(update.iteration, workers)
        return gradient_n

    def _send_on(self, owner: int, update: Update, gradient_n: torch.Tensor | None) -> None:
        to, tag = (self._me + 1) % self._count, self._update_tag(owner)
        self._post(update.message(), to, tag)
        if update.kind == GRADIENT and gradient_n is not None:
            self._post(gradient_n, to, tag)

    def _post(self, tensor: torch.Tensor, to: int, tag: int) -> None:
        work = dist.isend(tensor, to, group=self._group, tag=tag)
        assert work is not None
        self._sent.append((work, tensor))

    def _await(self, what: str, owner: int, frm: int, words: int) -> None:
        message = torch.zeros(words, dtype=torch.int64)
        tag = self._update_tag(owner) if what == "update" else self._done_tag(owner)
        self.inbox[what, owner] = dist.irecv(message, frm, group=self._group, tag=tag), message

    @property
    def _last(self) -> int:
        return self._last_of(self._me)

    def _last_of(self, owner: int) -> int:
        return (owner + self.length - 1) % self._count

    def _seed_tag(self, owner: int) -> int:
        return 3 * owner

    def _update_tag(self, owner: int) -> int:
        return 3 * owner + 1

    def _done_tag(self, owner: int) -> int:
        return 3 * owner + 2
