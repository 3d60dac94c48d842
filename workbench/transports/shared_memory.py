"""Mailboxes in shared memory: slots, a header each, two semaphores; a memfd for each directed pair.

The sender makes the memfd when it first has something for that peer and puts its descriptor's
number on its page; the receiver opens it through /proc. Nothing has a name, so nothing can be
left behind.

    | ready | free | ... a page | header 0 | payload 0 | header 1 | payload 1 | ...
"""

from __future__ import annotations

from typing import Any

from workbench.shared_memory.ordering import fence
from workbench.shared_memory.segments import SEMAPHORE_BYTES, Segment
from workbench.transports.mailbox import HEADER, HEADER_BYTES, SLOTS, Header, Views
from workbench.transports.sizes import HEAD_BYTES, mailbox_bytes

TURN, MOVED = range(2)  # of a mailbox's counts
_unpack, _pack = HEADER.unpack_from, HEADER.pack_into


class _Mailbox:
    def __init__(self, segment: Segment, fresh: bool) -> None:
        self.segment = segment
        self.ready = segment.semaphore(0, 0 if fresh else None)
        self.free = segment.semaphore(SEMAPHORE_BYTES, SLOTS if fresh else None)
        self.stride = (segment.nbytes - HEAD_BYTES) // SLOTS
        self.slot_bytes = self.stride - HEADER_BYTES
        self.memory = segment.memory
        starts = [HEAD_BYTES + i * self.stride for i in range(SLOTS)]
        self._headers = starts
        payloads = [segment.memory[at + HEADER_BYTES : at + self.stride] for at in starts]
        self._views = [Views(payload, {}) for payload in payloads]
        # Its next slot, and the bytes sent: of this end alone, for Python and the mover.
        self.counts = memoryview(bytearray(16)).cast("q")

    @property
    def moved(self) -> int:
        return self.counts[MOVED]

    def slot(self, dtype: Any) -> Any:
        return self._views[self.counts[TURN]].get(dtype)


class SharedOutbox(_Mailbox):
    """The end that a rank sends through."""

    slots = SLOTS

    def __init__(self, slot_bytes: int, what: str) -> None:
        super().__init__(Segment.create(mailbox_bytes(slot_bytes), what), fresh=True)
        self.bell: Any = (
            None  # set for point to point: wakes a receiver that waits for several senders
        )

    def post(self, header: Header) -> None:
        counts = self.counts
        turn = counts[TURN]
        _pack(self.memory, self._headers[turn], *header)
        counts[MOVED] += header.nbytes
        counts[TURN] = (turn + 1) % SLOTS
        self.ready.release()
        if self.bell is not None:
            self.bell.ring()

    def waiting(self) -> int:
        """Return how many slots the receiver has not given back. What was in the others is read."""
        free: int = self.free._get_value()  # type: ignore[attr-defined]
        fence()  # unlike acquiring, this orders nothing
        return SLOTS - free

    def drained(self) -> bool:
        """Return whether the receiver has taken all that was posted."""
        return not self.waiting()


class SharedInbox(_Mailbox):
    """The end that a rank receives from."""

    def __init__(self, segment: Segment) -> None:
        super().__init__(segment, fresh=False)
        self.bell: Any = None

    def fields(self) -> tuple[int, ...]:
        """Return the header of the oldest slot as plain numbers, in the order of ``Header``'s
        fields.
        """
        return _unpack(self.memory, self._headers[self.counts[TURN]])

    def header(self) -> Header:
        return Header(*self.fields())

    def release(self) -> None:
        self.pass_by()
        self.give_back()

    def pass_by(self) -> None:
        """Go on to the next slot, and keep this one: its message is still read."""
        self.counts[TURN] = (self.counts[TURN] + 1) % SLOTS

    def give_back(self) -> None:
        """Give a slot back to the sender."""
        self.free.release()
        if self.bell is not None:
            self.bell.ring()
