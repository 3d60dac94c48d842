"""Receiving messages of a process group: matched by peer and tag, whichever comes first."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from workbench.common.errors import CollectiveError, PeerLost
from workbench.messaging.communicator import Communicator
from workbench.messaging.fingerprint import describe
from workbench.messaging.members import P2P_PLANE
from workbench.messaging.p2p import Engine, Transfer
from workbench.messaging.progress_engine import ProgressEngine
from workbench.messaging.slots import (
    F_ARRIVES,
    F_CHECKSUM,
    F_CHUNK,
    F_NBYTES,
    F_OP,
    F_SIGNATURE,
    F_SLOT,
    F_SLOWNESS,
    F_STEP,
    F_TAG,
    F_TOTAL,
)
from workbench.recording.events import NOWHERE, RECV, WAIT, now
from workbench.shared_memory.control_block import ATTENTION, SLOW_MOTION
from workbench.shared_memory.segments import cause
from workbench.transports.in_place import Borrower, LentMemory

_DTYPE = 31 << 48  # of a signature


class RecvEngine(Engine):
    kind, sends = "recv", False

    def __init__(self, comm: Communicator, lane: str, progress: ProgressEngine) -> None:
        self._arriving: dict[int, Transfer] = {}  # by peer: the message whose slots are coming in
        self._unexpected: dict[int, deque[Transfer]] = {}
        self._early: dict[int, tuple[int, int, int]] = {}  # by peer: see _is_early
        self._borrowers: dict[int, Borrower] = {}  # by peer
        super().__init__(comm, lane, progress)  # from here on the thread asks it

    def forget(self) -> None:
        self._arriving.clear()

    def accept(self, transfer: Transfer) -> None:
        """Take a posted receive. ``transfer.peer`` -1: from any rank. A message that came early is
        matched first.
        """
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
        if len(self.over) == self.comm.size - 1:  # no rank is left that could send
            for transfer in [transfer for transfer in self.pending if transfer.peer < 0]:
                self.pending.remove(transfer)
                transfer.finish(error)

    def end_of(self, transfer: Transfer, error: PeerLost) -> None:
        transfer.finish(error)

    def _adopt(self, early: Transfer, transfer: Transfer, peer: int) -> None:
        """Pass on the messages that came before the receive was posted."""
        transfer.peer, transfer.number, transfer.slot = peer, early.number, early.slot
        self.pending.append(transfer)
        self._match(transfer, early.nbytes, early.signature, peer)
        self.context(transfer)
        per, into = self.members.inbox(peer, P2P_PLANE, None).slot_bytes, transfer.x.view(np.uint8)
        per = max(per, early.nbytes) if early.place else per  # it was one slot
        for slot in range(early.slot):
            start, piece = now(), early.x[slot * per : (slot + 1) * per]
            np.copyto(into[slot * per : slot * per + len(piece)], piece)
            self.lane.write(
                RECV, start, now(), self.world[peer], 0, 0, slot, len(piece), transfer.name
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
        peers = {transfer.peer for transfer in pending}
        for peer in range(self.comm.size) if -1 in peers else peers:
            if peer != self.comm.rank and peer not in self.over:
                moved = self._from(peer, 0 if moved else blocked) or moved
        return moved

    def _from(self, peer: int, blocked: int) -> bool:
        """Receive the slots of a peer that are there; return whether there was one."""
        try:
            box = self.members.inbox(peer, P2P_PLANE, None)
        except PeerLost as error:
            if peer not in self.members.watch.spare:
                raise
            self.abandon(peer, error)
            return True
        if box is None:
            return False
        moved = self._is_plain(peer, box) and self._take_by_mover(box, peer, blocked)
        blocked = 0 if moved else blocked
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

    def _is_plain(self, peer: int, box: Any) -> bool:
        """Return whether one receive is pending, from this very peer, and nothing is unusual."""
        transfer = self.pending[0]
        return (
            len(self.pending) == 1
            and transfer.peer == peer
            and peer not in self._early
            and self._arriving.get(peer, transfer) is transfer
            and not self.comm.slots.attention[ATTENTION]
            and self.has_mover(peer, box)
        )

    def _take_by_mover(self, box: Any, peer: int, blocked: int) -> bool:
        """Take the slots that are there and are what is expected, in one call."""
        transfer, mover = self.pending[0], self.mover
        since = max(blocked, transfer.posted, self.moved) if blocked else 0
        if not self.move_slots(mover.take_slots, box, transfer, since):
            return False
        transfer.number = mover.op
        x, per = transfer.x, max(1, box.slot_bytes // transfer.x.itemsize)
        if transfer.slot * per >= len(x):
            self._arriving.pop(peer, None)
            self.pending.remove(transfer)
            transfer.finish()
        else:
            self._arriving[peer] = transfer
        return True

    def _is_early(self, box: Any, peer: int) -> bool:
        """Return whether a slot over an emulated link is here before the time in its header."""
        fields, moment = box.fields(), now()
        if not fields[F_ARRIVES] or fields[F_ARRIVES] <= moment:
            return False
        self._early[peer] = fields[F_ARRIVES], fields[F_SLOWNESS], moment
        return True

    def _is_due(self, peer: int) -> int:
        """Return since when the slot of an early peer has been waited for; 0: it is still early."""
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
            self.lane.write(WAIT, since, start, frm, 0, 0, slot, -1, transfer.name)
        per = box.slot_bytes // x.itemsize
        if fields[F_STEP]:
            return self._read_in_place(box, transfer, fields, start)
        if nbytes:
            count = nbytes // x.itemsize
            np.copyto(x[slot * per : slot * per + count], box.slot(x.dtype)[:count])
        box.release()
        if not early:
            self.moved = now()
            self.lane.write(RECV, start, self.moved, frm, 0, 0, slot, nbytes, transfer.name)
        transfer.slot += 1
        if (slot + 1) * per * x.itemsize >= fields[F_TOTAL]:
            self._arriving.pop(peer, None)
            if transfer in self.pending:
                self.pending.remove(transfer)
            transfer.finish()

    def _read_in_place(
        self, box: Any, transfer: Transfer, fields: tuple[int, ...], start: int
    ) -> None:
        """Copy a message from where it lies in its sender's memory."""
        peer, nbytes = transfer.peer, fields[F_TOTAL]
        transfer.place = LentMemory(fields[F_STEP] - 1, fields[F_CHECKSUM], fields[F_CHUNK])
        self._arriving.pop(peer, None)
        borrower = self._borrowers.get(peer)
        if borrower is None:
            borrower = self._borrowers[peer] = Borrower(self.members.peers[peer].pid)
        try:
            message = borrower.read(transfer.place, nbytes)
            if not transfer.stays:
                np.copyto(transfer.x.view(np.uint8), message.bytes)
        except OSError as error:
            watch = self.members.watch
            ended = watch.ended if peer in watch.spare else watch.lost
            raise ended(peer, "reading its message") from cause(error)
        if transfer.stays:
            transfer.in_place, transfer.box = message, box
            box.pass_by()
        else:
            box.release()
        transfer.slot = 1
        if not transfer.early:
            self.moved = now()
            self.lane.write(
                RECV,
                start,
                self.moved,
                self.world[peer],
                0,
                0,
                0,
                nbytes,
                transfer.name,
                self.in_place,
            )
            self.pending.remove(transfer)
        transfer.finish()

    def _begin(self, fields: tuple[int, ...], peer: int) -> Transfer:
        """Return the receive that this message is for; a new buffer if none was posted yet."""
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
