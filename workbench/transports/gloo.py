"""Mailboxes between hosts: Gloo point to point, every slot one message, a header and its payload.

A rank waits on semaphores here as it does in shared memory, and a full row of slots holds its
sender back. Receives for all free slots are posted ahead: Gloo sends a message once the other side
has asked for it, and on a slow link that question would wait behind the data of the other
direction, again for every slot. On each side a thread waits for what is under way. What else a
page would tell (a peer has ended, the group has failed) comes over the wire too.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch._C._distributed_c10d import PrefixStore, Store

from workbench.common.errors import WorkbenchError
from workbench.recording.events import now
from workbench.transports.alarm_lines import AlarmLines
from workbench.transports.arrays import bytes_of
from workbench.transports.doorbell import Bells
from workbench.transports.joining import UNLIMITED, gloo_group
from workbench.transports.mailbox import FAR_SLOTS, HEADER, HEADER_BYTES, Header, Views
from workbench.transports.peer_page import PLANES, PeerPage, clock_identity

_NBYTES, _ARRIVES = (Header._fields.index(name) for name in ("nbytes", "arrives"))
_BYE = Header(-1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0)


class _GlooBox:
    """One end of a channel. A slot's message lies in one buffer, as it goes over the wire."""

    def __init__(self, channels: GlooChannels, peer: int, plane: int, bell: Any) -> None:
        self.slot_bytes = channels.slot_bytes
        self._channels, self._peer, self._bell = channels, peer, bell
        self._tag, self._receipt_tag = 2 * plane, 2 * plane + 1
        self._messages, self._receipt = _bytes(FAR_SLOTS, HEADER_BYTES + self.slot_bytes), _bytes(1)
        payloads = [one[HEADER_BYTES:].numpy() for one in self._messages]
        self._headers_of = [bytes_of(one) for one in self._messages]
        self._views = [Views(bytes_of(payload), {}) for payload in payloads]
        self._turn = 0
        self._under_way: queue.SimpleQueue[Any] = queue.SimpleQueue()  # Gloo's works; None: the end

    def slot(self, dtype: Any) -> Any:
        return self._views[self._turn].get(dtype)

    def _start(self, work: Callable[[], None], name: str) -> None:
        self.thread = threading.Thread(target=work, daemon=True, name=f"workbench {name}")
        self.thread.start()


def _bytes(*shape: int) -> torch.Tensor:
    with torch.inference_mode(False):  # they are written in other modes too
        return torch.from_numpy(np.zeros(shape, np.uint8))


class GlooOutbox(_GlooBox):
    """The sending end: ``post`` gives a slot to Gloo, a thread frees it once it has been sent."""

    slots = FAR_SLOTS

    def __init__(self, channels: GlooChannels, to: int, plane: int, bell: Any) -> None:
        super().__init__(channels, to, plane, bell)
        self.free, self.moved = threading.Semaphore(FAR_SLOTS), 0
        self._bye, self._said_bye = _bytes(HEADER_BYTES), False
        self._answer: Any = None  # for a receipt
        self._has_receipt = False
        self._start(self._wait, f"to {to}")

    def post(self, header: Header) -> None:
        if header.arrives and self._peer in self._channels.other_clock:
            header = header._replace(arrives=max(header.arrives - now(), 1))  # from now on
        HEADER.pack_into(self._headers_of[self._turn], 0, *header)
        self.moved += header.nbytes
        self._send(self._messages[self._turn][: HEADER_BYTES + header.nbytes])
        self._turn = (self._turn + 1) % FAR_SLOTS

    def _send(self, message: torch.Tensor) -> None:
        try:
            self._under_way.put(self._channels.group.send([message], self._peer, self._tag))
        except RuntimeError:
            self._channels.ended(self._peer, False)

    def _wait(self) -> None:
        try:
            while (work := self._under_way.get()) is not None:
                work.wait(UNLIMITED)
                self.free.release()
                if self._bell is not None:
                    self._bell.ring()
            if self._answer is not None:
                self._answer.wait(UNLIMITED)
                self._has_receipt = True
        except RuntimeError:
            self._channels.ended(self._peer, False)

    def drained(self) -> bool:
        """Return whether all that was posted is in the other process. Nothing is posted any more
        once this has been asked: sent means only that it has left.
        """
        self.close()
        return self._has_receipt

    def close(self) -> None:
        """Send a farewell after what was posted; the other side answers with a receipt."""
        if self._said_bye:
            return
        self._said_bye = True
        HEADER.pack_into(bytes_of(self._bye), 0, *_BYE)
        try:
            group = self._channels.group
            self._answer = group.recv([self._receipt], self._peer, self._receipt_tag)
            self._send(self._bye)
        except RuntimeError:
            self._channels.ended(self._peer, False)
        self._under_way.put(None)


class GlooInbox(_GlooBox):
    """The receiving end: a receive is under way for every slot that is free."""

    def __init__(self, channels: GlooChannels, frm: int, plane: int, bell: Any) -> None:
        super().__init__(channels, frm, plane, bell)
        self.ready = threading.Semaphore(0)
        self._headers: deque[tuple[int, ...]] = deque()
        for turn in range(FAR_SLOTS):
            self._receive(turn)
        self._start(self._wait, f"from {frm}")

    def _receive(self, turn: int) -> None:
        try:
            message = [self._messages[turn]]
            self._under_way.put(self._channels.group.recv(message, self._peer, self._tag))
        except RuntimeError:
            self._channels.ended(self._peer, False)

    def _wait(self) -> None:
        turn = 0
        try:
            while (work := self._under_way.get()) is not None:
                work.wait(UNLIMITED)
                fields = HEADER.unpack_from(self._headers_of[turn])
                if fields[_NBYTES] < 0:
                    self._say_received()
                    return
                if fields[_ARRIVES] and self._peer in self._channels.other_clock:
                    fields = (*fields[:_ARRIVES], fields[_ARRIVES] + now(), *fields[_ARRIVES + 1 :])
                turn = (turn + 1) % FAR_SLOTS
                self._headers.append(fields)
                self.ready.release()
                if self._bell is not None:
                    self._bell.ring()
        except RuntimeError:
            self._channels.ended(self._peer, False)

    def _say_received(self) -> None:
        with contextlib.suppress(RuntimeError):  # it has not waited for this
            self._answer = self._channels.group.send([self._receipt], self._peer, self._receipt_tag)
        self._channels.said_bye(self._peer)

    def fields(self) -> tuple[int, ...]:
        """Return the header of the oldest slot as plain numbers."""
        return self._headers[0]

    def header(self) -> Header:
        return Header(*self.fields())

    def release(self) -> None:
        self._headers.popleft()
        self._receive(self._turn)
        self._turn = (self._turn + 1) % FAR_SLOTS

    def close(self) -> None:
        self._under_way.put(None)


class GlooChannels:
    """All channels of one group that cross hosts.

    ``far``: group ranks on other hosts. ``page``: this rank's own, on which alarms from
    afar are put. ``bells`` wake this process. ``ended(rank, said_bye)`` is called when no more
    can come.
    """

    NAME = "Gloo"

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        far: list[int],
        slot_bytes: int,
        page: PeerPage,
        bells: Bells,
        ended: Callable[[int, bool], None],
    ) -> None:
        keys, self._keys = PrefixStore("far", store), store  # Gloo calls what is below it
        keys.set(f"clock {rank}", clock := clock_identity())
        self.group: Any = gloo_group(store, keys, rank, size, UNLIMITED)
        # Ranks whose clock is another one than ours: no moment is sent to them, but what is left.
        self.other_clock = {to for to in far if keys.get(f"clock {to}").decode() != clock}
        self.slot_bytes = (slot_bytes + 63) // 64 * 64  # as in shared memory
        self.ended = ended
        self._far, self._bells = far, bells
        self._outboxes: dict[tuple[int, int], GlooOutbox] = {}
        self._byes: list[int] = []
        # All at once: Gloo sends nothing before the other side asks for it.
        self._inboxes = {
            (frm, plane): GlooInbox(self, frm, plane, bells.messages if plane else None)
            for frm in far
            for plane in range(len(PLANES))
        }
        self._lines = AlarmLines(self.group, far, page)
        self.raise_alarm: Callable[[WorkbenchError], None] = self._lines.raise_alarm

    def said_bye(self, frm: int) -> None:
        """Note that one plane has nothing more to come; the others may have."""
        self._byes.append(frm)
        if self._byes.count(frm) == len(PLANES):
            self.ended(frm, True)

    def outbox(self, to: int, plane: int) -> GlooOutbox:
        if (to, plane) not in self._outboxes:
            bell = self._bells.room if plane else None
            self._outboxes[to, plane] = GlooOutbox(self, to, plane, bell)
        return self._outboxes[to, plane]

    def inbox(self, frm: int, plane: int) -> GlooInbox:
        return self._inboxes[frm, plane]

    def close(self, seconds: float = 2.0) -> None:
        """Send a farewell to all peers, then leave.

        Without it a closed connection looks like a lost one.
        """
        for to in self._far:
            for plane in range(len(PLANES)):
                self.outbox(to, plane).close()
        self._lines.say_bye()
        deadline = time.monotonic() + seconds
        for outbox in self._outboxes.values():
            outbox.thread.join(max(0.0, deadline - time.monotonic()))
        for inbox in self._inboxes.values():
            inbox.close()
        self._lines.close()
        for inbox in self._inboxes.values():
            inbox.thread.join(1.0)
        for outbox in self._outboxes.values():
            outbox.thread.join(1.0)
        self._outboxes, self._inboxes = {}, {}  # they refer to us, and ``ended`` to our owner:
        self.ended = lambda far, said_bye: None  # without these loops memory goes at once
