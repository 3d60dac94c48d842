"""Mailboxes between hosts: Gloo point to point, a header of fixed size before every payload.

A thread for each incoming channel takes messages off the wire into a few slots, so that the receiver
waits on a semaphore here as it does in shared memory, and a full row of slots holds the sender back.
"""

from __future__ import annotations

import threading
from collections import deque
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroupGloo

from workbench.errors import PeerLost
from workbench.transports.mailbox import HEADER, SLOTS, Header, Views

_BYE = Header(-1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0)


class _Always:
    """The free slots of a channel whose back-pressure is the wire itself."""

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        return True

    def release(self) -> None:
        pass


class GlooOutbox:
    def __init__(self, group: Any, to: int, plane: int, slot_bytes: int) -> None:
        self.free, self.moved, self.slot_bytes = _Always(), 0, slot_bytes
        self._group, self._to, self._tag = group, to, 2 * plane
        self._header = torch.zeros(HEADER.size // 8, dtype=torch.int64)
        self._payload = torch.zeros(slot_bytes, dtype=torch.uint8)
        self._views = Views(memoryview(self._payload.numpy()), {})

    def slot(self, dtype: Any) -> Any:
        return self._views.get(dtype)

    def post(
        self, generation: int, op: int, step: int, chunk: int, slot: int, nbytes: int, signature: int,
        arrives: int = 0, total: int = 0, tag: int = 0, checksum: int = 0,
    ) -> None:  # fmt: skip
        self._send(
            Header(
                generation, op, step, chunk, slot, nbytes, signature, arrives, total, tag, checksum
            )
        )

    def _send(self, header: Header) -> None:
        self._header.copy_(torch.tensor(header))
        try:
            self._group.send([self._header], self._to, self._tag).wait()
            if header.nbytes > 0:
                self._group.send([self._payload[: header.nbytes]], self._to, self._tag + 1).wait()
        except RuntimeError as error:
            raise PeerLost(
                f"group rank {self._to} could not be reached over Gloo: {error}"
            ) from error
        self.moved += max(header.nbytes, 0)

    def drained(self) -> bool:
        return True

    def close(self) -> None:
        try:
            self._send(_BYE)
        except PeerLost:
            pass  # nobody is there to be told


class GlooInbox:
    def __init__(self, group: Any, frm: int, plane: int, slot_bytes: int, bell: Any) -> None:
        self.ready = threading.Semaphore(0)
        self._room = threading.Semaphore(SLOTS)
        self._group, self._frm, self._tag, self._bell = group, frm, 2 * plane, bell
        self._buffers = [np.zeros(slot_bytes, np.uint8) for _ in range(SLOTS)]
        self._views = [Views(memoryview(buffer), {}) for buffer in self._buffers]
        self._headers: deque[Header] = deque()
        self._turn, self._filled = 0, 0
        self._error: PeerLost | None = None
        self.closing = False
        self.thread = threading.Thread(target=self._read, daemon=True, name=f"workbench from {frm}")
        self.thread.start()

    def _read(self) -> None:
        words = torch.zeros(HEADER.size // 8, dtype=torch.int64)
        while True:
            while not self._room.acquire(timeout=0.05):
                if self.closing:
                    return
            try:
                self._group.recv([words], self._frm, self._tag).wait()
                header = Header(*words.tolist())
                if header.nbytes > 0:
                    place = torch.from_numpy(self._buffers[self._filled][: header.nbytes])
                    self._group.recv([place], self._frm, self._tag + 1).wait()
            except RuntimeError as error:
                self._error = PeerLost(f"group rank {self._frm} was lost: {error}")
                self._arrive(_BYE)
                return
            if header.nbytes < 0:
                return
            self._filled = (self._filled + 1) % SLOTS
            self._arrive(header)

    def _arrive(self, header: Header) -> None:
        self._headers.append(header)
        self.ready.release()
        if self._bell is not None:
            self._bell.ring()

    def header(self) -> Header:
        header = self._headers[0]
        if header.nbytes < 0 and self._error is not None:
            raise self._error
        return header

    fields = header

    def slot(self, dtype: Any) -> Any:
        return self._views[self._turn].get(dtype)

    def release(self) -> None:
        self._headers.popleft()
        self._turn = (self._turn + 1) % SLOTS
        self._room.release()


class GlooChannels:
    """All channels of one group that cross hosts."""

    def __init__(
        self, store: dist.Store, rank: int, size: int, timeout: timedelta, slot_bytes: int
    ) -> None:
        self._group = ProcessGroupGloo(dist.PrefixStore("far", store), rank, size, timeout=timeout)
        self._slot_bytes = slot_bytes
        self._outboxes: list[GlooOutbox] = []
        self._inboxes: list[GlooInbox] = []

    def outbox(self, to: int, plane: int) -> GlooOutbox:
        self._outboxes.append(GlooOutbox(self._group, to, plane, self._slot_bytes))
        return self._outboxes[-1]

    def inbox(self, frm: int, plane: int, bell: Any) -> GlooInbox:
        self._inboxes.append(GlooInbox(self._group, frm, plane, self._slot_bytes, bell))
        return self._inboxes[-1]

    def close(self) -> None:
        for inbox in self._inboxes:
            inbox.closing = True
        for outbox in self._outboxes:
            outbox.close()
        for inbox in self._inboxes:
            inbox.thread.join(5.0)
