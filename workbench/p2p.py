"""Point-to-point messages of a process group: posted now, moved by whoever waits, matched by tag.

Two engines a group, one for sends and one for receives, each with a lane of its own. A transfer is
queued for its peer; the process's driver (driver.py) lets an engine move slots of any transfer that
can move, so that a large message to a slow peer, over an emulated slow link, or to a rank that is
frozen never stops another one. Nothing in here sleeps.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import numpy as np

from workbench.communicator import Communicator
from workbench.control import ATTENTION, SLOW_MOTION
from workbench.driver import Driver
from workbench.errors import CollectiveError, GroupClosed, PeerLost
from workbench.events import CODE, NOWHERE, Lane, Where, now
from workbench.members import P2P_PLANE
from workbench.signature import describe
from workbench.slots import (
    F_ARRIVES,
    F_NBYTES,
    F_OP,
    F_SIGNATURE,
    F_SLOT,
    F_SLOWNESS,
    F_TAG,
    F_TOTAL,
)  # fmt: skip
from workbench.watch import Patience

_SEND, _RECV, _WAIT, _DETECT = (CODE[kind] for kind in ("send", "recv", "wait", "detect"))
_DTYPE = 31 << 48  # of a signature


class Transfer:
    """One message of this rank: what is left of it, and whether it is done.

    ``x``: a flat numpy array. ``name``: the number of what its rows are called.
    """

    __slots__ = (
        "after", "context", "early", "error", "finished", "late", "name", "nbytes", "number",
        "peer", "posted", "signature", "slot", "tag", "where", "x",
    )  # fmt: skip

    def __init__(
        self, x: Any, peer: int, tag: int, signature: int, where: Where, name: int = 0
    ) -> None:
        self.x, self.nbytes, self.name = x, int(x.nbytes), name
        self.peer, self.tag, self.signature, self.where = peer, tag, signature, where
        self.number, self.slot, self.context = -1, 0, -1
        self.posted = now()
        self.finished = self.early = False  # early: it came before its receive was posted
        self.error: Exception | None = None
        self.after: Any = None  # called before it counts as done
        self.late: list[Any] = []  # called afterwards

    def finish(self, error: Exception | None = None) -> None:
        self.error = error
        if self.after is not None:
            after, self.after = self.after, None  # what is called may refer to us
            after(self)
        self.finished = True
        while self.late:
            self.late.pop()()


class Engine:
    """Moves the transfers of one direction. Subclasses say how one step of progress is made."""

    kind: str
    sends: bool

    def __init__(self, comm: Communicator, lane: str, driver: Driver) -> None:
        self.comm, self.members, self.driver = comm, comm.members, driver
        self.lane = comm.recorder.lane(lane)
        self.world, self.over = comm.members.world, comm.members.watch.over
        self.spin_ns = comm.slots.spin_ns
        self.posted: deque[Transfer] = deque()  # by any thread; the driver takes them over
        self.pending: deque[Transfer] = deque()
        self.blocked = 0  # since when nothing moves while somebody drives
        self.looked = 0  # when it was looked around last
        self.moved = 0  # when a slot was moved last: nobody has waited since before that
        self.closed = False
        self._patience: Patience | None = None
        self._said: tuple[int, int] | None = None  # the wait that the lane tells of
        self._stale = False  # something has moved since it was told
        name = comm.recorder.name
        self._names = name("p2p"), 0, name(comm.group)
        driver.add(self)

    def busy(self) -> bool:
        return bool(self.posted or self.pending)

    def advance(self) -> bool:
        """One step of progress, by whoever drives. Has anything moved?"""
        try:
            while self.posted:
                self.accept(self.posted.popleft())
            if self.closed and self.pending:
                raise GroupClosed(
                    "the process group is being destroyed while this message still waits"
                )
            if not self.progress(self.blocked):
                return False
        except Exception as error:  # whoever waits for a transfer must hear of it
            self.fail(error)
        self.blocked, self._patience, self._stale = 0, None, True
        if self._said and not self.pending:
            self._said = None
            self.lane.idle()
        return True

    def accept(self, transfer: Transfer) -> None:
        """Take a posted transfer over."""
        raise NotImplementedError

    def progress(self, blocked: int) -> bool:
        raise NotImplementedError

    def due(self) -> int:
        """The moment at which something can move by itself, without a peer's doing; 0: none."""
        return 0

    def say_waiting(self) -> None:
        """Tell the lane what is waited for. Once for a wait: its age is the time since then."""
        first = self.pending[0]
        peer = self.world[first.peer] if first.peer >= 0 else -1
        if self._stale or self._said != (peer, first.number):
            self.lane.status(_WAIT, peer=peer, op=first.number)
            self._said, self._stale = (peer, first.number), False

    def look(self, moment: int) -> None:
        """Nothing has moved for a while: has a peer ended, has the group failed, is it too late?"""
        self.looked = moment
        try:
            watch = self.members.watch
            self._patience = self._patience or Patience(
                watch, -1, self.lane, self._doing(), watch.timeout_ns
            )
            awaited = {transfer.peer for transfer in self.pending}
            over = set(self._patience.look(awaited))
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
        """A spare peer has ended: so do the transfers to it or from it, and only they."""
        watch, rank, moment = self.members.watch, self.world[peer], now()
        self.over[peer] = error
        if rank not in watch.found and not watch.peers[peer].left:
            watch.found.add(rank)
            self.lane.context(group=self._names[2], generation=self.comm.generation)
            self.lane.write(_DETECT, moment, moment, rank, name=self.comm.recorder.name("lost"))
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
        """The rows that follow, in the engine's lane or in ``lane``, belong to this message."""
        if lane is not None and lane is not self.lane:
            lane.context(*self._names, transfer.number, transfer.where, self.comm.generation)
        elif transfer.context < 0:
            transfer.context = self.lane.context(
                *self._names, transfer.number, transfer.where, self.comm.generation
            )
        else:
            self.lane.again(transfer.context)

    def close(self) -> None:
        """What is still pending fails."""
        self.driver.remove(self)


class Departure(NamedTuple):
    """A slot that is posted and, over an emulated link, has not left yet."""

    at: int
    slowness: int
    transfer: Transfer
    slot: int
    nbytes: int
    start: int
    last: bool
    lane: Lane


class SendEngine(Engine):
    kind, sends = "send", True

    def __init__(self, comm: Communicator, lane: str, driver: Driver) -> None:
        super().__init__(comm, lane, driver)
        self._numbers: dict[int, int] = {}
        self._leaving: dict[int, Departure] = {}  # by peer
        self._lanes = [self.lane]

    def accept(self, transfer: Transfer) -> None:
        number = self._numbers.get(transfer.peer, 0)
        self._numbers[transfer.peer] = number + 1
        transfer.number = number
        if transfer.peer in self.over:
            transfer.finish()
        else:
            self.pending.append(transfer)

    def end_of(self, transfer: Transfer, error: PeerLost) -> None:
        self._leaving.pop(transfer.peer, None)
        transfer.finish()  # dropped: nobody misses it

    def forget(self) -> None:
        self._leaving.clear()

    def close(self, grace: float = 5.0) -> None:
        """Let what was posted leave, for ``grace`` seconds, if somebody is there to take it."""
        deadline, peers = now() + int(grace * 1e9), self.members.peers
        while self.busy() and not self.members.watch.error and now() < deadline:
            if all(peers[transfer.peer].deaf for transfer in (*self.pending, *self.posted)):
                break
            self.driver.wait_any([*self.pending, *self.posted][:1], 0.05, 0)
        super().close()

    def due(self) -> int:
        return min((departure.at for departure in self._leaving.values()), default=0)

    def progress(self, blocked: int) -> bool:
        moved = self._depart() if self._leaving else False
        if len(self.pending) == 1:
            return self._put(self.pending[0], 0 if moved else blocked) or moved
        seen = set()
        for transfer in list(self.pending):
            if transfer.peer not in seen:  # messages to one peer keep their order
                moved = self._put(transfer, 0 if moved else blocked) or moved
                if not transfer.finished:
                    seen.add(transfer.peer)
        return moved

    def _put(self, transfer: Transfer, blocked: int) -> bool:
        """Put slots of the transfer while there is room. Was there?"""
        comm, peer, x = self.comm, transfer.peer, transfer.x
        slots, to = comm.slots, self.world[peer]
        if peer in self._leaving or self._is_cut(to):
            return False
        box = self.members.outbox(peer, P2P_PLANE)
        if not box.free.acquire(False):
            return False
        self.context(transfer)
        if blocked:
            since = max(blocked, self.moved)
            self.lane.write(_WAIT, since, now(), to, 0, 0, transfer.slot, -1, slots.full)
        per, count, dtype = max(1, box.slot_bytes // x.itemsize), len(x), x.dtype
        while True:
            if slots.attention[ATTENTION] and slots.gate is not None:
                slots.gate.pass_chunk(-1, 0, transfer.where.iteration)
            start, slot = now(), transfer.slot
            piece = x[slot * per : (slot + 1) * per] if count > per else x
            nbytes = piece.nbytes
            if nbytes:
                np.copyto(box.slot(dtype)[: len(piece)], piece)
            departs = arrives = slowness = 0
            if slots.attention[ATTENTION]:
                departs, arrives, slowness = slots.flight(peer, nbytes, start)
            box.post(
                comm.generation, transfer.number, 0, 0, slot, nbytes, transfer.signature, arrives,
                transfer.nbytes, transfer.tag, 0, slowness,
            )  # fmt: skip
            slots.bytes_sent += nbytes
            transfer.slot = slot + 1
            last = transfer.slot * per >= count
            end = now()
            if departs > end:
                self._leaving[peer] = Departure(
                    departs, slowness, transfer, slot, nbytes, start, last, self._free_lane()
                )
                return True
            self.lane.write(_SEND, start, end, to, 0, 0, slot, nbytes, transfer.name)
            self.moved = end
            if last:
                self.pending.remove(transfer)
                transfer.finish()
                return True
            if self._is_cut(to) or not box.free.acquire(False):
                return True

    def _is_cut(self, to: int) -> bool:
        return bool(self.comm.slots.attention[ATTENTION]) and self.comm.slots.is_cut(to)

    def _free_lane(self) -> Lane:
        """For a slot that takes its time to leave: slots on several links cross, lanes may not."""
        taken = [left.lane for left in self._leaving.values()]
        for lane in self._lanes:
            if lane not in taken:
                return lane
        self._lanes.append(self.comm.recorder.lane(f"{self.lane.name} {len(self._lanes) + 1}"))
        return self._lanes[-1]

    def _depart(self) -> bool:
        """What has left its link by now is sent."""
        gone, slow_motion = False, self.comm.slots.attention[SLOW_MOTION]
        for peer, left in list(self._leaving.items()):
            if left.at > now() and slow_motion >= left.slowness:
                continue
            del self._leaving[peer]
            gone, self.moved = True, now()
            self.context(left.transfer, left.lane)
            left.lane.write(
                _SEND, left.start, self.moved, self.world[peer], 0, 0, left.slot, left.nbytes,
                left.transfer.name,
            )  # fmt: skip
            if left.last:
                self.pending.remove(left.transfer)
                left.transfer.finish()
        return gone


class RecvEngine(Engine):
    kind, sends = "recv", False

    def __init__(self, comm: Communicator, lane: str, driver: Driver) -> None:
        super().__init__(comm, lane, driver)
        self._arriving: dict[int, Transfer] = {}  # by peer: the message whose slots are coming in
        self._unexpected: dict[int, deque[Transfer]] = {}
        self._early: dict[int, tuple[int, int, int]] = {}  # by peer: see _is_early

    def forget(self) -> None:
        self._arriving.clear()

    def accept(self, transfer: Transfer) -> None:
        """``transfer.peer`` -1: from anyone. A message that came too early is matched first."""
        for peer, waiting in self._unexpected.items():
            for early in waiting:
                if transfer.peer in (-1, peer) and early.tag == transfer.tag:
                    waiting.remove(early)
                    self._adopt(early, transfer, peer)
                    return
        if transfer.peer in self.over:
            transfer.finish(self.over[transfer.peer])
        else:
            self.pending.append(transfer)

    def abandon(self, peer: int, error: PeerLost) -> None:
        self._arriving.pop(peer, None)
        self._early.pop(peer, None)
        whole = [early for early in self._unexpected.pop(peer, ()) if early.finished]
        self._unexpected[peer] = deque(whole)
        super().abandon(peer, error)
        if len(self.over) == self.comm.size - 1:  # nobody is left who could send
            for transfer in [transfer for transfer in self.pending if transfer.peer < 0]:
                self.pending.remove(transfer)
                transfer.finish(error)

    def end_of(self, transfer: Transfer, error: PeerLost) -> None:
        transfer.finish(error)

    def _adopt(self, early: Transfer, transfer: Transfer, peer: int) -> None:
        """Give it what came before it was posted.

        The rows of those slots are written here: only now it is known what they belong to, and
        only now they are where they were sent to.
        """
        transfer.peer, transfer.number, transfer.slot = peer, early.number, early.slot
        self.pending.append(transfer)
        self._match(transfer, early.nbytes, early.signature, peer)
        self.context(transfer)
        per, into = self.members.inbox(peer, P2P_PLANE, None).slot_bytes, transfer.x.view(np.uint8)
        for slot in range(early.slot):
            start, piece = now(), early.x[slot * per : (slot + 1) * per]
            np.copyto(into[slot * per : slot * per + len(piece)], piece)
            self.lane.write(
                _RECV, start, now(), self.world[peer], 0, 0, slot, len(piece), transfer.name
            )
        if early.finished:
            self.pending.remove(transfer)
            transfer.finish()
        else:  # the rest of its slots go straight to their place
            self._arriving[peer] = transfer

    def due(self) -> int:
        return min((arrives for arrives, _, _ in self._early.values()), default=0)

    def progress(self, blocked: int) -> bool:
        pending = self.pending
        if len(pending) == 1 and pending[0].peer >= 0:
            return self._from(pending[0].peer, blocked)
        moved = False
        wanted = {transfer.peer for transfer in pending}
        for peer in range(self.comm.size) if -1 in wanted else wanted:
            if peer != self.comm.rank and peer not in self.over:
                moved = self._from(peer, 0 if moved else blocked) or moved
        return moved

    def _from(self, peer: int, blocked: int) -> bool:
        """Take the slots of a peer that are there. Was there one?"""
        try:
            box = self.members.inbox(peer, P2P_PLANE, None)
        except PeerLost as error:
            if peer not in self.members.watch.spare:
                raise
            self.abandon(peer, error)
            return True
        if box is None:
            return False
        moved = False
        while self.pending:
            if peer in self._early:
                since = self._is_due(peer)
                if not since:
                    break
                blocked = blocked or since
            elif not box.ready.acquire(False) or self._is_early(box, peer):
                break
            self._take(box, peer, blocked)
            moved, blocked = True, 0
        return moved

    def _is_early(self, box: Any, peer: int) -> bool:
        """Over an emulated link a slot is not there before its time, which its header says."""
        fields, moment = box.fields(), now()
        if not fields[F_ARRIVES] or fields[F_ARRIVES] <= moment:
            return False
        self._early[peer] = fields[F_ARRIVES], fields[F_SLOWNESS], moment
        return True

    def _is_due(self, peer: int) -> int:
        """Since when the slot of a peer that was early has been waited for; 0: it still is."""
        arrives, slowness, since = self._early[peer]
        if now() < arrives and self.comm.slots.attention[SLOW_MOTION] >= slowness:
            return 0
        del self._early[peer]
        return since

    def _take(self, box: Any, peer: int, blocked: int) -> None:
        fields = box.fields()
        frm, slot, nbytes = self.world[peer], fields[F_SLOT], fields[F_NBYTES]
        transfer = self._arriving.get(peer) or self._begin(fields, peer)
        start, x, early = now(), transfer.x, transfer.early
        if not early:
            self.context(transfer)
        if blocked and not early:
            since = max(blocked, transfer.posted, self.moved)
            self.lane.write(_WAIT, since, start, frm, 0, 0, slot, -1, transfer.name)
        per = box.slot_bytes // x.itemsize
        if nbytes:
            count = nbytes // x.itemsize
            np.copyto(x[slot * per : slot * per + count], box.slot(x.dtype)[:count])
        box.release()
        if not early:
            self.moved = now()
            self.lane.write(_RECV, start, self.moved, frm, 0, 0, slot, nbytes, transfer.name)
        transfer.slot += 1
        if (slot + 1) * per * x.itemsize >= fields[F_TOTAL]:
            self._arriving.pop(peer, None)
            if transfer in self.pending:
                self.pending.remove(transfer)
            transfer.finish()

    def _begin(self, fields: tuple[int, ...], peer: int) -> Transfer:
        """The receive that this message is for; a place of its own if none was posted yet."""
        for transfer in self.pending:
            if (
                (transfer.peer == peer or transfer.peer < 0)
                and transfer.tag == fields[F_TAG]
                and transfer not in self._arriving.values()
            ):
                transfer.peer = peer
                self._match(transfer, fields[F_TOTAL], fields[F_SIGNATURE], peer)
                break
        else:
            place = np.zeros(fields[F_TOTAL], np.uint8)
            transfer = Transfer(place, peer, fields[F_TAG], fields[F_SIGNATURE], NOWHERE)
            transfer.early = True
            self._unexpected.setdefault(peer, deque()).append(transfer)
        transfer.number = fields[F_OP]
        self._arriving[peer] = transfer
        return transfer

    def _match(self, transfer: Transfer, total: int, signature: int, peer: int) -> None:
        if transfer.nbytes != total or (transfer.signature ^ signature) & _DTYPE:
            me = self.world[self.comm.rank]
            raise self.members.watch.fail(
                CollectiveError(
                    f"rank {self.world[peer]} sent {describe(signature)} ({total:,} bytes, tag "
                    f"{transfer.tag}), rank {me} receives {describe(transfer.signature)} "
                    f"({transfer.nbytes:,} bytes): a send and its recv must have the same shape "
                    "and dtype"
                )
            )
