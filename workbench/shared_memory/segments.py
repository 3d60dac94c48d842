"""Shared memory and semaphores without names: nothing to sweep, nothing left behind.

A ``Segment`` is a memfd: it exists as long as a process maps it, and never appears in /dev/shm. A
peer opens it through ``/proc/<pid>/fd/<n>``. Space is reserved before it is mapped, so that too
little memory is an error with the size needed, never a bus error later. A ``semaphore`` is a POSIX
one inside such a segment (``sem_init`` with ``pshared``), driven by the C object that
multiprocessing uses for its own: 40-70 ns uncontended, a timed wait, the interpreter lock released
while it blocks.
"""

from __future__ import annotations

import _multiprocessing  # type: ignore[import-not-found]  # no stubs
import ctypes
import mmap
import os
import signal
import sys
from collections.abc import Callable
from typing import Protocol

from workbench.common.errors import WorkbenchError
from workbench.shared_memory.ordering import need_order

SEMAPHORE_BYTES = 64  # a cache line each, so that two of them never share one
_libc = ctypes.CDLL(None, use_errno=True)


class Semaphore(Protocol):
    """The part of ``_multiprocessing.SemLock`` that we use."""

    def acquire(self, block: bool = True, timeout: float | None = None, /) -> bool: ...
    def release(self) -> None: ...


def reserve(fd: int, offset: int, nbytes: int, what: str) -> None:
    """Allocate ``nbytes`` from ``offset`` of a memfd or file, for ``what``.

    Raises WorkbenchError if there is too little memory.
    """
    try:
        os.posix_fallocate(fd, offset, nbytes)
    except OSError as error:
        raise WorkbenchError(
            f"too little shared memory for {what}: it needs {nbytes:,} bytes, and reserving them "
            f"failed: {error.strerror}. Use fewer ranks or a smaller chunk_bytes, or raise the "
            "memory limit of this machine (container)."
        ) from error


class Segment:
    """A piece of memory that several processes map. ``words`` is the same memory as int64."""

    def __init__(self, fd: int, nbytes: int, pid: int | None = None) -> None:
        self.fd, self.nbytes, self.pid = -1, nbytes, pid or os.getpid()
        self.map = mmap.mmap(fd, nbytes)
        self.memory = memoryview(self.map)
        self.words = self.memory[: nbytes // 8 * 8].cast("q")
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.fd = fd  # ours from here on: had something failed, it would be the caller's to close

    @classmethod
    def create(cls, nbytes: int, what: str) -> Segment:
        """Create a zeroed, reserved segment. Raises WorkbenchError with the size needed."""
        if not sys.platform.startswith("linux"):
            raise WorkbenchError(
                f"the shared-memory transport needs Linux (memfd, futexes); this is {sys.platform}"
            )
        need_order(f"shared memory for {what}")
        fd = os.memfd_create(f"workbench {what}", os.MFD_CLOEXEC)
        try:
            reserve(fd, 0, nbytes, what)
            return cls(fd, nbytes)
        except BaseException:
            os.close(fd)
            raise

    @classmethod
    def attach(cls, pid: int, fd: int) -> Segment:
        """Map a segment that another process of this user and host holds open.

        The mapping has a descriptor of its own; this object keeps none.
        """
        descriptor = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
        try:
            segment = cls(descriptor, os.fstat(descriptor).st_size, pid)
        except BaseException:
            os.close(descriptor)
            raise
        segment.close()
        return segment

    def semaphore(self, offset: int, initial: int | None = None) -> Semaphore:
        """Return the semaphore at ``offset``; ``initial``: make it with this value; None: attach to
        the existing one.
        """
        address = self.address + offset
        if initial is not None and _libc.sem_init(
            ctypes.c_void_p(address), 1, ctypes.c_uint(initial)
        ):
            raise WorkbenchError(f"sem_init failed: {os.strerror(ctypes.get_errno())}")
        lock: Semaphore = _multiprocessing.SemLock._rebuild(
            address, 1, 2**31 - 1, None
        )  # kind 1: counting
        return lock

    def private_copy(self) -> Segment:
        """Return a copy in memory of this process alone, which takes no descriptor (a mapping of a
        shared one has its own) and no memory for pages without a word.
        """
        copy, page = Segment(-1, self.nbytes), mmap.PAGESIZE
        empty = bytes(page)
        for at in range(0, self.nbytes, page):
            if (words := self.map[at : at + page]) != empty[: len(words)]:
                copy.map[at : at + page] = words
        return copy

    def close(self) -> None:
        """Give the descriptor back; the mapping goes with its last user."""
        fd, self.fd = self.fd, -1  # first: two threads that close at once must not close twice
        if fd >= 0:
            os.close(fd)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if self.fd >= 0:  # it was never closed, as where a run could not begin
            close(self.fd)


def cause(error: OSError) -> OSError | None:
    """Return the cause to tell of where another process could not be looked into: None where it has
    ended, which is said anyway.
    """
    return None if isinstance(error, FileNotFoundError | ProcessLookupError) else error


def process_state(pid: int) -> str:
    """Return the kernel's letter for a process: R S D run or sleep, T stopped, Z or X ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return chr(file.read().rpartition(b")")[2].split()[0][0])
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def birth_ticks(pid: int) -> int:
    """Return when a process began, in clock ticks since the machine's start; 0: there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def describe_end(code: int) -> str:
    """Describe how a process ended, from its exit code as ``waitstatus_to_exitcode`` gives it."""
    if code < 0:
        named = -code in {*signal.Signals}  # most real-time signals have no name
        return f"killed by {signal.Signals(-code).name if named else f'signal {-code}'}"
    return "ended" if code == 0 else f"exited with code {code}"


def how_it_ended(code: int) -> str:
    """Describe it with its verb: "was killed by SIGKILL", "exited with code 3"."""
    return f"{'was ' if code < 0 else ''}{describe_end(code)}"
