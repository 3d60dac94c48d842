"""Emulated network cards, which all links of a host's ranks share, and the switch between hosts.

A card has a bandwidth each way, the switch one for all hosts together. Each carries one slot after
another in the order in which they were posted, whichever rank sends them; so several senders to one
host take turns (incast), and so do all hosts at a switch that is oversubscribed. Their clocks stand
in the control block; a lock beside them makes a reservation one step for all ranks.
"""

from __future__ import annotations

import math

from workbench.shared_memory.control_block import (
    NIC_IN,
    NIC_OUT,
    NIC_PS,
    NIC_RANKS,
    NIC_SLOWNESS,
    SLICE,
    SLOW_MOTION,
    SWITCH_FREE,
    SWITCH_PS,
    Control,
)
from workbench.shared_memory.link_state import SLOWEST, ps_per_byte


def set_up_cards(
    control: Control, bytes_per_second: float, ranks: int, switch: float = math.inf
) -> None:
    """Give each host's card this bandwidth, each way, and the switch that joins the hosts its own
    (bytes per second); ``ranks``: of a host.
    """
    control.words[NIC_PS] = ps_per_byte(bytes_per_second)
    control.words[SWITCH_PS] = ps_per_byte(switch)
    control.words[NIC_RANKS] = ranks
    control.refresh()


class NetworkCards:
    """The cards of all hosts, as one rank reserves time in them."""

    def __init__(self, control: Control) -> None:
        self._control, self.lock = control, control.nic_lock()

    def reserve(self, source: int, target: int, nbytes: int, start: int) -> tuple[int, int]:
        """Return when ``nbytes`` have left the sender's card, and when they are through the switch
        and the receiver's card, in ns; (0, 0) where none is emulated, and inside a host.

        Where all of them are free, bytes pass them at the same time.
        """
        control, words = self._control, self._control.words
        of_host = words[NIC_RANKS] or 1
        source, target = source // of_host * of_host, target // of_host * of_host
        if not (words[NIC_PS] or words[SWITCH_PS]) or source == target:
            return 0, 0
        self.lock.acquire(True, SLICE)  # in vain where its owner was killed: then we own it
        while self.lock.acquire(False):
            pass  # released twice, by an owner that was slow and not killed: it is one lock again
        try:
            self._note_slow_motion()
            begins, left, through = start, 0, 0
            if duration := self._duration(nbytes, NIC_PS):
                begins = max(start, control.rank_word(source, NIC_OUT))
                left = min(begins + duration, SLOWEST)
                through = min(max(begins, control.rank_word(target, NIC_IN)) + duration, SLOWEST)
                control.set_rank(source, NIC_OUT, left)
                control.set_rank(target, NIC_IN, through)
            if duration := self._duration(nbytes, SWITCH_PS):
                words[SWITCH_FREE] = min(max(begins, words[SWITCH_FREE]) + duration, SLOWEST)
                through = max(through, words[SWITCH_FREE])
        finally:
            self.lock.release()
        return left, through

    def _duration(self, nbytes: int, ps_per_byte: int) -> int:
        """Return how long the bytes take, in ns; ``ps_per_byte``: the number of that word."""
        words = self._control.words
        return nbytes * words[ps_per_byte] * words[NIC_SLOWNESS] // 1_000_000

    def _note_slow_motion(self) -> None:
        """Free cards and switch when slow motion is lowered: what it had put off is no longer."""
        control, words = self._control, self._control.words
        k = words[SLOW_MOTION]
        if k < words[NIC_SLOWNESS]:
            words[SWITCH_FREE] = 0
            for rank in range(control.ranks):
                control.set_rank(rank, NIC_OUT, 0)
                control.set_rank(rank, NIC_IN, 0)
        words[NIC_SLOWNESS] = k
