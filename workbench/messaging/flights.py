"""Waiting for slots that are on their way over emulated links, and for how long in one collective.

A slot is there at once, with the time at which it arrives, and its receiver knows the sender. Where
a quorum goes on without ranks that are late, it names a sender whose slots take too long.
"""

from __future__ import annotations

from collections import Counter

from workbench.messaging.pacing import sleep_until
from workbench.messaging.watchdog import Watch
from workbench.recording.events import now
from workbench.shared_memory.control_block import SLOW_MOTION


class Flights:
    """The slots that one rank has waited for in the collective that is under way."""

    def __init__(self, watch: Watch) -> None:
        self._watch, self._op = watch, -1
        self._waited = Counter[int]()  # ns, by peer
        self._messages = Counter[int]()

    def land(self, op: int, peer: int, flight: tuple[int, int], words: memoryview[int]) -> None:
        """Sleep until a slot from ``peer`` has arrived. ``flight``: its time, and the slow motion
        in it. ``op``: the collective that it is of.
        """
        if op != self._op:
            self._op = op
            self._waited.clear()
            self._messages.clear()
        self._messages[peer] += 1
        begun, start, watch = self._waited[peer], now(), self._watch

        def look() -> None:
            watch.check()
            passed = (now() - start) * 1000 // max(1000, words[SLOW_MOTION])
            self._waited[peer] = begun + passed
            watch.name_late(watch.peers[peer], self._waited[peer], self._messages[peer])

        sleep_until(flight[0], look, words, flight[1])
        look()
