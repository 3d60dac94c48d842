"""The other end of an actor's pulls: the rank that holds parameters answers them as it works.

An actor asks for a version at least (0: whatever there is); it is answered once there is one. At
the end of the run each is answered with a stop, so that all of them leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch

from workbench.training.reinforcement import messages
from workbench.training.reinforcement.messages import END, GO, GRANT, PARAMETERS, PULL, STOP, Inbox

if TYPE_CHECKING:
    from workbench.rank.job import Job


class Pulls:
    """The actors that pull from this rank.

    ``version``: returns the newest one; ``newest``: also its parameters, which are not written
    while they are sent.
    """

    def __init__(
        self,
        job: Job,
        actors: Iterable[int],
        version: Callable[[], int],
        newest: Callable[[], tuple[int, torch.Tensor]],
    ) -> None:
        self._job, self._version, self._newest = job, version, newest
        self.inbox = Inbox(job, self._lost)
        self._waiting: dict[int, int] = {}  # actor -> the version that it needs
        self.pulled = dict.fromkeys(actors, 0)  # live actors -> the version that they have
        self._sending: list[tuple[Any, torch.Tensor]] = []
        self._over = False

    def begin(self) -> None:
        """Post the receives of all actors' requests."""
        for actor in self.pulled:
            self.inbox.expect(messages.numbers(1), actor, PULL, self._note_request)

    def look(self, seconds: float = messages.LOOK, also: Any = None) -> None:
        """Wait for a request, or for the message ``also``; answer what can be answered."""
        self.inbox.look(seconds, also)
        self.answer()

    def answer(self) -> None:
        """Answer all whose version is there; with a stop once the run is over."""
        for actor, needed in [*self._waiting.items()]:
            if self._over or self._version() >= needed:
                del self._waiting[actor]
                self._grant(actor, *self._newest())

    def end(self) -> None:
        """Answer with a stop from now on."""
        self._over = True
        self.answer()

    def lag(self) -> int:
        """Return by how many versions the actor whose parameters are oldest is behind."""
        version = self._version()
        return max((version - pulled for pulled in self.pulled.values()), default=0)

    def is_leaving(self, values_N: torch.Tensor) -> bool:
        """Return whether parameters are still being sent."""
        self._sending = [one for one in self._sending if not one[0].is_completed()]
        return any(sent is values_N for _, sent in self._sending)

    def _grant(self, actor: int, version: int, values_N: torch.Tensor) -> None:
        word = STOP if self._over else GO
        grant = torch.tensor([version, word])
        self._sending = [one for one in self._sending if not one[0].is_completed()]
        self._sending.append((messages.send(self._job, grant, actor, GRANT), grant))
        if word == STOP:
            self.pulled.pop(actor, None)
            return
        self._sending.append((messages.send(self._job, values_N, actor, PARAMETERS), values_N))
        self.pulled[actor] = version
        self.inbox.expect(messages.numbers(1), actor, PULL, self._note_request)

    def _note_request(self, actor: int, message: torch.Tensor) -> None:
        if (needed := int(message)) == END:
            self.pulled.pop(actor, None)
        else:
            self._waiting[actor] = needed

    def _lost(self, actor: int) -> None:
        self.pulled.pop(actor, None)
        self._waiting.pop(actor, None)

    def finish(self) -> None:
        """Wait until all that was sent has left."""
        for work, _ in self._sending:
            if not work.is_completed():
                messages.quietly(work)
