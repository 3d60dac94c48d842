"""Ranks that are to join a run which trains, and those that are to leave it for good.

wanted     the user asks for one more rank
expected   its process has been started
waiting    it is there: the ranks that train are asked to leave their group at their next boundary,
           and form the next one with it
left out   a member that does not answer: it is expected again
leaving    the user has told a member to go
"""

from __future__ import annotations

import threading
from collections.abc import Collection

from workbench.experiment.team import Team


class Membership:
    """Ranks that come and go: asked for by users in any thread, answered by the supervisor."""

    def __init__(self, expected: Collection[int] = ()) -> None:
        """Begin; ``expected``: ranks that are told of their first team once they have come."""
        self._lock = threading.Lock()
        self._reserved, self._expected = set[int](), {*expected}
        self._waiting, self._leaving = set[int](), set[int]()

    @property
    def outside(self) -> set[int]:
        """The ranks whose process has been started and that are in no team yet."""
        return self._expected | self._waiting

    @property
    def waiting(self) -> frozenset[int]:
        """Those of them that are there."""
        return frozenset(self._waiting)

    @property
    def leaving(self) -> frozenset[int]:
        """The members that the user has told to go."""
        return frozenset(self._leaving)

    def want(self, ranks: int, members: Collection[int], only: int | None = None) -> int | None:
        """Reserve a number below ``ranks`` for one more rank, ``only`` this one where it is given;
        None: it is taken, or all are.
        """
        with self._lock:
            numbers = range(ranks) if only is None else (only,)
            in_use = {*members, *self._reserved, *self.outside}
            rank = next((one for one in numbers if one not in in_use), None)
            if rank is not None:
                self._reserved.add(rank)
            return rank

    def leave(self, rank: int, members: Collection[int], least: int) -> bool:
        """Note that a member is to go. Returns False where too few would be left."""
        with self._lock:
            if len({*members} - self._leaving - {rank}) < least:
                return False
            self._leaving.add(rank)
            return True

    def expect(self) -> list[int]:
        """Return the ranks that were wanted since, which are expected from now on."""
        with self._lock:
            ranks, self._reserved = sorted(self._reserved), set()
            self._expected.update(ranks)
            return ranks

    def leave_out(self, rank: int) -> None:
        """Expect a member that is left out to come back."""
        with self._lock:
            self._expected.add(rank)

    def arrive(self, rank: int) -> None:
        """Note that a rank's process is there."""
        with self._lock:
            self._expected.discard(rank)
            self._waiting.add(rank)

    def forget(self, rank: int) -> None:
        """Give up a rank whose process has ended before it joined."""
        with self._lock:
            self._expected.discard(rank)
            self._waiting.discard(rank)

    def begin(self, team: Team) -> None:
        """Note that a team goes on: a rank that was waiting and is in it has joined."""
        with self._lock:
            self._waiting -= {*team.members}
            self._leaving &= {*team.members}
