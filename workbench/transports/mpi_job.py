"""This process in the MPI job that its ranks were started in: MPI begun, messages put on their way.

MPI is begun with the first group that has ranks on several hosts, by all ranks at once. One thread
per process makes all calls of MPI from then on, for all groups: it starts what is posted, takes
what arrives, and sleeps in between, the longer nothing has moved; no call of it blocks. What it
sends is complete once its receiver has begun to take it (``Issend``).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np

# The variables of MPICH's and of Open MPI's mpiexec: the number of ranks, and one of its own.
_STARTED = (("PMI_SIZE", "MPI_LOCALRANKID"), ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"))
_SHORTEST_S, _LONGEST_S, _LATE = 20e-6, 1e-3, 16  # late by a sixteenth of the silence
_AWAKE_S = 300e-6  # with something under way, since anything has moved
_SHARED = "/dev/shm/"


class Box(Protocol):
    """One end of a channel, as the thread sees it."""

    def progress(self) -> bool:
        """Do what can be done now; return whether anything moved."""

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do before the next post or arrival."""

    def arrived(self, message: Any, nbytes: int) -> None:
        """Take note of a message: matched, and not received yet."""

    def fail(self) -> None:
        """Take note that nothing can be sent or received any more."""


def ranks_by_mpiexec() -> int:
    """Return the number of ranks that the mpiexec has started which has started this process, or
    the agent above it; 0: none has.
    """
    for names in _STARTED:
        if all(os.environ.get(name, "").isdigit() for name in names):
            return int(os.environ[names[0]])
    return 0


def why_not(ranks: int) -> str:
    """Return why this process cannot begin MPI with a group of so many ranks, as far as is known
    before; "": nothing is known against it.
    """
    if not (started := ranks_by_mpiexec()):
        return "no mpiexec has started it"
    if started != ranks:
        return f"the group has {ranks} of the {started} ranks that mpiexec has started"
    if find_spec("mpi4py") is None:
        return "the package mpi4py is not installed there"
    return ""


class MpiJob:
    """``comm``: a communicator of our own, of all ranks of the job."""

    def __init__(self, mpi: Any, comm: Any) -> None:
        self.mpi, self.comm = mpi, comm
        self.rank: int = comm.Get_rank()
        self._most = comm.Get_attr(mpi.TAG_UB)
        self._tag = 0
        self._lock = threading.Lock()
        self._inboxes: dict[tuple[int, int], Box] = {}  # by MPI rank and tag
        self._groups = 0
        self.turns = 0  # that the thread has ended
        # Not a SimpleQueue: of timeouts as short as ours some never end (Python 3.11).
        self._posted: deque[Box | None] = deque()
        self._quiet = threading.Lock()  # held as long as nothing new is posted
        self._thread: threading.Thread | None = None
        self._strays: list[tuple[Any, Any]] = []  # of groups that this rank has left
        self._kept: list[Box] = []  # their memory may still be written to

    def take_tags(self, count: int) -> int:
        """Return the first of so many tags, under which others may send to this process."""
        with self._lock:
            if self._tag + count > self._most:
                self._tag = 0
            self._tag += count
            return self._tag - count

    def open(self, inboxes: dict[tuple[int, int], Box]) -> None:
        """Serve a group, whose messages arrive in these boxes, until ``close``."""
        with self._lock:
            self._inboxes |= inboxes
            self._groups += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True, name="workbench MPI")
                self._thread.start()

    def close(self, addresses: Iterable[tuple[int, int]], boxes: Iterable[Box]) -> None:
        """Serve a group no longer. Its boxes that are not idle are kept as they are."""
        thread = None
        with self._lock:
            for address in addresses:
                self._inboxes.pop(address, None)
            self._kept += [box for box in boxes if not box.idle]
            self._groups -= 1
            if not self._groups:
                thread, self._thread = self._thread, None
                self._post(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def submit(self, box: Box) -> None:
        """Have the thread look after a box."""
        self._post(box)

    def _post(self, box: Box | None) -> None:
        self._posted.append(box)
        with contextlib.suppress(RuntimeError):  # it has been released already
            self._quiet.release()

    def _run(self) -> None:
        busy: dict[Box, None] = {}
        last = moment = time.monotonic()
        pause = _SHORTEST_S
        while True:
            if busy and moment - last < _AWAKE_S:
                os.sched_yield()  # large messages move a piece with each look
            else:
                self._quiet.acquire(timeout=pause)
            while self._posted:
                if (box := self._posted.popleft()) is None:
                    return
                busy[box] = None
            moved = self._arrivals(busy)
            for box in [*busy]:
                moved = box.progress() or moved
                if box.idle:
                    del busy[box]
            self.turns += 1
            moment = time.monotonic()
            last = moment if moved else last
            pause = min(max((moment - last) / _LATE, _SHORTEST_S), _LONGEST_S)

    def _arrivals(self, busy: dict[Box, None]) -> bool:
        """Give what has arrived to the boxes that it is for."""
        status, moved = self.mpi.Status(), False
        try:
            while message := self.comm.Improbe(status=status):
                moved, nbytes = True, status.Get_count(self.mpi.BYTE)
                box = self._inboxes.get((status.Get_source(), status.Get_tag()))
                if box is None:
                    room = np.empty(nbytes, np.uint8)
                    self._strays.append((message.Irecv((room, nbytes, self.mpi.BYTE)), room))
                else:
                    box.arrived(message, nbytes)
                    busy[box] = None
            self._strays = [one for one in self._strays if not one[0].Test()]
        except self.mpi.Exception:
            for box in [*self._inboxes.values()]:
                box.fail()
        return moved


def load(lone: bool) -> str:
    """Load the library of MPI. Return why this process cannot begin it; "": it can.

    ``lone``: the process may end without its peers (a rank whose agent stays), so that MPI, whose
    end waits for all, is not ended with it.
    """
    import mpi4py

    mpi4py.rc.initialize, mpi4py.rc.finalize = False, not lone
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        return f"mpi4py cannot be loaded there ({error})"
    library = MPI.Get_library_version().split("\n")[0].strip("\0 ")
    by_open_mpi = _STARTED[1][0] in os.environ
    if library.startswith("Open MPI") != by_open_mpi:  # its begin would end the process
        whose = "Open MPI's" if by_open_mpi else "another MPI's"
        return f"{whose} mpiexec has started it, and mpi4py has loaded {library}"
    return ""


def begin(ranks: int, deadline: float, lone: bool) -> tuple[MpiJob | None, str]:
    """Begin MPI, as all ranks of the job do now, or find it begun; return this process's job, or
    why it has none.

    ``ranks``: as many as there must be; ``deadline``: by time.monotonic; ``lone``: as for ``load``.
    Raises TimeoutError.
    """
    from mpi4py import MPI

    known = _names_in_memory()
    if not MPI.Is_initialized():
        _in_time(lambda: _begin(MPI), deadline, "MPI_Init")
    if not MPI.Is_initialized():
        return None, "MPI_Init has failed there"
    world = MPI.COMM_WORLD
    if MPI.Query_thread() != MPI.THREAD_MULTIPLE:
        return None, "its MPI must not be called from several threads (MPI_THREAD_MULTIPLE)"
    if world.Get_size() != ranks:
        return None, f"its MPI counts {world.Get_size()} ranks, not {ranks}"
    for one in (world, MPI.COMM_SELF):
        one.Set_errhandler(MPI.ERRORS_RETURN)
    comm, request = world.Idup()
    while not request.Test():
        if time.monotonic() > deadline:
            raise TimeoutError("MPI_Comm_idup")
        time.sleep(1e-3)
    comm.Set_errhandler(MPI.ERRORS_RETURN)
    if lone:  # all have opened it by now: nothing is left behind, however they end
        for name in _names_in_memory() - known:
            with contextlib.suppress(OSError):
                os.unlink(name)
    return MpiJob(MPI, comm), ""


def _begin(mpi: Any) -> None:
    """Call MPI_Init_thread without the interpreter's lock, which mpi4py would keep."""
    level = ctypes.c_int()
    ctypes.CDLL(mpi.__file__).MPI_Init_thread(None, None, mpi.THREAD_MULTIPLE, ctypes.byref(level))


def _in_time(work: Callable[[], None], deadline: float, what: str) -> None:
    thread = threading.Thread(target=work, daemon=True, name=f"workbench {what}")
    thread.start()
    thread.join(max(0.0, deadline - time.monotonic()))
    if thread.is_alive():
        raise TimeoutError(what)


def _names_in_memory() -> set[str]:
    """Return the files of shared memory that this process has mapped."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        names = {line.split(maxsplit=5)[5].rstrip("\n") for line in file if _SHARED in line}
    return {name for name in names if name.startswith(_SHARED) and not name.endswith("(deleted)")}
