"""The interface of a directed channel between two ranks, for any transport.

A channel is a row of slots. The sender claims a free slot, fills it and posts it with a header; the
receiver takes the oldest posted slot, uses the payload in place and frees it. One thread at a time
on each side. Waiting happens on two counting semaphores, so that the caller decides how to wait.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from workbench.shared_memory.segments import Semaphore
from workbench.transports.sizes import FAR_SLOTS, HEADER_BYTES, SLOTS

__all__ = [
    "FAR_SLOTS",
    "HEADER",
    "HEADER_BYTES",
    "SLOTS",
    "Header",
    "Inbox",
    "Outbox",
    "Views",
    "checksum",
]


class Header(NamedTuple):
    """The header before a slot's payload."""

    generation: int
    op: int  # which collective of the group, or the message's number
    step: int
    chunk: int
    slot: int
    nbytes: int  # of this payload
    signature: int  # of the sender's call: messaging/fingerprint.py
    arrives: int = 0  # CLOCK_MONOTONIC ns before which the receiver must not look; 0: at once
    total: int = 0  # bytes of the whole message
    tag: int = 0
    checksum: int = 0
    slowness: int = 0  # thousandths of slow motion that went into ``arrives``


HEADER = struct.Struct("12q")


class Outbox(Protocol):
    """The sending end. ``moved`` counts the payload bytes that this transport copied."""

    slots: int
    free: Semaphore  # of that many
    moved: int
    slot_bytes: int

    def slot(self, dtype: Any) -> Any:
        """Return the claimed slot as a flat array (numpy) or tensor (torch) of ``dtype``."""

    def post(self, header: Header) -> None:
        """Hand the claimed slot over."""


class Inbox(Protocol):
    """The receiving end."""

    ready: Semaphore

    def header(self) -> Header: ...
    def fields(self) -> tuple[int, ...]: ...
    def slot(self, dtype: Any) -> Any: ...
    def release(self) -> None: ...


@dataclass(slots=True)
class Views:
    """One slot's payload as arrays of every dtype that was asked for; made once each."""

    memory: memoryview
    by_dtype: dict[Any, Any]

    def get(self, dtype: Any) -> Any:
        view = self.by_dtype.get(dtype)
        if view is None:
            if isinstance(dtype, torch.dtype):
                with torch.inference_mode(False):  # it is written in other modes too
                    view = torch.frombuffer(self.memory, dtype=dtype)
            else:
                view = np.frombuffer(self.memory, dtype=dtype)
            self.by_dtype[dtype] = view
        return view


def checksum(payload: memoryview) -> int:
    """Return a sum of words, which any single flipped byte changes."""
    words = len(payload) // 8
    total = int(np.add.reduce(np.frombuffer(payload, np.uint64, words))) if words else 0
    return (total + sum(payload[words * 8 :])) & 0x7FFF_FFFF_FFFF_FFFF
