"""Sending messages of a process group: slots leave at once, or over an emulated link in time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from workbench.common.errors import PeerLost
from workbench.messaging.communicator import Communicator
from workbench.messaging.members import P2P_PLANE
from workbench.messaging.p2p import Engine, Transfer
from workbench.messaging.progress_engine import ProgressEngine
from workbench.recording.events import SEND, WAIT, now
from workbench.recording.lane import Lane
from workbench.shared_memory.control_block import ATTENTION, SLOW_MOTION
from workbench.transports.mailbox import Header
from workbench.transports.shared_memory import SharedOutbox


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

    def __init__(self, comm: Communicator, lane: str, progress: ProgressEngine) -> None:
        self._numbers: dict[int, int] = {}
        self._posts: dict[int, int] = {}  # by peer: slots posted to it
        self._leaving: dict[int, Departure] = {}  # by peer
        self._held = False  # by the user, since a slot was moved last: not a wait
        super().__init__(comm, lane, progress)  # from here on the thread asks it

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
        transfer.finish()  # dropped: it is not missed

    def forget(self) -> None:
        self._leaving.clear()
        if self.comm.slots.gate is not None:
            self.comm.slots.gate.leave(self)

    def close(self, grace: float = 5.0) -> None:
        """Let posted messages leave, for ``grace`` seconds, if their receiver is alive."""
        deadline, peers = now() + int(grace * 1e9), self.members.peers
        while self.busy() and not self.members.watch.error and now() < deadline:
            if all(peers[transfer.peer].deaf for transfer in (*self.pending, *self.posted)):
                break
            self.progress_engine.wait_any([*self.pending, *self.posted][:1], 0.05, 0)
        super().close()
        self.forget()

    def due(self) -> int:
        return min((departure.at for departure in self._leaving.values()), default=0)

    def progress(self, blocked: int) -> bool:
        moved = self._depart() if self._leaving else False
        if len(self.pending) == 1 and not self.pending[0].lent:
            return self._put(self.pending[0], 0 if moved else blocked) or moved
        busy_peers = set()
        for transfer in list(self.pending):
            if transfer.lent:
                moved = self._is_taken(transfer, 0 if moved else blocked) or moved
            elif transfer.peer not in busy_peers:  # messages to one peer keep their order
                moved = self._put(transfer, 0 if moved else blocked) or moved
                if not (transfer.finished or transfer.lent):
                    busy_peers.add(transfer.peer)
        return moved

    def lends_only(self) -> bool:
        """Return whether all that is pending lies ready: its receivers have only to take it."""
        return all(transfer.lent for transfer in self.pending)

    def _lend(self, box: Any, transfer: Transfer) -> None:
        """Post a slot that says where the message lies."""
        start, peer, nbytes, place = now(), transfer.peer, transfer.nbytes, transfer.place
        assert place is not None
        box.post(
            Header(
                self.comm.generation,
                transfer.number,
                place.fd + 1,
                place.offset,
                0,
                nbytes,
                transfer.signature,
                total=nbytes,
                tag=transfer.tag,
                checksum=place.inode,
            )
        )
        self.comm.slots.messages_sent += nbytes
        self._posts[peer] = transfer.lent = self._posts.get(peer, 0) + 1
        self.moved = now()
        self.lane.write(
            SEND, start, self.moved, self.world[peer], 0, 0, 0, nbytes, transfer.name, self.in_place
        )

    def _is_taken(self, transfer: Transfer, blocked: int) -> bool:
        """Finish a message that is read in place, once its receiver has it; return whether it
        has.
        """
        box = self.members.outbox(transfer.peer, P2P_PLANE)
        if self._posts[transfer.peer] - box.waiting() < transfer.lent:
            return False
        to, moment = self.world[transfer.peer], now()
        self.context(transfer)
        if blocked:
            since = max(blocked, self.moved)
            self.lane.write(WAIT, since, moment, to, 0, 0, 0, -1, self.comm.slots.untaken)
        self.moved = moment
        self.pending.remove(transfer)
        transfer.finish()
        return True

    def _put(self, transfer: Transfer, blocked: int) -> bool:
        """Put slots of the transfer into the mailbox; return whether there was room for one."""
        comm, peer, x = self.comm, transfer.peer, transfer.x
        slots, to = comm.slots, self.world[peer]
        if peer in self._leaving or self._is_cut(to):
            return False
        box = self.members.outbox(peer, P2P_PLANE)
        plain = not (transfer.place or slots.attention[ATTENTION]) and self.has_mover(peer, box)
        if plain and self._put_by_mover(box, transfer, blocked):
            return True
        if not box.free.acquire(False):
            return False
        if self._is_held(transfer):
            box.free.release()
            return False
        self.context(transfer)
        if blocked and not self._held:
            since = max(blocked, self.moved)
            self.lane.write(WAIT, since, now(), to, 0, 0, transfer.slot, -1, slots.full)
        self._held = False
        in_place = transfer.place and not transfer.slot and isinstance(box, SharedOutbox)
        if in_place and not slots.attention[ATTENTION]:  # else by slots, each held or slowed
            self._lend(box, transfer)
            return True
        per, count, dtype = max(1, box.slot_bytes // x.itemsize), len(x), x.dtype
        while True:
            start, slot = now(), transfer.slot
            piece = x[slot * per : (slot + 1) * per] if count > per else x
            nbytes = piece.nbytes
            if nbytes:
                np.copyto(box.slot(dtype)[: len(piece)], piece)
            departs, slowness = self._post(box, transfer, nbytes, start)
            last = transfer.slot * per >= count
            end = now()
            if departs > end:
                self._leaving[peer] = Departure(
                    departs, slowness, transfer, slot, nbytes, start, last, self._free_lane()
                )
                return True
            self.lane.write(SEND, start, end, to, 0, 0, slot, nbytes, transfer.name)
            self.moved = end
            if last:
                self.pending.remove(transfer)
                transfer.finish()
                return True
            if self._is_cut(to) or not box.free.acquire(False):
                return True
            if self._is_held(transfer):
                box.free.release()
                return True

    def _put_by_mover(self, box: Any, transfer: Transfer, blocked: int) -> bool:
        """Put as many slots as there is room for, in one call."""
        since = 0 if not blocked or self._held else max(blocked, self.moved)
        begun, peer = transfer.slot, transfer.peer
        count = self.move_slots(self.mover.send_slots, box, transfer, since)
        if not count:
            return False
        per = max(1, box.slot_bytes // transfer.x.itemsize) * transfer.x.itemsize
        self.comm.slots.messages_sent += min(count * per, transfer.nbytes - begun * per)
        self._posts[peer] = self._posts.get(peer, 0) + count
        self._held = False
        if transfer.slot * per >= transfer.nbytes:
            self.pending.remove(transfer)
            transfer.finish()
        return True

    def _post(self, box: Any, transfer: Transfer, nbytes: int, start: int) -> tuple[int, int]:
        """Post the slot that was filled. Return when it leaves, 0 at once, and the slow motion."""
        slots = self.comm.slots
        departs = arrives = slowness = 0
        if slots.attention[ATTENTION]:
            departs, arrives, slowness = slots.flight(transfer.peer, nbytes, start)
        box.post(
            Header(
                self.comm.generation,
                transfer.number,
                0,
                0,
                transfer.slot,
                nbytes,
                transfer.signature,
                arrives,
                total=transfer.nbytes,
                tag=transfer.tag,
                slowness=slowness,
            )
        )
        slots.messages_sent += nbytes
        self._posts[transfer.peer] = self._posts.get(transfer.peer, 0) + 1
        transfer.slot += 1
        return departs, slowness

    def _is_held(self, transfer: Transfer) -> bool:
        """Return whether the user holds the ranks before this slot; other messages go on meanwhile.

        A message is a step, of however many slots.
        """
        slots = self.comm.slots
        if not slots.attention[ATTENTION] or slots.gate is None:
            return False
        key = (slots.group, "p2p", transfer.peer, transfer.number)
        if slots.gate.lets_chunk(self, key, transfer.where.iteration):
            return False
        self._held = True
        return True

    def _is_cut(self, to: int) -> bool:
        return bool(self.comm.slots.attention[ATTENTION]) and self.comm.slots.is_cut(to)

    def _free_lane(self) -> Lane:
        """Return a lane for a slot that leaves slowly: slots on several links cross, rows of a lane
        must not.
        """
        busy_lanes = [left.lane for left in self._leaving.values()]
        for lane in self.lanes:
            if lane not in busy_lanes:
                return lane
        more = self.comm.recorder.take_lane(f"{self.lane.name} {len(self.lanes) + 1}")
        self.lanes.append(more)
        return more

    def _depart(self) -> bool:
        """Mark as sent what has left its link by now."""
        gone, slow_motion = False, self.comm.slots.attention[SLOW_MOTION]
        for peer, left in list(self._leaving.items()):
            if left.at > now() and slow_motion >= left.slowness:
                continue
            del self._leaving[peer]
            gone, self.moved = True, now()
            self.context(left.transfer, left.lane)
            left.lane.write(
                SEND,
                left.start,
                self.moved,
                self.world[peer],
                0,
                0,
                left.slot,
                left.nbytes,
                left.transfer.name,
            )
            if left.last:
                self.pending.remove(left.transfer)
                left.transfer.finish()
        return gone
