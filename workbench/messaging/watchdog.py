"""Every wait has a deadline and looks around: is the group alive, and the peer, do we agree?"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Sequence

from workbench.common.errors import (
    CollectiveError,
    GroupClosed,
    PeerLost,
    RunTimeout,
    WorkbenchError,
    from_fields,
    timed_out,
)
from workbench.messaging.fingerprint import collective_of, describe, nbytes_of, root_of
from workbench.recording.events import CODE, now
from workbench.recording.lane import Lane
from workbench.recording.run_queue import Times, busiest, thread_times
from workbench.shared_memory.control_block import (
    ABORT,
    ABORTED,
    HELD,
    LAG,
    LATE,
    LOST,
    OUTDATED,
    QUORUM,
    SLICE,
    Control,
)
from workbench.shared_memory.late_words import Lag, lag_word, late_word
from workbench.shared_memory.segments import Semaphore
from workbench.transports.peer_page import Peer, PeerPage

SECOND = 1_000_000_000
CHAIN = SECOND // 2  # ns more for a rank that waits for a peer that runs
WORKS = 0.3  # of the time: a rank that had a core for so long, or was ready for one, does not stall
_DETECT = CODE["detect"]
_STATES = {
    "T": "stopped (SIGSTOP)",
    "t": "stopped by a debugger",
    "Z": "ended",
    "X": "ended",
    "R": "running",
    "S": "asleep",
    "D": "in the kernel",
}


class Watch:
    """The state that a rank's waits of one group observe.

    ``closing`` ends every wait at its next look.
    """

    def __init__(
        self,
        me: int,
        peers: Sequence[Peer],
        page: PeerPage,
        timeout_ns: int,
        control: Control | None,
        generation: int = 0,
    ) -> None:
        self.me, self.peers, self.page, self.timeout_ns, self.control = (
            me,
            peers,
            page,
            timeout_ns,
            control,
        )
        self.generation = generation
        self.look_s = SLICE  # between two looks
        self.limit_ns = timeout_ns  # of the collective that is under way
        self.closing = False
        self.error: WorkbenchError | None = None
        # Group ranks whose end is not a failure of the group: messages to them and from them end,
        # what all do together still fails. ``over``: those that have ended. ``lost_ranks``: world
        # ranks of those whose end is on record.
        self.spare: set[int] = set()
        self.over: dict[int, PeerLost] = {}
        self.lost_ranks: set[int] = set()
        self.tell_far: Callable[[WorkbenchError], None] | None = None  # alarms to other hosts
        self.line = ""  # of an attached job's program: where the call is made
        self.newest: weakref.ref[PeerWait] | None = None  # the latest wait, while it is under way

    def wait(self, semaphore: Semaphore, peer: int, lane: Lane, doing: str) -> None:
        """Block until ``semaphore`` is given by ``peer``, a group rank, -1 for any.

        Raises PeerLost, CollectiveError, RunTimeout, or what a peer found first.
        """
        peer_wait = PeerWait(self, peer, lane, doing)
        while not semaphore.acquire(True, self.slice):
            peer_wait.look()

    @property
    def slice(self) -> float:
        """Seconds to block before looking around; long while the user holds the ranks."""
        held = self.control is not None and self.control.words[HELD]
        return 0.5 if held else self.look_s

    def check(self, op: int | None = None) -> None:
        """Raise if the group has already failed.

        With ``op``: only if it failed in that collective of the group or an earlier one. A peer
        that gave up in a later one has done its part of it.
        """
        if self.error is not None:
            raise self.error
        if error := self.heard(op):
            raise error
        if self.control is not None and self.control.words[ABORT]:
            raise self.fail(WorkbenchError(ABORTED, how="aborted"), tell=False)
        if self.control is not None and self.control.words[LOST] > self.generation:
            raise self.fail(WorkbenchError(OUTDATED, how="aborted"), tell=False)
        if self.closing:
            raise GroupClosed(
                "the process group is being destroyed while this operation still waits"
            )

    def heard(self, op: int | None = None) -> WorkbenchError | None:
        """Return what a peer that failed has left on our page, by the end of collective ``op``."""
        alarm = self.page.alarm()
        if alarm is None or (op is not None and self._fails_later(op)):
            return None
        return self.fail(alarm, tell=False)

    def _fails_later(self, op: int) -> bool:
        """Return whether collective ``op`` can still be completed although the group has failed."""
        near = all(peer.page is not None for peer in self.peers)  # others say no number
        return near and self.page.given_up(len(self.peers)) > op

    def fail(self, error: WorkbenchError, *, tell: bool = True) -> WorkbenchError:
        """Remember the group's first failure and ring every peer's alarm. Returns what to raise."""
        if self.error is None:
            self.error = error
            op, _ = self.page.doing
            for peer in self.peers:
                if peer.page is not None:
                    peer.page.give_up(self.me, len(self.peers), op)
            if tell:
                me = error.found_by = self.peers[self.me].rank
                alarm = from_fields(error.as_fields(), f"{error} (found by rank {me})")
                for peer in self.peers:
                    if peer.page is not None and peer is not self.peers[self.me]:
                        peer.page.raise_alarm(alarm)
                if self.tell_far is not None:
                    self.tell_far(alarm)
        return self.error

    def lost(self, peer: int, doing: str) -> WorkbenchError:
        """Return the error for a peer that ended, or left the group, while it was awaited."""
        if error := self.heard():
            return error  # it said why
        return self.fail(self.ended(peer, doing))

    def ended(self, peer: int, doing: str) -> PeerLost:
        """Return the error for a peer that has ended, or has left, without raising the alarm."""
        other, me = self.peers[peer], self.peers[self.me].rank
        words = "left the group" if other.left else "ended"
        return PeerLost(
            f"rank {other.rank} (process {other.pid}) {words} while rank {me} was in {doing}",
            other.rank,
            peer=me,
            how="left" if other.left else "ended",
            doing=doing,
            found_by=me,
        )

    def name_late(self, peer: Peer, waited_ns: float, messages: int = 1) -> None:
        """Name a peer that has been awaited for too long in this collective, where a quorum goes on
        without it. ``messages``: those of its that were waited for.
        """
        if (control := self.control) is None or not (bound := control.words[QUORUM]):
            return
        if waited_ns > bound:
            me, nbytes = self.peers[self.me].rank, 2 * nbytes_of(self.page.doing[1])
            control.set_rank(me, LAG, lag_word(Lag(peer.rank, messages, nbytes)))
            control.set_rank(me, LATE, late_word(peer.rank, self.generation))

    def compare(self, among: Iterable[int]) -> None:
        """Raise CollectiveError if one of these peers passes something else to our collective."""
        op, mine = self.page.doing
        for peer in among:
            page = self.peers[peer].page
            if op < 0 or peer == self.me or page is None:
                continue
            theirs = page.signature(op)
            if theirs is not None and theirs != mine:
                us, them = self.peers[self.me], self.peers[peer]
                sides = (us.rank, mine, self.page), (them.rank, theirs, page)
                raise self.fail(disagreement(op, *sides))


class PeerWait:
    """One wait: how long it has lasted, not counting the time in which the user holds the ranks."""

    def __init__(
        self,
        watch: Watch,
        peer: int,
        lane: Lane,
        doing: str,
        limit_ns: int | None = None,
        since: int = 0,
    ) -> None:
        """Start to wait for ``peer``; ``limit_ns``: silence after which it is an error.

        None: the collective's limit. ``since``: when the wait began, if not now.
        """
        self.watch, self.peer, self.lane, self.doing = watch, peer, lane, doing
        self.limit_ns = watch.limit_ns if limit_ns is None else limit_ns
        self.since = self._last = since or now()
        self._waited = 0
        self._has_reported, self._farewells = False, set[int]()
        # Once it lasts: since when it is known what peers (and this rank) do, and their times then.
        self._known_from, self._times = 0, dict[int, Times]()
        watch.newest = weakref.ref(self)

    @property
    def looked(self) -> int:
        """The time of the last look that found nothing."""
        return self._last

    def look(self, awaited: Collection[int] = ()) -> list[int]:
        """Check the peers of messages that are waited for, ``awaited``; none in a collective.

        Returns those of them that are spare and that will send nothing more.
        """
        watch, moment = self.watch, now()
        self.lane.recorder.lives(moment)
        watch.check(None if awaited else watch.page.doing[0])
        standing = watch.control is not None and watch.control.clocks_stand()
        if not standing:
            # A rank that was itself stopped must not count that time as its peers' silence.
            self._waited += min(moment - self._last, 4 * int(SLICE * 1e9))
        self._last = moment
        if awaited:
            self.peer = next(iter(awaited)) if len(awaited) == 1 else -1
        for_all = -1 in awaited or (self.peer < 0 and not awaited)
        among = range(len(watch.peers)) if for_all else awaited or (self.peer,)
        over = [peer for peer in among if peer != watch.me and self._is_over(peer, bool(awaited))]
        for peer in over:
            if not awaited or peer not in watch.spare:
                raise watch.lost(peer, self.doing)
        among = [peer for peer in among if peer not in over]
        watch.compare(among)
        if not self._known_from and self._waited > min(SECOND, self.limit_ns) // 2:
            self._known_from, self._times = moment, self._read_times()
        if self._waited > SECOND and not self._has_reported:
            self._has_reported = True
            self._tell(among)
        if not awaited:
            self._name_late()
        awaits = [peer for peer in among if peer != watch.me]
        ends = any(peer in self._farewells or watch.peers[peer].gone for peer in awaits)
        if not ends and self._waited > self.limit_ns and self._at_its_end(awaits):
            raise watch.fail(self._too_late(awaits))
        return over  # one that ends is named by the next look: what it sent last may be there

    def _name_late(self) -> None:
        """Name a member that has not come to this collective, where a quorum goes on without."""
        watch = self.watch
        if watch.control is None or not watch.control.words[QUORUM]:
            return
        op, me = watch.page.doing[0], watch.peers[watch.me].rank
        for peer in watch.peers:
            if peer.rank != me and peer.page is not None and peer.page.signature(op) is None:
                return watch.name_late(peer, self._waited)

    def _too_late(self, awaited: Sequence[int]) -> RunTimeout:
        """Return the error for peers that have been awaited for too long."""
        watch, me = self.watch, self.watch.peers[self.watch.me].rank
        stopped = [peer for peer in awaited if watch.peers[peer].state() in "Tt"]
        named = stopped or (awaited if len(awaited) == 1 else [])
        names = ", ".join(map(self._state, awaited))
        return RunTimeout(
            f"no progress for {self._waited / 1e9:.1f} s: rank {me} is in {self.doing} and waits "
            f"for {names}. {timed_out(self.limit_ns / 1e9)}",
            watch.peers[named[0]].rank if named else -1,
            peer=me,
            how="stopped" if stopped else "silent",
            doing=self.doing,
        )

    def _at_its_end(self, awaited: Sequence[int]) -> bool:
        """Return whether this rank is the one to report. A live peer may itself wait for the rank
        that has stopped: it should report first. Time in which a member was ready to run and had no
        core does not count as silence.
        """
        watch = self.watch
        after = self._read_times()
        passed = self._last - self._known_from
        held_up = max((busiest(t, after[p], passed)[1] for p, t in self._times.items()), default=0)
        if self._waited - held_up <= self.limit_ns:
            return False
        stands = any(watch.peers[peer].state() in "Tt" for peer in awaited)
        return stands or self._waited - held_up > self.limit_ns + CHAIN

    def _is_over(self, peer: int, message: bool) -> bool:
        """Return whether nothing more will come from a peer."""
        other = self.watch.peers[peer]
        # A peer that has left in good order has done its part of what all do together, but sends
        # no more messages. One may have come with the farewell, or just before the end: look once
        # more. Messages are drained by the call that awaits them.
        awaited = peer == self.peer or (message and peer in self.watch.spare)
        if other.gone and (message or not awaited):
            return True
        if awaited and (other.left or other.gone):
            known_before = peer in self._farewells
            self._farewells.add(peer)
            return known_before
        return False

    def _state(self, peer: int) -> str:
        """Describe a peer from what the kernel knows: a frozen peer can be described, too."""
        other = self.watch.peers[peer]
        return f"rank {other.rank}, which is {_STATES.get(other.state(), 'on another host')}"

    def _tell(self, among: Sequence[int]) -> None:
        moment = now()
        for peer in among:
            if peer != self.watch.me:
                number = self.lane.recorder.name(self._why(peer, moment))
                rank = self.watch.peers[peer].rank
                self.lane.write(
                    _DETECT,
                    moment,
                    moment,
                    rank,
                    phase=self.lane.recorder.name(self.watch.line),
                    name=number,
                    value=self._waited / 1e9,
                )

    def _why(self, peer: int, moment: int) -> str:
        """Return the name of the row about a peer: one that computes, or would if it had a core, is
        late, and so is one that waits where another of the group is late; else it stalls.
        """
        if self.watch.peers[peer].state() in "Tt":
            return "stalled: stopped"
        passed, after = moment - self._known_from, self._read_times()
        late = {}
        for other, times in self._times.items():
            on, ready = busiest(times, after[other], passed)
            if other != self.watch.me and on + ready > WORKS * passed:
                late[other] = "late: waits for a core" if ready > on else "late: computes"
        return late.get(peer, "late: waits itself" if late else "stalled")

    def _read_times(self) -> dict[int, Times]:
        """Read the CPU times of each member of the group on this host."""
        peers = enumerate(self.watch.peers)
        return {at: thread_times(peer.pid) for at, peer in peers if peer.page is not None}


Calls = tuple[int, int, PeerPage | None]  # a rank, its fingerprint, its page if on this host


def disagreement(op: int, mine: Calls, theirs: Calls) -> CollectiveError:
    """Return the error for two ranks that pass different arguments to the same collective."""
    first, second = sorted((mine, theirs), key=lambda side: side[0])
    return CollectiveError(
        f"ranks disagree about collective {op + 1}: {_calls(op, first)}, {_calls(op, second)}. "
        "Every rank of a group must make the same calls "
        f"in the same order, with the same shape and dtype.{_after_reduce(op, first, second)}",
        first[0],
        peer=second[0],
        doing=f"collective {op + 1}",
    )


def _calls(op: int, side: Calls) -> str:
    """Return what a rank calls, and at which line where that is known."""
    rank, signature, page = side
    line = "" if page is None else page.line(op)
    return f"rank {rank} calls {describe(signature)}{f' at {line}' if line else ''}"


def _after_reduce(op: int, *sides: Calls) -> str:
    """Return a hint for ranks that have decided by what a reduce has left them; "" for others."""
    for _, _, page in sides:
        before = None if page is None or not op else page.signature(op - 1)
        if before is not None and collective_of(before) == "reduce":
            return (
                f" The call before was a reduce: after it only rank {root_of(before)} has the "
                "result. If all ranks decide by it what to do next, they need an all_reduce."
            )
    return ""
