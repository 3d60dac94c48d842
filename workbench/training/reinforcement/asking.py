"""A learner's way to replay: it asks one shard after the other, a few requests ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.common.errors import PeerLost
from workbench.recording.events import CODE
from workbench.training.reinforcement import messages
from workbench.training.reinforcement.learning import Target
from workbench.training.reinforcement.messages import END, MINIBATCH, PRIORITIES, REQUEST
from workbench.training.reinforcement.options import Options, warm_up_blocks
from workbench.training.reinforcement.replay import sampled_layout
from workbench.training.reinforcement.roles import Roles

if TYPE_CHECKING:
    from workbench.rank.job import Job


class Asking:
    """One learner's requests.

    ``ahead``: requests beyond the one that is needed now: their minibatches are on the way while
    the learner computes. ``lockstep``: none, and each waits for as many transitions as sequential
    training has.
    """

    def __init__(
        self,
        job: Job,
        options: Options,
        roles: Roles,
        layout: np.dtype,
        *,
        ahead: int,
        lockstep: bool,
    ) -> None:
        self.job, self.options = job, options
        self._layout = sampled_layout(layout)
        self._shards = [*roles.replays]
        self._ahead, self._lockstep = (0 if lockstep else ahead), lockstep
        self._requests: deque[tuple[int, Any, np.ndarray]] = deque()  # shard, handle, room
        self._next = 0
        self._sending: list[Any] = []

    def minibatch(self, version: int, wait: Callable[[Any], None]) -> tuple[int, np.ndarray]:
        """Return the shard that was asked, and what it has drawn. ``wait``: for a handle, while the
        rest of the rank goes on. Raises PeerLost if no shard is left.
        """
        while True:
            while len(self._requests) <= self._ahead:
                self._ask(version)
            shard, work, room = self._requests.popleft()
            try:
                wait(work)
            except PeerLost as error:
                if self.job.goes_on_from_memory:
                    raise
                self._leave(shard, error)
                continue
            return shard, room

    def priorities(self, shard: int, sampled: np.ndarray, target: Target) -> None:
        """Send back the priorities of a minibatch, if replay goes by them."""
        if self.options.replay == "prioritised" and shard in self._shards:
            self._send(target.priorities(sampled), shard, PRIORITIES)

    def close(self) -> None:
        """Ask for no more; what is on its way is received."""
        for shard, work, _ in self._requests:
            if shard in self._shards:
                messages.quietly(work)
        for shard in self._shards:
            self._send([END, 0, 0], shard, REQUEST)
        for work in self._sending:
            messages.quietly(work)

    def _ask(self, version: int) -> None:
        shard = self._shards[self._next % len(self._shards)]
        self._next += 1
        needed = self.options.learn_from // len(self._shards)
        if self._lockstep:
            needed = (warm_up_blocks(self.options) + version) * self.options.block
        room = np.zeros(self.job.exp.batch_size, self._layout)
        self._requests.append((shard, messages.receive(self.job, room, shard, MINIBATCH), room))
        self._send([self.job.exp.batch_size, version, max(needed, 1)], shard, REQUEST)

    def _send(self, x: Any, to: int, kind: int) -> None:
        self._sending = [work for work in self._sending if not work.is_completed()]
        self._sending.append(messages.send(self.job, x, to, kind))

    def _leave(self, shard: int, error: PeerLost) -> None:
        """Go on with the other shards."""
        rank = self.job.session.run_rank(shard)
        self.job.recorder.mark(CODE["metric"], "lost replay", value=rank, peer=rank)
        self._shards = [one for one in self._shards if one != shard]
        self._requests = deque(one for one in self._requests if one[0] != shard)
        if not self._shards:
            raise error
