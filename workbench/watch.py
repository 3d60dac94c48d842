"""Every wait has a deadline and looks around: is the group alive, and the peer, do we agree?"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Sequence

from workbench.control import ABORT, ABORTED, HELD, SLICE, Control
from workbench.errors import (
    CollectiveError,
    GroupClosed,
    PeerLost,
    RunTimeout,
    WorkbenchError,
)
from workbench.events import CODE, Lane, now
from workbench.shared import Semaphore
from workbench.signature import describe
from workbench.transports.board import Board, Peer

SECOND = 1_000_000_000
CHAIN = SECOND // 2  # ns more for who waits for a peer that runs
_DETECT = CODE["detect"]
_ERRORS: dict[str, type[WorkbenchError]] = {
    "CollectiveError": CollectiveError,
    "RunTimeout": RunTimeout,
    "GroupClosed": GroupClosed,
}
_STATES = {
    "T": "stopped (SIGSTOP)", "t": "stopped by a debugger", "Z": "ended", "X": "ended",
    "R": "running", "S": "asleep", "D": "in the kernel",
}  # fmt: skip


class Watch:
    """What a rank's waits of one group look at. ``closing`` ends every wait at its next look."""

    def __init__(
        self, me: int, peers: Sequence[Peer], board: Board, timeout_ns: int, control: Control | None
    ) -> None:
        self.me, self.peers, self.board, self.timeout_ns, self.control = (
            me,
            peers,
            board,
            timeout_ns,
            control,
        )
        self.limit_ns = timeout_ns  # of the collective that is under way
        self.closing = False
        self.error: WorkbenchError | None = None
        # Group ranks whose end is no failure of the group: messages to them and from them end, what
        # all do together still fails. ``over``: those that have ended. ``found``: world ranks of
        # those whose end is on record.
        self.spare: set[int] = set()
        self.over: dict[int, PeerLost] = {}
        self.found: set[int] = set()
        self.tell_far: Callable[[str, int, str], None] | None = None  # alarms to other hosts
        self.newest: weakref.ref[Patience] | None = None  # the latest wait, while it is under way

    def wait(self, semaphore: Semaphore, peer: int, lane: Lane, doing: str) -> None:
        """Block until ``semaphore`` is given by ``peer``, a group rank, -1 for any.

        Raises PeerLost, CollectiveError, RunTimeout, or what a peer found first.
        """
        patience = Patience(self, peer, lane, doing)
        while not semaphore.acquire(True, self.slice):
            patience.look()

    @property
    def slice(self) -> float:
        """Seconds to block before looking around; long while the user holds the ranks."""
        return 0.5 if self.control is not None and self.control.words[HELD] else SLICE

    def check(self, op: int | None = None) -> None:
        """Raise if the group has already failed; if ``op`` says so, only if in that collective of
        the group or in an earlier one: whoever gave up in a later one has done its part of it.
        """
        if self.error is not None:
            raise self.error
        if error := self.heard(op):
            raise error
        if self.control is not None and self.control.words[ABORT]:
            raise self.fail(WorkbenchError(ABORTED), tell=False)
        if self.closing:
            raise GroupClosed(
                "the process group is being destroyed while this operation still waits"
            )

    def heard(self, op: int | None = None) -> WorkbenchError | None:
        """What a peer that failed has left on our board, by the end of collective ``op``."""
        alarm = self.board.alarm()
        if alarm is None or (op is not None and self._fails_later(op)):
            return None
        if alarm["kind"] == "PeerLost":
            return self.fail(PeerLost(alarm["text"], alarm["rank"]), tell=False)
        kind = _ERRORS.get(alarm["kind"], WorkbenchError)
        return self.fail(kind(alarm["text"]), tell=False)

    def _fails_later(self, op: int) -> bool:
        """Can collective ``op`` still be done although the group has failed?"""
        near = all(peer.board is not None for peer in self.peers)  # others say no number
        return near and self.board.given_up(len(self.peers)) > op

    def fail(self, error: WorkbenchError, *, tell: bool = True) -> WorkbenchError:
        """Remember the group's first failure and ring every peer's alarm. Returns what to raise."""
        if self.error is None:
            self.error = error
            op, _ = self.board.doing
            for peer in self.peers:
                if peer.board is not None:
                    peer.board.give_up(self.me, len(self.peers), op)
            if tell:
                rank = getattr(error, "rank", -1)
                text = f"{error} (found by rank {self.peers[self.me].rank})"
                for peer in self.peers:
                    if peer.board is not None and peer is not self.peers[self.me]:
                        peer.board.raise_alarm(type(error).__name__, rank, text)
                if self.tell_far is not None:
                    self.tell_far(type(error).__name__, rank, text)
        return self.error

    def lost(self, peer: int, doing: str) -> WorkbenchError:
        """The error for a peer that has ended, or has left the group while it was awaited."""
        if error := self.heard():
            return error  # it said why
        return self.fail(self.ended(peer, doing))

    def ended(self, peer: int, doing: str) -> PeerLost:
        """That a peer has ended, or has left, in words; nobody is told."""
        other, me = self.peers[peer], self.peers[self.me].rank
        how = "left the group" if other.left else "ended"
        message = f"rank {other.rank} (process {other.pid}) {how} while rank {me} was in {doing}"
        return PeerLost(message, other.rank)

    def compare(self, among: Iterable[int]) -> None:
        """Raise CollectiveError if one of these peers passes something else to our collective."""
        op, mine = self.board.doing
        for peer in among:
            board = self.peers[peer].board
            if op < 0 or peer == self.me or board is None:
                continue
            theirs = board.signature(op)
            if theirs is not None and theirs != mine:
                me, other = self.peers[self.me].rank, self.peers[peer].rank
                raise self.fail(disagreement(op, (me, describe(mine)), (other, describe(theirs))))


class Patience:
    """One wait: how long it has lasted, not counting the time in which the user holds the ranks."""

    def __init__(
        self, watch: Watch, peer: int, lane: Lane, doing: str, limit_ns: int | None = None
    ) -> None:
        """``limit_ns``: after which silence is an error; None: the collective's."""
        self.watch, self.peer, self.lane, self.doing = watch, peer, lane, doing
        self.limit_ns = watch.limit_ns if limit_ns is None else limit_ns
        self.since = self._last = now()
        self._waited = 0
        self._told, self._farewells = False, set[int]()
        watch.newest = weakref.ref(self)

    @property
    def looked(self) -> int:
        """When it was last seen that what is waited for has not come."""
        return self._last

    def look(self, awaited: Collection[int] = ()) -> list[int]:
        """``awaited``: the peers of messages that are waited for; none in a collective.

        Returns those of them that are spare and of whom nothing more will come.
        """
        watch, moment = self.watch, now()
        watch.check(None if awaited else watch.board.doing[0])
        standing = watch.control is not None and watch.control.clocks_stand()
        if not standing:
            # A rank that was itself stopped must not count that time as its peers' silence.
            self._waited += min(moment - self._last, 4 * int(SLICE * 1e9))
        self._last = moment
        if awaited:
            self.peer = next(iter(awaited)) if len(awaited) == 1 else -1
        everybody = -1 in awaited or (self.peer < 0 and not awaited)
        among = range(len(watch.peers)) if everybody else awaited or (self.peer,)
        over = [peer for peer in among if peer != watch.me and self._is_over(peer, bool(awaited))]
        for peer in over:
            if not awaited or peer not in watch.spare:
                raise watch.lost(peer, self.doing)
        among = [peer for peer in among if peer not in over]
        watch.compare(among)
        if self._waited > SECOND and not self._told:
            self._told = True
            self._tell(among)
        if self._waited > self.limit_ns and self._at_its_end(among):
            who = ", ".join(self._state(peer) for peer in among if peer != watch.me)
            raise watch.fail(
                RunTimeout(
                    f"no progress for {self._waited / 1e9:.1f} s: rank "
                    f"{watch.peers[watch.me].rank} is in {self.doing} and waits for {who}. "
                    "Raise timeout= if this is expected."
                )
            )

        return over

    def _at_its_end(self, among: Sequence[int]) -> bool:
        """Is it for us to say? A peer that lives may itself wait for the one that has stopped: it
        shall say so first.
        """
        watch = self.watch
        stands = any(watch.peers[peer].state() in "TtZX" for peer in among if peer != watch.me)
        return stands or self._waited > self.limit_ns + CHAIN

    def _is_over(self, peer: int, message: bool) -> bool:
        """Will nothing more come of a peer?"""
        other = self.watch.peers[peer]
        # Who has left in good order has done its part of what all do together, but sends no more
        # to who awaits it. A message may have come with the farewell, or just before the end: see
        # once more.
        awaited = peer == self.peer or (message and peer in self.watch.spare)
        if other.gone and (message or not awaited):  # messages are drained by who awaits them
            return True
        if awaited and (other.left or other.gone):
            told = peer in self._farewells
            self._farewells.add(peer)
            return told
        return False

    def _state(self, peer: int) -> str:
        """A peer in words. It asks the kernel only, so that a frozen peer can be described too."""
        other = self.watch.peers[peer]
        return f"rank {other.rank}, which is {_STATES.get(other.state(), 'on another host')}"

    def _tell(self, among: Sequence[int]) -> None:
        moment = now()
        for peer in among:
            if peer != self.watch.me:
                other = self.watch.peers[peer]
                name = "stalled: stopped" if other.state() in "Tt" else "stalled"
                number = self.lane.recorder.name(name)
                self.lane.write(
                    _DETECT, moment, moment, other.rank, name=number, value=self._waited / 1e9
                )


def disagreement(op: int, mine: tuple[int, str], theirs: tuple[int, str]) -> CollectiveError:
    """The error for two ranks that pass different things to the same collective."""
    first, second = sorted((mine, theirs))
    return CollectiveError(
        f"ranks disagree about collective {op}: rank {first[0]} calls {first[1]}, "
        f"rank {second[0]} calls {second[1]}. Every rank of a group must make the same calls "
        "in the same order, with the same shape and dtype."
    )
