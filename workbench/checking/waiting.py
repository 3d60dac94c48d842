"""Who waits for whom, and whether that can ever end.

A rank reports the wait that it is in, and when it last looked and found nothing. Two looks at all
ranks prove a deadlock: everybody in the set was in its wait at the first look, and looked again
after it in vain; each can be let go by others of the set alone, so that nobody can be the first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from workbench.circles import circle

ANY = -1


@dataclass(frozen=True)
class Wait:
    """One rank's wait: which (``since`` tells waits apart), when it last looked, for whom."""

    since: int
    looked: int
    peer: int  # or ANY
    doing: str = ""  # send, recv, ...


@dataclass(frozen=True)
class Place:
    """Where in the user's code a rank stands."""

    line: int = -1  # as the user counts them
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
    """A rank in a deadlock: what it is in, for whom it waits, and its line."""

    rank: int
    peer: int
    doing: str
    place: Place = field(default_factory=Place)

    @property
    def words(self) -> str:
        who = "any rank" if self.peer == ANY else f"rank {self.peer}"
        verb = {
            "send": f"sends to {who} and waits until it is taken",
            "post": f"sends to {who}, whose mailbox is full",
            "recv": f"waits for a message from {who}",
        }.get(self.doing, f"waits for {who} in {self.doing or 'a message'}")
        return f"rank {self.rank} {verb}"


@dataclass(frozen=True)
class Deadlock:
    """Ranks none of which can go on. ``cycle``: each waits for the next, the last for the first;
    empty where all wait for a rank in ``returned``, which sends and takes nothing more."""

    stands: tuple[Stand, ...]
    cycle: tuple[int, ...]
    returned: tuple[int, ...] = ()
    seconds: float = 0.0  # from the case's start until it was proven

    @property
    def words(self) -> str:
        if self.cycle:
            path = [*self.cycle, self.cycle[0]]
            return " → ".join(map(str, path)) + " (each waits for the next)"
        over = ", ".join(map(str, self.returned))
        ranks = "rank" if len(self.returned) == 1 else "ranks"
        return f"all that is left waits for {ranks} {over}, which returned already"


def stuck(waits: Mapping[int, Wait], ranks: int, done: Collection[int]) -> set[int]:
    """Ranks that wait and that nobody who can still do something can ever let go."""
    free = {rank for rank in range(ranks) if rank not in waits and rank not in done}
    while True:
        more = {
            rank
            for rank, wait in waits.items()
            if rank not in free and (free - {rank} if wait.peer == ANY else wait.peer in free)
        }
        if not more:
            return set(waits) - free
        free |= more


def proven(
    before: Mapping[int, Wait], seen_ns: int, after: Mapping[int, Wait], ranks: int,
    done: Collection[int],
) -> set[int]:  # fmt: skip
    """The ranks of a deadlock, from two looks: ``before``, which ended at ``seen_ns``, and
    ``after``. ``done`` had returned before the first. Empty: there is none, or it is not sure yet.
    """
    same = {
        rank: wait
        for rank, wait in after.items()
        if rank in before and before[rank].since == wait.since and wait.looked > seen_ns
    }
    return stuck(same, ranks, done)


def cycle_of(waits: Mapping[int, Wait], among: Collection[int]) -> tuple[int, ...]:
    """A way round: each waits for the next. Empty where every way ends at a rank that returned.
    Who waits for any rank waits for the lowest of the others.
    """

    def awaited(rank: int) -> int:
        peer = waits[rank].peer
        return peer if peer != ANY else min((one for one in among if one != rank), default=ANY)

    return circle({rank: awaited(rank) for rank in among})
