"""The size of a mailbox in shared memory, also for code that needs it before there is one."""

from __future__ import annotations

SLOTS = 4
# Between hosts: a sender hears of a free slot behind the data of the other direction, so that four
# slots of 256 KiB left a cable of 100 Mbit/s idle for a tenth of the time.
FAR_SLOTS = 8
HEADER_BYTES = 128  # two cache lines
HEAD_BYTES = 4096  # of a mailbox: its semaphores, on a page of their own


def stride(slot_bytes: int) -> int:
    """Return the bytes from one slot's header to the next: a header and its payload, in cache
    lines.
    """
    return (slot_bytes + HEADER_BYTES + 63) // 64 * 64


def mailbox_bytes(slot_bytes: int) -> int:
    """Return the bytes of a channel from one rank to another, all reserved when it is made."""
    return HEAD_BYTES + SLOTS * stride(slot_bytes)
