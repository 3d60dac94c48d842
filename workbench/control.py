"""Words in shared memory through which the driver steers a run and sees its progress.

One word, ``attention``, is all that a rank reads on its hot path: 0 means that nobody holds, slows
or paces anything. Everything else is looked at only when it is not 0.

    words 0..15 of the run | 16 words a rank | 4 words a directed link | a gate (semaphore) a rank
"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from workbench.shared import SEMAPHORE_BYTES, Segment
from workbench.units import print_bandwidth, print_duration

ATTENTION, HELD, SLOW_MOTION, GRANT, GRANT_UNIT, STOP, ABORT, FROZEN, RANKS, GRANT_UNTIL = range(10)
# Words of a rank.
# SPARE: the run goes on without this rank.
SLOW, ITERATION, LOSS, STATE, THAW_AT, AT_GATE, FROZEN_BY_USER, SPARE = range(8)
# Words of a directed link.
LATENCY_NS, PS_PER_BYTE, DOWN = range(3)
RUN_WORDS, RANK_WORDS, LINK_WORDS = 16, 16, 4
UNITS = ("chunk", "step", "iteration")
STARTING, TRAINING, DONE = range(3)
SLOWEST = 1 << 62  # ps a byte: the most that a word holds
ABORTED = "the run was aborted by its driver"  # what a rank says that ends because ABORT is set
STOP_ASKED = -1  # what the driver writes to STOP; rank 0 makes it the first iteration not to run
SLICE = 0.05  # seconds: the longest that anybody blocks without looking around


@dataclass(frozen=True, slots=True)
class LinkState:
    """A directed link as it is now. ``ps_per_byte``: picoseconds a byte, 0 for unlimited."""

    latency_ns: int
    ps_per_byte: int
    down: bool

    @property
    def bandwidth(self) -> str:
        """As it was asked for, before it was made whole: "10 Mbit/s", "unlimited"."""
        rate = 1e12 / self.ps_per_byte if self.ps_per_byte else math.inf
        return print_bandwidth(float(f"{rate:.4g}"))

    @property
    def words(self) -> str:
        """What is emulated: "20 ms, 10 Mbit/s", "cut", or "" of a link as it is."""
        latency = [print_duration(self.latency_ns)] if self.latency_ns else []
        bandwidth = [self.bandwidth] if self.ps_per_byte else []
        return "cut" if self.down else ", ".join(latency + bandwidth)


_PLAIN = LinkState(0, 0, False)


@dataclass(frozen=True, slots=True)
class ControlState:
    """What is done to the ranks at one moment, and who has arrived; for whoever shows a run."""

    held: bool  # the user holds the ranks
    standing: tuple[int, ...]  # ranks that stand at a gate
    slow_motion: float  # 1: full speed
    slow: Mapping[int, float]  # rank -> factor of its compute spans, where that is not 1
    frozen: tuple[int, ...]
    links: Mapping[tuple[int, int], LinkState]  # the emulated ones, by (sender, receiver)
    arrived: tuple[int, ...] = ()  # ranks whose process has begun its work
    ended: Mapping[int, str] = field(default_factory=dict)  # rank -> how it ended by itself


class Control:
    """The control block of one run; the driver and every rank map the same."""

    def __init__(self, segment: Segment, ranks: int) -> None:
        self.segment, self.ranks = segment, ranks
        self.words = segment.words
        self._links_at = RUN_WORDS + ranks * RANK_WORDS
        self._gates_at = (self._links_at + ranks * ranks * LINK_WORDS) * 8

    @classmethod
    def create(cls, ranks: int) -> Control:
        words = RUN_WORDS + ranks * RANK_WORDS + ranks * ranks * LINK_WORDS
        segment = Segment.create(words * 8 + (ranks + 1) * SEMAPHORE_BYTES, "the control block")
        control = cls(segment, ranks)
        segment.words[RANKS], segment.words[SLOW_MOTION] = ranks, 1000
        for rank in range(ranks):
            control.set_rank(rank, SLOW, 1000)
            segment.semaphore(control._gates_at + rank * SEMAPHORE_BYTES, 0)
        return control

    def rank_word(self, rank: int, word: int) -> int:
        return self.words[RUN_WORDS + rank * RANK_WORDS + word]

    def set_rank(self, rank: int, word: int, value: int) -> None:
        self.words[RUN_WORDS + rank * RANK_WORDS + word] = value

    def loss(self, rank: int) -> float:
        """A rank's newest loss, for a progress bar (exact losses come with the result)."""
        return float(struct.unpack("d", struct.pack("q", self.rank_word(rank, LOSS)))[0])

    def set_loss(self, rank: int, loss: float) -> None:
        self.set_rank(rank, LOSS, struct.unpack("q", struct.pack("d", loss))[0])

    def link(self, source: int, target: int) -> LinkState:
        at, words = self._link_at(source, target), self.words
        return LinkState(words[at + LATENCY_NS], words[at + PS_PER_BYTE], bool(words[at + DOWN]))

    def _link_at(self, source: int, target: int) -> int:
        return self._links_at + (source * self.ranks + target) * LINK_WORDS

    # -- the driver's side --

    def set_link(
        self,
        source: int,
        target: int,
        *,
        latency_ns: int | None = None,
        bytes_per_second: float | None = None,
        down: bool | None = None,
    ) -> None:
        at = self._link_at(source, target)
        if latency_ns is not None:
            self.words[at + LATENCY_NS] = latency_ns
        if bytes_per_second is not None:
            self.words[at + PS_PER_BYTE] = round(min(1e12 / bytes_per_second, SLOWEST))
        if down is not None:
            self.words[at + DOWN] = int(down)
        self.refresh()

    def state(self) -> ControlState:
        """All of it as it is now, read word by word: two words need not be of the same moment."""
        ranks, word = range(self.ranks), self.rank_word
        slow = {rank: word(rank, SLOW) / 1000 for rank in ranks if word(rank, SLOW) != 1000}
        links: dict[tuple[int, int], LinkState] = {}
        if any(self.words[self._links_at : self._gates_at // 8]):
            pairs = ((a, b, self.link(a, b)) for a in ranks for b in ranks)
            links = {(a, b): link for a, b, link in pairs if link != _PLAIN}
        return ControlState(
            held=bool(self.words[HELD]),
            standing=tuple(rank for rank in ranks if word(rank, AT_GATE)),
            slow_motion=self.words[SLOW_MOTION] / 1000,
            slow=slow,
            frozen=tuple(rank for rank in ranks if word(rank, FROZEN_BY_USER)),
            links=links,
            arrived=tuple(rank for rank in ranks if word(rank, STATE) >= TRAINING),
        )

    def refresh(self) -> None:
        """Work out ``attention`` anew after a setting has changed."""
        links = self.words[self._links_at : self._gates_at // 8]
        asked = (
            self.words[HELD] or self.words[ABORT] or self.words[SLOW_MOTION] != 1000 or any(links)
        )
        self.words[ATTENTION] = int(bool(asked))

    def hold(self) -> None:
        self.words[GRANT_UNIT] = UNITS.index(
            "chunk"
        )  # what an earlier step let through counts no more
        self.words[HELD] = 1
        self.refresh()

    def let_go(self) -> None:
        self.words[HELD] = 0
        self.refresh()
        self.open_gates()

    def grant(self, unit: str) -> None:
        """While held: every rank may pass its next boundary of this kind."""
        self.words[GRANT_UNIT] = UNITS.index(unit)
        self.words[GRANT_UNTIL] = min(self.rank_word(rank, ITERATION) for rank in range(self.ranks))
        self.words[GRANT] += 1
        self.open_gates()

    def open_gates(self) -> None:
        for rank in range(self.ranks):
            self.gate(rank).release()

    def gate(self, rank: int):  # type: ignore[no-untyped-def]
        return self.segment.semaphore(self._gates_at + rank * SEMAPHORE_BYTES)

    def clocks_stand(self) -> bool:
        """Does the user hold the ranks or has one frozen? Then no time counts as "no progress"."""
        return bool(self.words[HELD] or self.words[FROZEN])


class Gate:
    """A rank's view of the control block: where it is held, how far a single step lets it go."""

    def __init__(self, control: Control, rank: int) -> None:
        self.control, self.rank = control, rank
        self.words = control.words
        self._semaphore = control.gate(rank)
        self._granted = control.words[GRANT]
        self._key: tuple[int, int, int] | None = None  # the step that the last grant let through

    def pass_chunk(self, op: int, step: int, iteration: int) -> bool:
        """Stand here while the ranks are held, unless a grant lets this chunk pass.

        True: it was held.
        """
        held = False
        while self.words[HELD] and not self._may_pass((op, step, iteration)):
            held = True
            self._stand()
        return held

    def pass_iteration(self, iteration: int) -> None:
        while self.words[HELD] and not self._may_pass((-1, -1, iteration)):
            self._stand()

    def _stand(self) -> None:
        self.control.set_rank(self.rank, AT_GATE, time.monotonic_ns())
        self._semaphore.acquire(True, 0.5)
        self.control.set_rank(self.rank, AT_GATE, 0)

    def _may_pass(self, here: tuple[int, int, int]) -> bool:
        if self.words[ABORT]:
            return True
        unit = UNITS[self.words[GRANT_UNIT]]
        if unit == "iteration":  # the slowest rank's iteration is finished by all
            return bool(self.words[GRANT]) and here[2] <= self.words[GRANT_UNTIL]
        if unit == "step" and here == self._key:
            return True
        if self.words[GRANT] == self._granted:
            return False
        self._granted = self.words[GRANT]
        self._key = here
        return True
