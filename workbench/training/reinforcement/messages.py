"""The messages between roles: each kind has a tag, a name in the record, and a size of its own.

    experience   actor -> replay    a block of transitions
    request      learner -> replay  how many transitions to draw, the newest version that the
                                    learner knows, how many must have been inserted before
    minibatch    replay -> learner  the transitions that were drawn
    priorities   learner -> replay  the |TD error| of each of them
    pull         actor -> learner   which version is needed at least (Gorila: of each server)
    grant        learner -> actor   the version that follows, or the end of the run
    parameters   learner -> actor   all of them, flat
    gradients    learner -> server  (Gorila) a server's share, flat
    farewell     actor -> replay    how many blocks it has sent: no more come

All are posted without waiting: a rank that waits for one message moves all others. Structured
records travel as bytes; both ends know the layout from the task, so nothing describes it.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist

from workbench.common.errors import PeerLost
from workbench.process_group.work import wait_any

if TYPE_CHECKING:
    from collections.abc import Callable

    from workbench.rank.job import Job

# Tags. 0 and 1 are a parameter server's: gradients, and a worker's farewell.
EXPERIENCE, REQUEST, MINIBATCH, PRIORITIES, PULL, GRANT, PARAMETERS, FAREWELL, NEVER = range(2, 11)
NAMES = {
    EXPERIENCE: "experience",
    REQUEST: "request",
    MINIBATCH: "minibatch",
    PRIORITIES: "priorities",
    PULL: "pull",
    GRANT: "grant",
    PARAMETERS: "parameters",
    FAREWELL: "farewell",
    NEVER: "",  # is awaited of a rank and never comes: it ends when that rank does
}
GO, STOP = 1, 0  # second word of a grant; the first is the version
END = -1  # instead of a number: this rank asks for no more
LOOK = 0.1  # seconds between two looks at whether the user wants to stop


def send(job: Job, x: Any, to: int, kind: int) -> Any:
    """Begin to send a tensor, an array of records or some whole numbers. Returns the handle."""
    with job.label(NAMES[kind]):
        return dist.isend(_tensor(x), to, tag=kind)


def receive(job: Job, into: Any, frm: int, kind: int) -> Any:
    """Begin to receive into a tensor or an array. Returns the handle."""
    with job.label(NAMES[kind]):
        return dist.irecv(_tensor(into), frm, tag=kind)


def numbers(count: int) -> torch.Tensor:
    """Return room for whole numbers."""
    return torch.zeros(count, dtype=torch.int64)


def quietly(work: Any) -> None:
    """Wait for a message, or for the end of its peer."""
    with contextlib.suppress(PeerLost):
        work.wait()


def _tensor(x: Any) -> torch.Tensor:
    if isinstance(x, torch.Tensor):
        return x
    if isinstance(x, np.ndarray):  # records: the same memory, as bytes
        return torch.from_numpy(x.reshape(-1).view(np.uint8))
    return torch.tensor(x, dtype=torch.int64)


class Inbox:
    """Receives that are posted, by (kind, rank): what is called when each has come.

    A rank that ends takes its own receives with it; ``lost`` is called once for it. Where its end
    has all others form a new group, PeerLost is raised instead.
    """

    def __init__(self, job: Job, lost: Callable[[int], None]) -> None:
        self._job, self._lost = job, lost
        self._posted: dict[tuple[int, int], tuple[Any, Any, Callable[[int, Any], None]]] = {}
        self.gone: set[int] = set()

    def expect(self, into: Any, frm: int, kind: int, arrived: Callable[[int, Any], None]) -> None:
        """Post a receive; ``arrived(rank, into)`` is called when it has come."""
        self._posted[kind, frm] = receive(self._job, into, frm, kind), into, arrived

    def forget(self, frm: int) -> None:
        """Await nothing more from a rank."""
        for key in [key for key in self._posted if key[1] == frm]:
            del self._posted[key]

    @property
    def works(self) -> list[Any]:
        """The handles of all that is posted."""
        return [work for work, _, _ in self._posted.values()]

    def look(self, seconds: float = LOOK, also: Any = None) -> None:
        """Handle what has come, after waiting so long for some of it, or for ``also``."""
        keys = [*self._posted]
        works = [self._posted[key][0] for key in keys] + ([] if also is None else [also])
        if not works:
            return
        for at in wait_any(works, seconds):
            if at < len(keys) and keys[at] in self._posted:  # else an earlier one had it forgotten
                self._handle(keys[at])

    def _handle(self, key: tuple[int, int]) -> None:
        work, into, arrived = self._posted.pop(key)
        try:
            work.wait()
        except PeerLost:
            if self._job.goes_on_from_memory:
                raise
            if key[1] not in self.gone:
                self.gone.add(key[1])
                self.forget(key[1])
                self._lost(key[1])
            return
        arrived(key[1], into)
