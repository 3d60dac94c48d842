"""The driver's end of a rank process of the warm pool: its number, its socket, how it ended.

    handles = enlist(warm_pool(), range(4))
    for handle in handles:
        handle.order({"work": "timing", "rank": handle.rank}, fds=[control.fd])
    ...
    for handle in handles:
        handle.close()  # an idle rank ends now
    end(handles, patience=2.0)

Order matters: the caller of ``enlist`` first has in place what ends the ranks, so that a failure in
between leaves no process; and it takes a process before it opens the descriptors for it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from workbench.common import descriptors, ipc
from workbench.launchers.processes.launcher import RankHandle
from workbench.launchers.processes.pool import ForkServer, RankProcess
from workbench.shared_memory.segments import how_it_ended

GONE = 5.0  # seconds that a process has to be gone once it is killed, on a busy machine
REAPED = 30.0  # seconds that an exit code has to come, of a process that frees a GPU first


class LocalRank:
    """A fresh process of the warm pool, which waits for its first order (a ``RankHandle``)."""

    def __init__(self, rank: int, process: RankProcess, home: ForkServer) -> None:
        self.rank, self.pid, self.socket = rank, process.pid, process.socket
        self._process, self._frames = process, ipc.Frames()
        self._news: dict[str, Any] = {  # for its first order
            "environment": home.changes(),
            "files": descriptors.limit(),
        }
        # The fork server holds this list, not the handle: if the driver drops a handle, its socket
        # closes, and its process ends.
        codes = self._codes = list[int]()
        home.watch(self.pid, lambda _, code: codes.append(code))

    @property
    def code(self) -> int | None:
        """The exit code, as ``waitstatus_to_exitcode`` gives it; None: it lives."""
        return self._codes[0] if self._codes else None

    @property
    def end(self) -> str:
        """The end in words, such as "was killed by SIGKILL", of a process that has ended."""
        return how_it_ended(self.code or 0)

    def order(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
        """Send it a message; nothing if it has ended (see ``code``), or if it is our parent's."""
        if not self._process.ours:
            return
        news, self._news = self._news, {}
        with contextlib.suppress(OSError):
            ipc.send(self.socket, {**message, **news}, fds=fds)

    def hear(self) -> list[tuple[dict[str, Any], bytearray]] | None:
        """Return its messages that have come, and the bytes of each; None: there will be no
        more.
        """
        try:
            return self._frames.receive(self.socket) if self._process.ours else None
        except (OSError, ValueError):
            return None

    def signal(self, number: signal.Signals) -> None:
        """Signal its process, unless that has ended and its number may be another process's."""
        if self.code is None and self._process.ours:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def close(self) -> None:
        """Close its socket and descriptors. A process that lives ends when it reads."""
        self._process.hang_up()


def enlist(home: ForkServer, ranks: Sequence[int]) -> list[LocalRank]:
    """Take a fresh process for each of these ranks. Raises WorkbenchError if there is none."""
    processes = home.take(len(ranks))
    return [LocalRank(rank, process, home) for rank, process in zip(ranks, processes, strict=True)]


def ended(handles: Iterable[RankHandle]) -> dict[int, int]:
    """Return the exit codes by rank, of those that have ended."""
    return {one.rank: code for one in handles if (code := one.code) is not None}


def settle(handles: Iterable[RankHandle], seconds: float) -> None:
    """Wait until all of them have ended, no longer than that."""
    left, deadline = list(handles), time.monotonic() + seconds
    while (left := [one for one in left if one.code is None]) and time.monotonic() < deadline:
        time.sleep(0.002)


def end(handles: Sequence[RankHandle], patience: float = 0.0) -> None:
    """Wait until all have ended; kill those that have not within ``patience`` seconds."""
    settle(handles, patience)
    for one in handles:
        one.signal(signal.SIGKILL)
    settle(handles, GONE)
