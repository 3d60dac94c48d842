"""Mailboxes between hosts: Gloo point to point, a header of fixed size before every payload.

On each side threads of ours stand between the wire and a row of slots, so that a rank waits on
semaphores here as it does in shared memory, and a full row of slots holds its sender back. What
else a board would tell (a peer has ended, the group has failed) comes over the wire too.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from torch._C._distributed_c10d import PrefixStore, ProcessGroupGloo, Store

from workbench.common.errors import WorkbenchError
from workbench.recording.events import now
from workbench.transports.alarm_lines import AlarmLines
from workbench.transports.arrays import bytes_of
from workbench.transports.doorbell import Bells
from workbench.transports.mailbox import HEADER, SLOTS, Header, Views
from workbench.transports.peer_page import PLANES, Board, clock_identity

_WORDS = HEADER.size // 8
_NBYTES, _ARRIVES = (Header._fields.index(name) for name in ("nbytes", "arrives"))
_BYE = Header(-1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0)
# An idle channel is no error, and a wait that Gloo itself ends takes the connection with it: the
# deadlines are those of our own waits (messaging/watchdog.py).
_NO_TIMEOUT = timedelta(days=365)


class GlooOutbox:
    """The sending end: ``post`` returns at once, a thread puts the slots on the wire in turn."""

    def __init__(self, channels: GlooChannels, to: int, plane: int, bell: Any) -> None:
        self.free, self.moved, self.slot_bytes = threading.Semaphore(SLOTS), 0, channels.slot_bytes
        self._channels, self._to, self._tag, self._bell = channels, to, 2 * plane, bell
        with torch.inference_mode(False):  # they are written in other modes too
            self._headers = [torch.zeros(_WORDS, dtype=torch.int64) for _ in range(SLOTS)]
            self._payloads = [torch.zeros(self.slot_bytes, dtype=torch.uint8) for _ in range(SLOTS)]
        self._views = [Views(bytes_of(payload), {}) for payload in self._payloads]
        self._turn = 0
        self._posted: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._on_its_way = 0  # slots posted and not yet taken; a count of each side has one writer
        self._delivered = 0
        self.thread = threading.Thread(target=self._write, daemon=True, name=f"workbench to {to}")
        self.thread.start()

    def slot(self, dtype: Any) -> Any:
        return self._views[self._turn].get(dtype)

    def post(self, *fields: int, **named: int) -> None:
        header = Header(*fields, **named)
        self._headers[self._turn].copy_(torch.tensor(header))
        self._on_its_way += 1
        self.moved += header.nbytes
        self._posted.put(self._turn)
        self._turn = (self._turn + 1) % SLOTS

    def _write(self) -> None:
        group, to, tag = self._channels.group, self._to, self._tag
        try:
            while (turn := self._posted.get()) >= 0:
                header = self._headers[turn]
                if to in self._channels.other_clock and header[_ARRIVES]:
                    header[_ARRIVES] = max(int(header[_ARRIVES]) - now(), 1)  # from now on
                group.send([header], to, tag).wait()
                if nbytes := int(header[_NBYTES]):
                    group.send([self._payloads[turn][:nbytes]], to, tag + 1).wait()
                self._delivered += 1
                self.free.release()
                if self._bell is not None:
                    self._bell.ring()
            group.send([torch.tensor(_BYE)], to, tag).wait()
        except RuntimeError:
            self._channels.ended(to, False)

    def drained(self) -> bool:
        """Return whether all that was posted is in the other process."""
        return self._delivered == self._on_its_way

    def close(self) -> None:
        """Send a farewell after what was posted."""
        self._posted.put(-1)


class GlooInbox:
    """The receiving end: a thread takes messages off the wire into slots while there is room."""

    def __init__(self, channels: GlooChannels, frm: int, plane: int, bell: Any) -> None:
        self.ready, self.slot_bytes = threading.Semaphore(0), channels.slot_bytes
        self._room = threading.Semaphore(SLOTS)
        self._channels, self._frm, self._tag, self._bell = channels, frm, 2 * plane, bell
        self._buffers = [np.zeros(self.slot_bytes, np.uint8) for _ in range(SLOTS)]
        self._views = [Views(bytes_of(buffer), {}) for buffer in self._buffers]
        self._headers: deque[tuple[int, ...]] = deque()
        self._turn, self._filled = 0, 0
        self.thread = threading.Thread(target=self._read, daemon=True, name=f"workbench from {frm}")
        self.thread.start()

    def _read(self) -> None:
        group, words = self._channels.group, torch.zeros(_WORDS, dtype=torch.int64)
        try:
            while True:
                while not self._room.acquire(timeout=0.05):
                    if self._channels.closing:
                        return
                group.recv([words], self._frm, self._tag).wait()
                if self._frm in self._channels.other_clock and words[_ARRIVES]:
                    words[_ARRIVES] += now()
                fields = tuple(words.tolist())
                nbytes = fields[_NBYTES]
                if nbytes < 0:
                    self._channels.said_bye(self._frm)
                    return
                if nbytes:
                    place = torch.from_numpy(self._buffers[self._filled][:nbytes])
                    group.recv([place], self._frm, self._tag + 1).wait()
                self._filled = (self._filled + 1) % SLOTS
                self._headers.append(fields)
                self.ready.release()
                if self._bell is not None:
                    self._bell.ring()
        except RuntimeError:
            self._channels.ended(self._frm, False)

    def fields(self) -> tuple[int, ...]:
        """Return the header of the oldest slot as plain numbers."""
        return self._headers[0]

    def header(self) -> Header:
        return Header(*self.fields())

    def slot(self, dtype: Any) -> Any:
        return self._views[self._turn].get(dtype)

    def release(self) -> None:
        self._headers.popleft()
        self._turn = (self._turn + 1) % SLOTS
        self._room.release()


class GlooChannels:
    """All channels of one group that cross hosts.

    ``far``: group ranks on other hosts. ``board``: this rank's own, on which alarms from
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
        board: Board,
        bells: Bells,
        ended: Callable[[int, bool], None],
    ) -> None:
        keys = PrefixStore("far", store)
        keys.set(f"clock {rank}", clock := clock_identity())
        self.group: Any = ProcessGroupGloo(keys, rank, size, timeout=_NO_TIMEOUT)
        # Ranks whose clock is another one than ours: no moment is sent to them, but what is left.
        self.other_clock = {to for to in far if keys.get(f"clock {to}").decode() != clock}
        self.slot_bytes = (slot_bytes + 63) // 64 * 64  # as in shared memory
        self.ended, self.closing = ended, False
        self._far, self._bells = far, bells
        self._outboxes: dict[tuple[int, int], GlooOutbox] = {}
        self._byes: list[int] = []
        # All at once: Gloo sends nothing before the other side asks for it.
        self._inboxes = {
            (frm, plane): GlooInbox(self, frm, plane, bells.messages if plane else None)
            for frm in far
            for plane in range(len(PLANES))
        }
        self._lines = AlarmLines(self.group, far, board)
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
        self.closing = True
        self._lines.close()
        for inbox in self._inboxes.values():
            inbox.thread.join(1.0)
        for outbox in self._outboxes.values():
            outbox.thread.join(1.0)
        self._outboxes, self._inboxes = {}, {}  # they know us, and ``ended`` whom we serve:
        self.ended = lambda far, said_bye: None  # without these loops memory goes at once
