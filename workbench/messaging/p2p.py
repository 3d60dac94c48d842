"""Point-to-point messages of a process group: posted now, moved by any thread that waits.

Two engines per group, one for sends (sending.py) and one for receives (receiving.py), each with a
lane of its own. A transfer is queued for its peer; the process's progress engine lets an engine of
a group move slots of any transfer that can move, so that a large message to a slow peer, over an
emulated slow link, or to a frozen rank never stops another one. Nothing in here sleeps.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from workbench.common.errors import GroupClosed, PeerLost
from workbench.messaging.communicator import Communicator
from workbench.messaging.fingerprint import describe
from workbench.messaging.mover import open_mover, wire
from workbench.messaging.progress_engine import ProgressEngine
from workbench.messaging.watchdog import PeerWait
from workbench.recording.events import CODE, WAIT, Where, now
from workbench.recording.lane import Lane
from workbench.transports.doorbell import collecting
from workbench.transports.in_place import InPlace, LentMemory

DETECT = CODE["detect"]
AWAKE_NS = 25_000  # the mover looks for a slot so long before Python looks at all else


class Transfer:
    """One message of this rank: what is left of it, and whether it is done.

    ``x``: a flat numpy array. ``name``: the number of what its rows are called. ``place``: where it
    lies in memory that its receiver reads in place. ``stays``: what is received in place is not
    copied: ``in_place`` is the message in the sender's memory, until ``give_back``.
    """

    __slots__ = (
        "after",
        "box",
        "callbacks",
        "context",
        "early",
        "error",
        "finished",
        "in_place",
        "lent",
        "name",
        "nbytes",
        "number",
        "peer",
        "place",
        "posted",
        "signature",
        "slot",
        "stays",
        "tag",
        "tensor",
        "where",
        "x",
    )

    def __init__(
        self,
        x: Any,
        peer: int,
        tag: int,
        signature: int,
        where: Where,
        name: int = 0,
        place: LentMemory | None = None,
    ) -> None:
        self.x, self.nbytes, self.name = x, int(x.nbytes), name
        self.peer, self.tag, self.signature, self.where = peer, tag, signature, where
        self.number, self.slot, self.context = -1, 0, -1
        # Lent, to be read in place: its number among the slots posted to that peer; 0: it is not.
        self.place, self.lent = place, 0
        self.tensor: Any = None  # whose memory ``x`` is, where ``x`` does not keep it
        self.posted = now()
        self.stays = False
        self.in_place: InPlace | None = None
        self.box: Any = None  # whose slot is to be given back
        self.finished = self.early = False  # early: it came before its receive was posted
        self.error: Exception | None = None
        self.after: Any = None  # called before it counts as done
        self.callbacks: list[Any] = []  # called afterwards

    def finish(self, error: Exception | None = None) -> None:
        self.error = error
        if self.after is not None:
            after, self.after = self.after, None  # what is called may refer to us
            try:
                after(self)
            except Exception as raised:  # a caller that waits must hear of it
                self.error = self.error or raised
        self.finished = True
        while self.callbacks:
            self.callbacks.pop()()

    def give_back(self) -> None:
        """Let the sender of what stayed with it write there again."""
        box, self.in_place, self.box = self.box, None, None
        if box is not None:
            box.give_back()


class Engine:
    """Moves the transfers of one direction. Subclasses say how one step of progress is made."""

    kind: str
    sends: bool

    def __init__(self, comm: Communicator, lane: str, progress: ProgressEngine) -> None:
        self.comm, self.members, self.progress_engine = comm, comm.members, progress
        self.lane = comm.recorder.take_lane(lane)
        self.lanes = [self.lane]
        self.world, self.over = comm.members.world, comm.members.watch.over
        self.spin_ns = comm.slots.spin_ns
        self.posted: deque[Transfer] = deque()  # by any thread; the progress engine takes them over
        self.pending: deque[Transfer] = deque()
        self.blocked = 0  # since when nothing moves while a thread drives
        self.looked = 0  # when it was looked around last
        self.awake_ns = 0  # how long the mover stays awake for a slot
        self.moved = 0  # when a slot was moved last: no caller has waited since before that
        self.closed = False
        self._peer_wait: PeerWait | None = None
        self._lane_wait: tuple[int, int] | None = None  # the wait that the lane tells of
        self._stale = False  # something has moved since it was told
        name = comm.recorder.name
        self._names = name("p2p"), 0, name(comm.group)
        self.in_place = name("in place")
        self.mover = open_mover(comm.slots, None, self.lane)
        self._wired: dict[int, bool] = {}  # by peer: has the mover its mailbox?
        progress.add(self)

    def busy(self) -> bool:
        return bool(self.posted or self.pending)

    def advance(self) -> bool:
        """Make one step of progress, in whichever thread drives. Return whether anything moved."""
        try:
            while self.posted:
                self.accept(self.posted.popleft())
            if self.closed and self.pending:
                raise GroupClosed(
                    "the process group is being destroyed while this message still waits"
                )
            if not self.progress(self.blocked):
                return False
        except Exception as error:  # a caller that waits for a transfer must hear of it
            self.fail(error)
        self.blocked, self._peer_wait, self._stale = 0, None, True
        if self._lane_wait and not self.pending:
            self._lane_wait = None
            self.lane.idle()
        return True

    def stay_awake(self) -> bool:
        """Make a step of progress, and wait a moment for it in the mover, where it moves the
        message. Return whether anything moved.
        """
        self.awake_ns = AWAKE_NS
        try:
            return self.advance()
        finally:
            self.awake_ns = 0

    def accept(self, transfer: Transfer) -> None:
        """Take a posted transfer over."""
        raise NotImplementedError

    def progress(self, blocked: int) -> bool:
        raise NotImplementedError

    def due(self) -> int:
        """Return the moment at which something can move without a peer's action; 0: none."""
        return 0

    def has_mover(self, peer: int, box: Any) -> bool:
        """Return whether there is a mover for the slots of this peer's mailbox."""
        wired = self._wired.get(peer)
        if wired is None:
            other = peer != self.comm.rank  # to itself a rank seldom sends: Python does that
            wired = self._wired[peer] = other and wire(self.mover, self.sends, peer, box)
        return wired

    def move_slots(self, move: Any, box: Any, transfer: Transfer, since: int) -> int:
        """Have the mover's ``move`` send or take what can be moved of a message; return how many
        slots that was. ``since``: when waiting for the first of them began; 0: none has waited.
        """
        mover, quiet = self.mover, collecting()
        count: int = move(
            transfer.x,
            transfer.peer,
            transfer.number,
            transfer.slot,
            transfer.signature,
            transfer.tag,
            transfer.name,
            since,
            transfer.where,
            transfer.context,
            quiet,
            self.awake_ns,
        )
        if count:
            if quiet and box.bell is not None:
                box.bell.ring()
            transfer.context, self.moved = mover.message_context, mover.moved_ns
            transfer.slot += count
        return count

    def say_waiting(self) -> None:
        """Note in the lane what is waited for, once per wait: its age is the time since then."""
        first = self.pending[0]
        peer = self.world[first.peer] if first.peer >= 0 else -1
        if self._stale or self._lane_wait != (peer, first.number):
            self.lane.status(WAIT, peer=peer, op=first.number)
            self._lane_wait, self._stale = (peer, first.number), False

    def look(self, moment: int) -> None:
        """Check, after a while without movement, whether a peer has ended, the group has failed, or
        a deadline has passed.
        """
        self.looked = moment
        try:
            watch = self.members.watch
            self._peer_wait = self._peer_wait or PeerWait(
                watch, -1, self.lane, self._doing(), watch.timeout_ns
            )
            awaited = {transfer.peer for transfer in self.pending}
            over = set(self._peer_wait.look(awaited))
            over -= self.over.keys() - awaited
            while over and self.progress(0):  # what they had sent before
                pass
            for peer in over:
                self.abandon(peer, watch.ended(peer, self._doing()))
        except Exception as error:
            self.fail(error)

    def _doing(self) -> str:
        return f"{self.kind} {describe(self.pending[0].signature)}" if self.pending else self.kind

    def abandon(self, peer: int, error: PeerLost) -> None:
        """End the transfers to and from a spare peer that has ended, and only those."""
        watch, rank, moment = self.members.watch, self.world[peer], now()
        self.over[peer] = error
        if rank not in watch.lost_ranks and not watch.peers[peer].left:
            watch.lost_ranks.add(rank)
            self.lane.context(group=self._names[2], generation=self.comm.generation)
            self.lane.write(DETECT, moment, moment, rank, name=self.comm.recorder.name("lost"))
        for transfer in [transfer for transfer in self.pending if transfer.peer == peer]:
            self.pending.remove(transfer)
            self.end_of(transfer, error)

    def end_of(self, transfer: Transfer, error: PeerLost) -> None:
        """Finish a transfer whose spare peer has ended."""
        raise NotImplementedError

    def fail(self, error: Exception) -> None:
        """End all that is queued."""
        failed = [*self.pending, *self.posted]
        self.pending.clear()
        self.posted.clear()
        self.forget()
        for transfer in failed:
            transfer.finish(error)

    def forget(self) -> None:
        """Drop what else is known of transfers (after a failure)."""

    def context(self, transfer: Transfer, lane: Lane | None = None) -> None:
        """Begin the rows of this message, in the engine's lane or in ``lane``."""
        if lane is not None and lane is not self.lane:
            lane.context(*self._names, transfer.number, transfer.where, self.comm.generation)
        elif transfer.context < 0:
            transfer.context = self.lane.context(
                *self._names, transfer.number, transfer.where, self.comm.generation
            )
        else:
            self.lane.again(transfer.context)

    def close(self) -> None:
        """Fail everything that is still pending."""
        self.progress_engine.remove(self)
