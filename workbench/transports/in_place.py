"""Tensors that peers on this host read where they lie: one copy for a message instead of two.

Through a mailbox a message is copied twice, into slots and out of them. A tensor that ``Lender``
made lies in a memfd of its own: its message is a slot that only says where, and the receiver copies
from there, into its own tensor. Until then the message is not sent: its sender must not write to
it. A receiver that reads a message once need not copy it: it reads it where it lies, and gives it
back.

    the slot's header     step: the descriptor's number + 1   chunk: the first byte
                          checksum: the memfd's inode, because numbers of descriptors are used again
"""

from __future__ import annotations

import ctypes
import mmap
import os
import stat
import weakref
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import torch

from workbench.common.errors import WorkbenchError
from workbench.shared_memory.segments import Segment

LEAST = 1 << 18  # bytes of a message below which two copies cost less than waiting for a receiver
KEPT = 16  # memfds of one peer that a receiver keeps mapped
MOST = 64  # messages of one peer whose places a receiver remembers


class LentMemory(NamedTuple):
    """The place of a message: the sender's descriptor of a memfd, its inode, and the first byte."""

    fd: int
    inode: int
    offset: int


class Lender:
    """The tensors of this process that peers may read in place."""

    def __init__(self) -> None:
        self._lent: dict[int, tuple[Segment, int]] = {}  # by address: a memfd and its inode

    def empty_like(self, like: torch.Tensor) -> torch.Tensor:
        """Return a new tensor like this flat one, in shared memory where messages of it gain by
        that. Its values are arbitrary. The memory goes with the tensor and its views.
        """
        elements, nbytes = like.numel(), like.numel() * like.itemsize
        if nbytes < LEAST or like.device.type != "cpu":
            return torch.empty_like(like)
        segment = Segment.create(nbytes, "parameters that peers read in place")
        memory = np.frombuffer(segment.map, np.uint8)
        address = memory.ctypes.data
        with torch.inference_mode(False):  # it is written in other modes too
            result = torch.frombuffer(memory, dtype=like.dtype, count=elements)
        self._lent[address] = segment, os.fstat(segment.fd).st_ino
        weakref.finalize(memory, self._forget, address).atexit = False
        return result

    def place(self, tensor: torch.Tensor) -> LentMemory | None:
        """Return where the message of a contiguous tensor lies; None: it goes through slots."""
        if not self._lent or tensor.numel() * tensor.itemsize < LEAST:
            return None
        address = tensor.untyped_storage().data_ptr()
        if (lent := self._lent.get(address)) is None:
            return None
        return LentMemory(lent[0].fd, lent[1], tensor.data_ptr() - address)

    def _forget(self, address: int) -> None:
        segment, _ = self._lent.pop(address)
        segment.close()


class InPlace:
    """A message's ``bytes`` in its sender's memory. Writing to them would end the process."""

    __slots__ = "_tensor", "bytes"

    def __init__(self, memory: Any) -> None:
        self.bytes = memory
        self._tensor: torch.Tensor | None = None

    def tensor(self, dtype: torch.dtype) -> torch.Tensor:
        """Return them as a flat tensor, made once: the next message mostly lies there too."""
        if self._tensor is None or self._tensor.dtype != dtype:
            address = self.bytes.__array_interface__["data"][0]
            memory: Any = (ctypes.c_char * self.bytes.nbytes).from_address(address)
            memory.bytes = self.bytes  # keeps them mapped
            self._tensor = torch.frombuffer(memory, dtype=dtype)
        return self._tensor


class Borrower:
    """The memfds of one peer, as this process has them mapped: to be read, never written."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._maps: OrderedDict[int, Any] = OrderedDict()  # by inode
        self._messages: dict[tuple[int, int, int], InPlace] = {}  # by inode, first byte, how many

    def read(self, place: LentMemory, nbytes: int) -> InPlace:
        """Return a message where it lies.

        Raises OSError where it is gone with its process, WorkbenchError for a place outside.
        """
        where = place.inode, place.offset, nbytes
        message = self._messages.get(where)
        if message is None:
            if len(self._messages) >= MOST:
                self._messages.clear()
            message = self._messages[where] = InPlace(self._bytes(place, nbytes))
        return message

    def _bytes(self, place: LentMemory, nbytes: int) -> Any:
        memory = self._maps.get(place.inode)
        if memory is None:
            memory = self._maps[place.inode] = self._map(place)
            if len(self._maps) > KEPT:
                self._maps.popitem(last=False)
                self._messages.clear()
        if not 0 <= place.offset <= len(memory) - nbytes:
            raise WorkbenchError(
                f"process {self._pid} says that a message of {nbytes:,} bytes begins at byte "
                f"{place.offset:,} of memory that has {len(memory):,} bytes"
            )
        return memory[place.offset : place.offset + nbytes]

    def _map(self, place: LentMemory) -> Any:
        descriptor = os.open(f"/proc/{self._pid}/fd/{place.fd}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            if status.st_ino != place.inode or not stat.S_ISREG(status.st_mode):
                raise FileNotFoundError(f"descriptor {place.fd} is another one by now")
            return np.frombuffer(mmap.mmap(descriptor, 0, prot=mmap.PROT_READ), np.uint8)
        finally:
            os.close(descriptor)
