"""Mailboxes between hosts over MPI: every slot is one message, a header and its payload in one.

As over Gloo (gloo.py), a rank waits on semaphores, and a full row of slots holds its sender back. A
thread of the process stands between them and MPI (mpi_job.py). MPI says nothing of a peer that has
ended, or ends this rank with it; so alarms, farewells and lost connections are Gloo's
(alarm_lines.py), and MPI carries chunks alone.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from torch._C._distributed_c10d import PrefixStore, Store

from workbench.common.errors import WorkbenchError
from workbench.recording.events import now
from workbench.transports.alarm_lines import AlarmLines
from workbench.transports.arrays import bytes_of
from workbench.transports.doorbell import Bells
from workbench.transports.joining import UNLIMITED, gloo_group
from workbench.transports.mailbox import FAR_SLOTS, HEADER, HEADER_BYTES, Header, Views
from workbench.transports.mpi_job import MpiJob
from workbench.transports.peer_page import PLANES, PeerPage, clock_identity

_NBYTES, _ARRIVES = (Header._fields.index(name) for name in ("nbytes", "arrives"))
_PLANES = range(len(PLANES))
_LEAVING = 10.0  # seconds for what a peer has sent to be here whole, once it has left


class _MpiBox:
    """``at``: the peer's rank in MPI, and the tag. Requests end in the order of their slots."""

    def __init__(self, channels: MpiChannels, peer: int, at: tuple[int, int], bell: Any) -> None:
        self.slot_bytes = channels.slot_bytes
        self._channels, self._peer, self.at, self._bell = channels, peer, at, bell
        self._job = channels.job
        self._byte = self._job.mpi.BYTE
        room = HEADER_BYTES + self.slot_bytes
        self._buffers = [np.empty(room, np.uint8) for _ in range(FAR_SLOTS)]
        self._views = [Views(bytes_of(one[HEADER_BYTES:]), {}) for one in self._buffers]
        self._requests: deque[Any] = deque()  # under way, the oldest first
        self._turn = 0

    def slot(self, dtype: Any) -> Any:
        return self._views[self._turn].get(dtype)

    def fail(self) -> None:
        self._channels.ended(self._peer, False)

    def _ended(self) -> bool:
        """Return whether the oldest request is complete, and forget it then."""
        try:
            if not self._requests or not self._requests[0].Test():
                return False
        except self._job.mpi.Exception:
            self._requests.clear()
            self.fail()
            return False
        self._requests.popleft()
        return True


class MpiOutbox(_MpiBox):
    """The sending end: ``post`` returns at once."""

    slots = FAR_SLOTS

    def __init__(self, channels: MpiChannels, peer: int, at: tuple[int, int], bell: Any) -> None:
        super().__init__(channels, peer, at, bell)
        self.free, self.moved = threading.Semaphore(FAR_SLOTS), 0
        self._posted: deque[tuple[Any, tuple[int, ...]]] = deque()
        self._on_its_way = 0  # slots posted and not yet taken; a count of each side has one writer
        self._delivered = 0

    def post(self, header: Header) -> None:
        self._on_its_way += 1
        self.moved += header.nbytes
        self._posted.append((self._buffers[self._turn], header))
        self._turn = (self._turn + 1) % FAR_SLOTS
        self._job.submit(self)

    def progress(self) -> bool:
        moved = False
        while self._posted:
            self._send(*self._posted.popleft())
            moved = True
        while self._ended():
            self._delivered += 1
            self.free.release()
            if self._bell is not None:
                self._bell.ring()
            moved = True
        return moved

    def _send(self, buffer: Any, fields: tuple[int, ...]) -> None:
        if fields[_ARRIVES] and self._peer in self._channels.other_clock:
            left = max(fields[_ARRIVES] - now(), 1)  # from now on
            fields = (*fields[:_ARRIVES], left, *fields[_ARRIVES + 1 :])
        HEADER.pack_into(buffer, 0, *fields)
        data = (buffer, HEADER_BYTES + fields[_NBYTES], self._byte)
        try:
            self._requests.append(self._job.comm.Issend(data, *self.at))
        except self._job.mpi.Exception:
            self.fail()

    @property
    def idle(self) -> bool:
        return not (self._posted or self._requests)

    def arrived(self, message: Any, nbytes: int) -> None:
        raise AssertionError("nothing arrives in an outbox")

    def drained(self) -> bool:
        """Return whether the other process has begun to take all that was posted."""
        return self._delivered == self._on_its_way


class MpiInbox(_MpiBox):
    """The receiving end. What arrives while all slots are full waits inside MPI."""

    def __init__(self, channels: MpiChannels, peer: int, at: tuple[int, int], bell: Any) -> None:
        super().__init__(channels, peer, at, bell)
        self.ready = threading.Semaphore(0)
        self._waiting: deque[Any] = deque()
        self._headers: deque[tuple[int, ...]] = deque()
        # Slots that have been announced, begun, and handed on, and taken; each has one writer.
        self._announced = self._begun = self._whole = self._taken = 0

    def fail(self) -> None:
        self._announced = self._whole  # nothing more is awaited
        super().fail()

    def arrived(self, message: Any, nbytes: int) -> None:
        if nbytes > len(self._buffers[0]):
            self.fail()  # a peer of another version
        else:
            self._announced += 1
            self._waiting.append(message)

    def progress(self) -> bool:
        moved = False
        try:
            while self._waiting and self._begun - self._taken < FAR_SLOTS:
                buffer = self._buffers[self._begun % FAR_SLOTS]
                data = (buffer, len(buffer), self._byte)
                self._requests.append(self._waiting.popleft().Irecv(data))
                self._begun += 1
                moved = True
        except self._job.mpi.Exception:
            self.fail()
        while self._ended():
            fields = HEADER.unpack_from(self._buffers[self._whole % FAR_SLOTS].data)
            if fields[_ARRIVES] and self._peer in self._channels.other_clock:
                fields = (*fields[:_ARRIVES], fields[_ARRIVES] + now(), *fields[_ARRIVES + 1 :])
            self._headers.append(fields)
            self.ready.release()
            if self._bell is not None:
                self._bell.ring()
            self._whole += 1
            moved = True
        return moved

    @property
    def idle(self) -> bool:
        return self._whole == self._announced

    def fields(self) -> tuple[int, ...]:
        """Return the header of the oldest slot as plain numbers."""
        return self._headers[0]

    def header(self) -> Header:
        return Header(*self.fields())

    def release(self) -> None:
        self._headers.popleft()
        self._turn = (self._turn + 1) % FAR_SLOTS
        self._taken += 1
        if self._waiting:
            self._job.submit(self)


class MpiChannels:
    """All channels of one group that cross hosts; as GlooChannels.

    ``places``: for each group rank its rank in MPI, and the first of the tags under which it
    receives messages of this group.
    """

    NAME = "MPI"

    def __init__(
        self,
        job: MpiJob,
        places: list[tuple[int, int]],
        store: Store,
        rank: int,
        size: int,
        far: list[int],
        slot_bytes: int,
        *,
        page: PeerPage,
        bells: Bells,
        ended: Callable[[int, bool], None],
    ) -> None:
        keys, self._keys = PrefixStore("far", store), store  # Gloo calls what is below it
        keys.set(f"clock {rank}", clock := clock_identity())
        self.job, self._places, self._bells = job, places, bells
        self.slot_bytes = (slot_bytes + 63) // 64 * 64  # as in shared memory
        self.ended = ended
        # Ranks whose clock is another one than ours: no moment is sent to them, but what is left.
        self.other_clock = {to for to in far if keys.get(f"clock {to}").decode() != clock}
        self._outboxes: dict[tuple[int, int], MpiOutbox] = {}
        self._inboxes = {
            (frm, plane): self._inbox(frm, plane, rank) for frm in far for plane in _PLANES
        }
        self._addresses = {box.at: box for box in self._inboxes.values()}
        job.open({**self._addresses})
        # It is made once all ranks are about to make it: from then on messages are expected.
        group = gloo_group(store, keys, rank, size, UNLIMITED)
        self._lines = AlarmLines(group, far, page, self._line_ended)
        self.raise_alarm: Callable[[WorkbenchError], None] = self._lines.raise_alarm

    def _inbox(self, frm: int, plane: int, me: int) -> MpiInbox:
        at = (self._places[frm][0], self._places[me][1] + plane)
        return MpiInbox(self, frm, at, self._bells.messages if plane else None)

    def outbox(self, to: int, plane: int) -> MpiOutbox:
        if (to, plane) not in self._outboxes:
            rank, first = self._places[to]
            bell = self._bells.room if plane else None
            self._outboxes[to, plane] = MpiOutbox(self, to, (rank, first + plane), bell)
        return self._outboxes[to, plane]

    def inbox(self, frm: int, plane: int) -> MpiInbox:
        return self._inboxes[frm, plane]

    def _line_ended(self, far: int, said_bye: bool) -> None:
        """Say so once all that the peer has sent is here: MPI may be slower than its farewell.

        MPI had matched all of it before the peer left; that the thread has told the boxes is sure
        once it has begun another turn.
        """
        deadline = time.monotonic() + _LEAVING
        boxes = [self._inboxes[far, plane] for plane in _PLANES]
        turn = self.job.turns
        while said_bye and time.monotonic() < deadline:
            if self.job.turns > turn and all(box.idle for box in boxes):
                break
            time.sleep(1e-3)
        self.ended(far, said_bye)

    def close(self, seconds: float = 2.0) -> None:
        """Send a farewell to all peers, then leave."""
        self._lines.say_bye(seconds)
        self._lines.close()
        self.job.close(self._addresses, [*self._outboxes.values(), *self._inboxes.values()])
        self._outboxes, self._inboxes, self._addresses = {}, {}, {}
        self.ended = lambda far, said_bye: None  # it refers to our owner: memory goes at once
