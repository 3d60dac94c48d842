"""Emulated links: latency, bandwidth, a cut; network cards that several links share; and slow
motion, which stretches every transfer.

Each slot is stamped with the moment at which it arrives. The receiver does not look before, and
its own clock wakes it, which is more exact than being woken; the sender goes on when the slot would
have left the link. Departures of one link follow a virtual clock, so that a late wake-up does not
add up: the mean rate is exact, each transfer of 1 ms and more is accurate to the scheduler's
0.1 ms. Waiting is sleeping, never spinning. Emulated is always labeled so.

All groups of a rank share its links: slots of two groups over one link take turns, in the order in
which they were posted.

Where hosts have network cards, what their ranks send to other hosts takes turns in both hosts'
cards as well (shared_memory/network_cards.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from workbench.shared_memory.control_block import SLICE, SLOW_MOTION, Control
from workbench.shared_memory.network_cards import NetworkCards

now = time.monotonic_ns
NEVER = 1 << 62  # ns: 146 years; a header's words hold no more


def sleep_until(
    moment_ns: int,
    look_around: Callable[[], None],
    words: memoryview[int] | None = None,
    slowness: int = 0,
) -> None:
    """Sleep to an absolute CLOCK_MONOTONIC time, with a check at least every 50 ms.

    ``slowness``: the slow motion (thousandths) in that time; when it is lowered in ``words``, the
    control block's, the sleep ends.
    """
    while (left := moment_ns - now()) > 0:
        if words is not None and words[SLOW_MOTION] < slowness:
            return
        time.sleep(min(left * 1e-9, SLICE))
        if left > SLICE * 1e9:
            look_around()


class Pacer:
    """The outgoing links of one rank, which all of its groups share."""

    def __init__(self, control: Control, rank: int) -> None:
        self.words, self._control, self._rank = control.words, control, rank
        self._cards = NetworkCards(control)
        self._clocks = control.link_clocks

    def is_cut(self, to: int) -> bool:
        return self._control.link(self._rank, to).down

    def wait_while_cut(self, to: int, look_around: Callable[[], object]) -> None:
        while self.is_cut(to):
            time.sleep(SLICE)
            look_around()

    def flight(self, to: int, nbytes: int, start: int) -> tuple[int, int]:
        """Return when the last of ``nbytes`` leaves the link to ``to``, and when it arrives.

        Whether the link is cut is for the caller to ask before: this never waits. ``start``: when
        writing began. Times in ns. In slow motion k both the transfer's own time and the link's
        times count k-fold.
        """
        link = self._control.link(self._rank, to)
        k = self.words[SLOW_MOTION]  # thousandths
        own = (now() - start) * (k - 1000) // 1000
        with self._clocks.lock:
            free_at = self._clocks.free_at
            if k < self._clocks.slowness:  # what slow motion had put off is not put off any more
                free_at.clear()
            self._clocks.slowness = k
            begin = max(start, free_at.get(to, 0)) if link.ps_per_byte else start
            departs = begin + nbytes * link.ps_per_byte * k // 1_000_000
            left, through = self._cards.reserve(self._rank, to, nbytes, begin)
            departs = free_at[to] = max(departs, left)
        departs = max(departs, now() + own if own > 0 else 0)
        arrives = max(departs, through) + link.latency_ns * k // 1000
        return min(departs, NEVER), min(arrives, NEVER)

    def leave(self, to: int, nbytes: int, start: int, look_around: Callable[[], None]) -> int:
        """Wait until the bytes have left; return when they arrive, 0 if at once. See ``flight``."""
        departs, arrives = self.flight(to, nbytes, start)
        sleep_until(departs, look_around, self.words, self._clocks.slowness)
        return arrives if arrives > departs else 0
