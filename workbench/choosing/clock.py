"""The time that the moves of a walk take: every rank's clock, advanced slot by slot.

What a move costs is the machine's (``Machine``), how long bytes are on their way is the link's
(``Links``), as messaging/pacing.py has it: a slot leaves its link no sooner than those before it,
and arrives a latency later; a host's network card carries one slot after another; a rank waits for
what has not arrived, and for a free slot of a full mailbox.

Beside the seconds each clock carries what they are made of, along the longest path through the
ranks. So a fit knows what stands before each of the machine's numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from workbench.choosing.costs import PLAIN, Links, Machine
from workbench.common.errors import CollectiveError
from workbench.theory.walk import RECV, RELAY, SEND, Move
from workbench.transports.mailbox import SLOTS


class Time(NamedTuple):
    """A moment, and what it is made of: the path that led to it."""

    seconds: float
    waits: float = 0  # times alpha_s
    ends: float = 0  # times overhead_s
    sent: float = 0.0  # bytes, times beta_s_per_byte
    added: float = 0.0  # bytes, times gamma_s_per_byte


ZERO = Time(0.0)


def replay(
    moves: Sequence[Sequence[Move]], machine: Machine, links: Links = PLAIN, cores: int = 1 << 20
) -> Time:
    """Return when the last rank is done, with at most ``cores`` ranks busy at a time.

    Raises CollectiveError where ranks wait for each other.
    """
    ranks = _Ranks(moves, machine, links, cores)
    while (first := ranks.first()) >= 0:
        ranks.move(first)
    if not ranks.done():
        raise CollectiveError("the ranks wait for each other: " + ranks.words())
    return max(ranks.clock, default=ZERO)


class _Ranks:
    """Clocks of all ranks, and the mailboxes between them."""

    def __init__(
        self, moves: Sequence[Sequence[Move]], machine: Machine, links: Links, cores: int
    ) -> None:
        n = len(moves)
        self.moves, self.machine, self.links = moves, machine, links
        self.clock = [ZERO] * n
        self._cores = [ZERO] * cores if cores < n else []  # when each is free again
        self._at = [0] * n
        self._posted: dict[tuple[int, int], list[Time]] = {}  # when each slot may be taken
        self._freed: dict[tuple[int, int], list[Time]] = {}
        self._paced = links.paced
        self._card_free: dict[tuple[int, bool], float] = {}  # by card, and whether it receives
        self._switch_free = 0.0
        self._ready: list[Time | None] = [self._when(rank) for rank in range(n)]

    def first(self) -> int:
        """Return the rank that can move first; -1 if none can."""
        first, soonest = -1, math.inf
        for rank, ready in enumerate(self._ready):
            if ready is not None and ready[0] < soonest:
                first, soonest = rank, ready[0]
        return first

    def done(self) -> bool:
        return all(at == len(moves) for at, moves in zip(self._at, self.moves, strict=True))

    def words(self) -> str:
        """Return the positions of the ranks that cannot go on."""
        lines = []
        for rank, moves in enumerate(self.moves):
            if self._at[rank] < len(moves):
                move = moves[self._at[rank]]
                lines.append(f"rank {rank} for rank {move.to if move.kind == SEND else move.frm}")
        return ", ".join(lines)

    def _when(self, rank: int) -> Time | None:
        """Return when a rank's next move can begin if a core is free; None: unknown, or no move."""
        if self._at[rank] == len(self.moves[rank]):
            return None
        kind, frm, to = self.moves[rank][self._at[rank]][:3]
        now = self.clock[rank]
        if kind in (RECV, RELAY):  # something has to have come
            posted, freed = self._posted.get((frm, rank), ()), self._freed.get((frm, rank), ())
            if len(freed) == len(posted):
                return None
            now = max(now, posted[len(freed)])
        if kind in (SEND, RELAY):  # a slot has to be free
            sent, free_times = self._posted.get((rank, to), ()), self._freed.get((rank, to), ())
            if len(sent) - len(free_times) >= SLOTS:
                return None
            if len(sent) >= SLOTS:
                now = max(now, free_times[len(sent) - SLOTS])
        return now

    def move(self, rank: int) -> None:
        """Let a rank make its next move, as soon as it can."""
        kind, frm, to, nbytes, adds, copies = self.moves[rank][self._at[rank]]
        cost, now = self.machine, self._ready[rank]
        assert now is not None
        core = min(range(len(self._cores)), key=self._cores.__getitem__) if self._cores else -1
        if core >= 0:
            now = max(now, self._cores[core])
        start = now.seconds
        # A byte is copied twice on its way, once at each end; a sum goes on in one pass.
        sends, receives = kind in (SEND, RELAY), kind in (RECV, RELAY)
        half = nbytes * (sends + receives - (kind == RELAY and not copies)) / 2
        ends, summed = sends + receives, nbytes if adds else 0
        seconds, waits, ends_before, sent, added = now
        seconds += (
            ends * cost.overhead_s + half * cost.beta_s_per_byte + summed * cost.gamma_s_per_byte
        )
        now = Time(seconds, waits, ends_before + ends, sent + half, added + summed)
        if core >= 0:
            self._cores[core] = now
        if receives:
            self._freed.setdefault((frm, rank), []).append(now)
        if sends:
            now = self._leave(rank, to, nbytes, start, now)
        self.clock[rank] = now
        self._at[rank] += 1
        for one in {rank, frm, to} - {-1}:
            self._ready[one] = self._when(one)

    def _leave(self, rank: int, to: int, nbytes: int, start: float, now: Time) -> Time:
        """Post a slot; return when its sender goes on. See ``Pacer.flight``."""
        seconds, waits, *rest = now
        arrival = Time(seconds + self.machine.alpha_s, waits + 1, *rest)
        if self._paced:
            latency, rate = self.links.of(rank, to)
            departs = start + nbytes * rate  # its sender sleeps till then, so links are free
            left, through = self._through_cards(rank, to, nbytes, start)
            departs, through = max(departs, left), max(departs, through)
            if latency or through > start:
                due = through + self.machine.wake_s + latency
                if due > arrival.seconds:
                    arrival = Time(due, waits, *rest)
                if departs > max(start, seconds):
                    now = Time(departs + self.machine.wake_s, waits, *rest)
        self._posted.setdefault((rank, to), []).append(arrival)
        return now

    def _through_cards(self, rank: int, to: int, nbytes: int, start: float) -> tuple[float, float]:
        """Reserve time in both hosts' cards and the switch: see ``NetworkCards.reserve``."""
        cards, free = self.links.nics, self._card_free
        if not cards or cards[rank] == cards[to]:
            return start, start
        out, into = (cards[rank], False), (cards[to], True)
        begins, left, through = start, start, start
        if duration := nbytes * self.links.nic_s_per_byte:
            begins = max(start, free.get(out, 0.0))
            left = free[out] = begins + duration
            through = free[into] = max(begins, free.get(into, 0.0)) + duration
        if duration := nbytes * self.links.switch_s_per_byte:
            self._switch_free = max(begins, self._switch_free) + duration
            through = max(through, self._switch_free)
        return left, through
