"""Ranks that wait for each other, and whether that can ever end.

A rank reports its current wait, and when it last checked for its message in vain. Two looks at all
ranks prove a deadlock: every rank in the set was in the same wait at both looks, and has checked
again in between. Only other members of the set could end these waits, so none of them can end.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from workbench.common.wait_cycles import circle

ANY = -1


@dataclass(frozen=True)
class Wait:
    """One rank's wait: its identity (``since``), the time of its last check, and its peer."""

    since: int
    looked: int
    peer: int  # or ANY
    doing: str = ""  # send, recv, ...


@dataclass(frozen=True)
class CodePosition:
    """A position in the user's code."""

    line: int = -1  # in the user's own file or cell
    text: str = ""
    function: str = ""
    file: str = ""  # "" for a cell

    @property
    def words(self) -> str:
        if self.line < 0:
            return "outside of your code"
        return f"{f'{self.file} ' if self.file else ''}line {self.line}: {self.text}"


@dataclass(frozen=True)
class Stand:
    """The position of a rank in a deadlock: its operation, the peer it waits for, and its line."""

    rank: int
    peer: int
    doing: str
    place: CodePosition = field(default_factory=CodePosition)

    @property
    def words(self) -> str:
        peer = "any rank" if self.peer == ANY else f"rank {self.peer}"
        verb = {
            "send": f"sends to {peer} and waits until it is received",
            "post": f"sends to {peer}, whose mailbox is full",
            "recv": f"waits for a message from {peer}",
        }.get(self.doing, f"waits for {peer} in {self.doing or 'a message'}")
        return f"rank {self.rank} {verb}"


@dataclass(frozen=True)
class Deadlock:
    """Ranks none of which can go on.

    ``cycle``: each rank waits for the next, the last for the first. It is empty where all wait for
    a
    rank in ``returned``, which sends and receives nothing more.
    """

    stands: tuple[Stand, ...]
    cycle: tuple[int, ...]
    returned: tuple[int, ...] = ()
    seconds: float = 0.0  # from the case's start until it was proven

    @property
    def words(self) -> str:
        if self.cycle:
            path = [*self.cycle, self.cycle[0]]
            return " → ".join(map(str, path)) + " (each waits for the next)"
        finished = ", ".join(map(str, self.returned))
        ranks = "rank" if len(self.returned) == 1 else "ranks"
        return f"every other rank waits for {ranks} {finished}, which returned already"


def stuck_ranks(waits: Mapping[int, Wait], ranks: int, done: Collection[int]) -> set[int]:
    """Return the waiting ranks whose wait no running rank can ever end."""
    free = {rank for rank in range(ranks) if rank not in waits and rank not in done}
    while True:
        released = {
            rank
            for rank, wait in waits.items()
            if rank not in free and (free - {rank} if wait.peer == ANY else wait.peer in free)
        }
        if not released:
            return set(waits) - free
        free |= released


def deadlocked_ranks(
    before: Mapping[int, Wait],
    seen_ns: int,
    after: Mapping[int, Wait],
    ranks: int,
    done: Collection[int],
) -> set[int]:
    """Return the ranks of a deadlock, from two looks at all ranks' waits.

    ``before`` ended at ``seen_ns``; ``done``: ranks that had returned before it. An empty set means
    that there is no deadlock, or that it is not proven yet.
    """
    same = {
        rank: wait
        for rank, wait in after.items()
        if rank in before and before[rank].since == wait.since and wait.looked > seen_ns
    }
    return stuck_ranks(same, ranks, done)


def wait_cycle(waits: Mapping[int, Wait], among: Collection[int]) -> tuple[int, ...]:
    """Return a cycle in which each rank waits for the next; empty if there is none.

    A rank that waits for any peer counts as waiting for the lowest of the others.
    """

    def awaited(rank: int) -> int:
        peer = waits[rank].peer
        return (
            peer if peer != ANY else min((other for other in among if other != rank), default=ANY)
        )

    return circle({rank: awaited(rank) for rank in among})
