"""Words in shared memory through which the driver steers a run and sees its progress.

One word, ``attention``, is all that a rank reads on its hot path: 0 means that nothing is held,
slowed or paced. Everything else is read only when it is not 0.

    words 0..23 of the run | 24 words per rank | 4 per directed link | a gate (semaphore) per rank |
    a lock (semaphore) of the network cards
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Hashable, Sequence

from workbench.shared_memory.control_state import ControlState
from workbench.shared_memory.link_state import PLAIN, LinkClocks, LinkState, ps_per_byte
from workbench.shared_memory.ordering import fence, observe, publish
from workbench.shared_memory.segments import SEMAPHORE_BYTES, Segment, Semaphore

# CHECKPOINT is the iteration before which all ranks write one that was asked for; SAVED and
# NOT_SAVED are 1 + the iteration of the last that is whole, and of the last that failed.
# LOST is 1 + the generation that has lost a rank: a rank of that one or an older leaves it.
# QUORUM is for how many ns a rank may be late, until others name it; 0: forever.
# REGROUP is the iteration before which all leave their group, to form one with or without a rank.
# GRANT counts the grants, HOLDS the pauses; grants up to GRANT_FROM are of before the last one.
# NIC_PS is the time of a byte in each host's network card (ps, 0 for unlimited), NIC_RANKS how many
# ranks share a host; NIC_SLOWNESS the slow motion at which their clocks were last advanced.
# SWITCH_PS is the time of a byte in the switch between hosts, SWITCH_FREE when it is free again.
# SOURCE: 1 while the source of all samples is down, as the experiment asks for it.
(
    ATTENTION,
    HELD,
    SLOW_MOTION,
    GRANT,
    GRANT_UNIT,
    STOP,
    ABORT,
    FROZEN,
    RANKS,
    GRANT_UNTIL,
    GRANT_FROM,
    HOLDS,
    CHECKPOINT,
    SAVED,
    NOT_SAVED,
    LOST,
    REGROUP,
    QUORUM,
    NIC_PS,
    NIC_RANKS,
    NIC_SLOWNESS,
    SOURCE,
    SWITCH_PS,
    SWITCH_FREE,
) = range(24)
# Words of a rank.
# SPARE: the run goes on without this rank.
# READY: it has joined all groups of its strategy; no rank waits for it in start-up any more.
# STRUCK: the first iteration whose faults have not struck it yet; each strikes once, although a run
# that recovers comes to the iteration again.
# ASKED: 1 + the number of the fault that this rank asks the driver for, and waits for.
# EVENTS: a bit for each fault of the experiment whose event has come, by its number.
# WAITS: it waits for the source of its samples.
# LEAVES: it was told to go, and asks for a boundary at which all leave their group.
# LATE: the rank that it waits for in vain; LAG: how much of it (both: late_words.py).
# AT_GATE: since when it stands, 0 if it does not; SEEN: the grants that it knew of when it looked.
# LOADS: it loads samples itself; CORRUPT: 1 + the number (CORRUPTIONS) of what the user wants done
# to the next that it loads.
# AGREED: the agreed iterations that it has heard of, where words travel (agreed_iterations.py).
# NIC_OUT, NIC_IN: of a host's first rank, when its network card has sent and received all (ns).
(
    SLOW,
    ITERATION,
    LOSS,
    STATE,
    THAW_AT,
    AT_GATE,
    FROZEN_BY_USER,
    SPARE,
    READY,
    SEEN,
    STRUCK,
    ASKED,
    EVENTS,
    LOADS,
    CORRUPT,
    WAITS,
    LATE,
    LEAVES,
    NIC_OUT,
    NIC_IN,
    AGREED,
    LAG,
) = range(22)
# Words of a directed link.
LATENCY_NS, PS_PER_BYTE, DOWN = range(3)
RUN_WORDS, RANK_WORDS, LINK_WORDS = 24, 24, 4
UNITS = ("chunk", "step", "iteration")
STARTING, TRAINING, DONE = range(3)
CORRUPTIONS = ("nan", "raises", "shape", "bitflip")  # the kinds of ``wb.Corrupt``
BY_HAND = "by hand"  # the group of a row of one that the user asked for, not the experiment
ABORTED = "the run was aborted by its driver"  # the words of a rank that ends because ABORT is set
OUTDATED = "a rank was lost, and the others form a new group"  # their words, where LOST is set
STOP_ASKED = -1  # what the driver writes to STOP; rank 0 makes it the first iteration not to run
CHECKPOINT_ASKED = -1  # the same of CHECKPOINT
REGROUP_ASKED = -1  # and of REGROUP
SLICE = 0.05  # seconds: the longest that a thread blocks without looking around


class Control:
    """The control block of one run; the driver and every rank map the same."""

    def __init__(self, segment: Segment, ranks: int) -> None:
        self.segment, self.ranks = segment, ranks
        self.words = segment.words
        self._links_at = RUN_WORDS + ranks * RANK_WORDS
        self._gates_at = (self._links_at + ranks * ranks * LINK_WORDS) * 8
        self._refreshing = threading.Lock()
        self._own_gates: dict[int, Gate] = {}
        self.link_clocks = LinkClocks()  # of this process, which is one rank

    @classmethod
    def create(cls, ranks: int) -> Control:
        words = RUN_WORDS + ranks * RANK_WORDS + ranks * ranks * LINK_WORDS
        segment = Segment.create(words * 8 + (ranks + 1) * SEMAPHORE_BYTES, "the control block")
        control = cls(segment, ranks)
        segment.words[RANKS], segment.words[SLOW_MOTION] = ranks, 1000
        for rank in range(ranks):
            control.set_rank(rank, SLOW, 1000)
            segment.semaphore(control._gates_at + rank * SEMAPHORE_BYTES, 0)
        control.nic_lock(1)
        return control

    def unshare(self) -> None:
        """Give the memory and its descriptor back once all ranks have ended; the last words stay,
        for this process alone.
        """
        shared, self.segment = self.segment, self.segment.private_copy()
        self.words = self.segment.words
        self._own_gates.clear()
        shared.close()

    def nic_lock(self, initial: int | None = None) -> Semaphore:
        """Return the lock of the network cards: see network_cards.py."""
        return self.segment.semaphore(self._gates_at + self.ranks * SEMAPHORE_BYTES, initial)

    def rank_word(self, rank: int, word: int) -> int:
        return self.words[RUN_WORDS + rank * RANK_WORDS + word]

    def set_rank(self, rank: int, word: int, value: int) -> None:
        self.words[RUN_WORDS + rank * RANK_WORDS + word] = value

    def loss(self, rank: int) -> float | None:
        """Return a rank's newest loss, for a progress bar (exact losses come with the result); None
        before the first.
        """
        word = self.rank_word(rank, LOSS)
        return float(struct.unpack("d", struct.pack("q", word))[0]) if word else None

    def set_loss(self, rank: int, loss: float) -> None:
        """Set a rank's newest loss. A loss of 0 is written as -0, for 0 stands for none."""
        self.set_rank(rank, LOSS, struct.unpack("q", struct.pack("d", loss or -0.0))[0])

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
            self.words[at + PS_PER_BYTE] = ps_per_byte(bytes_per_second)
        if down is not None:
            self.words[at + DOWN] = int(down)
        self.refresh()

    def fill_links(self, source: int, targets: range, link: LinkState) -> None:
        """Give a rank's links to neighboring ranks the same state; ``refresh`` is the caller's."""
        words = struct.pack("4q", link.latency_ns, link.ps_per_byte, link.down, 0) * len(targets)
        at = self._link_at(source, targets.start)
        self.words[at : at + len(words) // 8] = memoryview(words).cast("q")

    def state(self) -> ControlState:
        """Return all words as they are now, read one by one: two need not be of the same moment."""
        ranks, word = range(self.ranks), self.rank_word
        slow = {rank: word(rank, SLOW) / 1000 for rank in ranks if word(rank, SLOW) != 1000}
        links: dict[tuple[int, int], LinkState] = {}
        if any(self.words[self._links_at : self._gates_at // 8]):
            pairs = ((a, b, self.link(a, b)) for a in ranks for b in ranks)
            links = {(a, b): link for a, b, link in pairs if link != PLAIN}
        return ControlState(
            held=bool(self.words[HELD]),
            standing=tuple(self.standing()),
            slow_motion=self.words[SLOW_MOTION] / 1000,
            slow=slow,
            frozen=tuple(rank for rank in ranks if word(rank, FROZEN_BY_USER)),
            links=links,
            arrived=tuple(rank for rank in ranks if word(rank, STATE) >= TRAINING),
            loads=tuple(rank for rank in ranks if word(rank, LOADS)),
            corrupts=tuple(rank for rank in ranks if word(rank, CORRUPT)),
        )

    def refresh(self) -> None:
        """Compute ``attention`` again after any thread has changed a setting."""
        with self._refreshing:  # else an older answer might be written over a newer one
            words, links = self.words, self.words[self._links_at : self._gates_at // 8]
            shared = words[NIC_PS] or words[SWITCH_PS]
            own = words[HELD] or words[ABORT] or shared or words[SLOW_MOTION] != 1000
            words[ATTENTION] = int(bool(own or any(links)))

    def hold(self) -> None:
        self.words[GRANT_UNIT] = UNITS.index("chunk")
        self.words[GRANT_FROM] = self.words[GRANT]  # an earlier step lets through no more
        if not self.words[HELD]:
            for rank in range(self.ranks):
                self.set_rank(rank, AT_GATE, 0)
            self.words[HOLDS] += 1
        publish(self.words, HELD, 1)
        self.refresh()

    def let_go(self) -> None:
        self.words[HELD] = 0
        self.refresh()
        self.open_gates()

    def grant(self, unit: str) -> None:
        """Let every held rank pass its next boundary of this kind, in one of its groups."""
        self.words[GRANT_UNIT] = UNITS.index(unit)
        self.words[GRANT_UNTIL] = min(self.rank_word(rank, ITERATION) for rank in range(self.ranks))
        publish(self.words, GRANT, self.words[GRANT] + 1)
        self.open_gates()

    def open_gates(self) -> None:
        for rank in range(self.ranks):
            self.gate(rank).release()

    def gate(self, rank: int):  # type: ignore[no-untyped-def]
        return self.segment.semaphore(self._gates_at + rank * SEMAPHORE_BYTES)

    def own_gate(self, rank: int) -> Gate:
        """Return the gate at which this process stands as that rank; all its groups share it."""
        return self._own_gates.setdefault(rank, Gate(self, rank))

    def standing(self) -> list[int]:
        """Return the ranks that stand at a gate and know of the newest grant."""
        if not self.words[HELD]:
            return []
        newest, word = self.words[GRANT], self.rank_word
        seen = [r for r in range(self.ranks) if word(r, SEEN) == newest]
        fence()
        return [r for r in seen if word(r, AT_GATE)]

    def under_way(self, ranks: Sequence[int]) -> bool:
        """Return whether one of these ranks has still to see, or to finish, the last grant."""
        if not self.words[HELD]:
            return False
        if UNITS[self.words[GRANT_UNIT]] == "iteration":
            until = self.words[GRANT_UNTIL]
            return any(self.rank_word(rank, ITERATION) <= until for rank in ranks)
        newest, word = self.words[GRANT], self.rank_word
        return any(word(rank, AT_GATE) and word(rank, SEEN) != newest for rank in ranks)

    def clocks_stand(self) -> bool:
        """Return whether the user holds the ranks or has frozen one: then no time counts as "no
        progress".
        """
        return bool(self.words[HELD] or self.words[FROZEN])


class Gate:
    """The gate at which a rank is held, and how far a single step lets it go.

    All its groups and threads share it: a grant lets the first of them that looks pass. A
    ``key`` names what passes as one with ``unit="step"``: a step of an algorithm (its group, the
    collective, the step), or a message. A ``waiter`` stands: a thread, or an engine of messages.
    """

    def __init__(self, control: Control, rank: int) -> None:
        self.control, self.rank = control, rank
        self.words = control.words
        self._semaphore = control.gate(rank)
        self._passing = threading.Lock()
        self._standing: dict[Hashable, int] = {}  # since when
        self._holds = 0  # the pause in which they stand
        self._granted = self._begun = control.words[GRANT]  # used for chunks; for iterations
        self._key: Hashable = None  # the step that the last grant let through

    def pass_chunk(self, key: Hashable, iteration: int) -> bool:
        """Wait here while the ranks are held, unless a grant lets this chunk pass."""
        held, me = False, threading.get_ident()
        while not self.lets_chunk(me, key, iteration):
            held = True
            self._semaphore.acquire(True, 0.5)
        if held:
            self.leave(me)
            self._wake_another()
        return held

    def lets_chunk(self, waiter: Hashable, key: Hashable, iteration: int) -> bool:
        """Return whether this chunk may pass now. If not, ``waiter`` stands until it asks again,
        or leaves.
        """
        return not self.words[HELD] or self._look(waiter, lambda: self._may_pass(key, iteration))

    def pass_iteration(self, iteration: int) -> None:
        """Wait here before an iteration while the ranks are held."""
        held, me = False, threading.get_ident()
        while self.words[HELD] and not self._look(me, lambda: self._may_begin(iteration)):
            held = True
            self._semaphore.acquire(True, 0.5)
        if held:
            self.leave(me)
            self._wake_another()

    def leave(self, waiter: Hashable) -> None:
        """Withdraw the wish to pass."""
        if waiter in self._standing:
            with self._passing:
                self._standing.pop(waiter, None)
                self._note()

    def _look(self, waiter: Hashable, may: Callable[[], bool]) -> bool:
        with self._passing:
            fence()  # the words of a pause were written before HELD
            if self._holds != self.words[HOLDS]:  # those of an earlier pause have gone on since
                self._holds = self.words[HOLDS]
                self._standing.clear()
            grant = self.words[GRANT]  # before the answer: a grant that comes now is not known
            passes = may()
            if passes:
                self._standing.pop(waiter, None)
            else:
                self._standing.setdefault(waiter, time.monotonic_ns())
            self._note()
            fence()
            self.control.set_rank(self.rank, SEEN, grant)
            return passes

    def _note(self) -> None:
        since = min(self._standing.values(), default=0)
        self.control.set_rank(self.rank, AT_GATE, since)

    def _wake_another(self) -> None:
        """Wake another thread: one grant rings once, and a rank may stand in several threads."""
        if self._standing:
            self._semaphore.release()

    def _may_pass(self, key: Hashable, iteration: int) -> bool:
        if self.words[ABORT]:
            return True
        grant = observe(self.words, GRANT)
        unit = UNITS[self.words[GRANT_UNIT]]
        if unit == "iteration":
            return self._in_granted(grant, iteration)
        if unit == "step" and key == self._key:
            return True
        if grant <= max(self._granted, self.words[GRANT_FROM]):
            return False
        self._granted = grant
        self._key = key
        return True

    def _may_begin(self, iteration: int) -> bool:
        if self.words[ABORT]:
            return True
        grant = observe(self.words, GRANT)
        if UNITS[self.words[GRANT_UNIT]] == "iteration":
            return self._in_granted(grant, iteration)
        if grant <= max(self._begun, self.words[GRANT_FROM]):
            return False
        self._begun = grant
        return True

    def _in_granted(self, grant: int, iteration: int) -> bool:
        """Return whether all ranks have finished the slowest rank's iteration."""
        granted = grant > self.words[GRANT_FROM]
        return granted and iteration <= self.words[GRANT_UNTIL]
