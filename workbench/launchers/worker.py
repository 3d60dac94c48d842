"""The driver's end of a rank process of the warm pool: its number, its socket, how it ended.

    workers = enlist(nursery(), range(4))
    for worker in workers:
        worker.order({"work": "timing", "rank": worker.rank}, fds=[control.fd])
    ...
    for worker in workers:
        worker.close()  # who has nothing left to do ends now
    end(workers, patience=2.0)

The order of things: whoever enlists has what ends the workers in place before, so that a failure in
between leaves no process; and takes a process before it opens what that is given.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from workbench import wire
from workbench.launchers.local import Nursery, RankProcess
from workbench.shared import how_it_ended

GONE = 5.0  # seconds that a process has to be gone once it is killed, on a busy machine


class Worker:
    """A process fresh from the nursery, which waits for its first order."""

    def __init__(self, rank: int, process: RankProcess, home: Nursery) -> None:
        self.rank, self.pid, self.socket = rank, process.pid, process.socket
        # The nursery holds this list and not the worker: where the driver lets go of a worker, its
        # socket closes, and its process ends.
        codes = self._codes = list[int]()
        home.watch(self.pid, lambda _, code: codes.append(code))

    @property
    def code(self) -> int | None:
        """How it ended, as ``waitstatus_to_exitcode`` gives it; None: it lives."""
        return self._codes[0] if self._codes else None

    @property
    def end(self) -> str:
        """How it ended, in words: "was killed by SIGKILL". It has."""
        return how_it_ended(self.code or 0)

    def order(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
        """Tell it. One that has ended is told nothing: that it has is seen by ``code``."""
        with contextlib.suppress(OSError):
            wire.send(self.socket, message, fds=fds)

    def hear(self) -> tuple[dict[str, Any], bytearray] | None:
        """Its next message and the bytes of it; None: there will be no more."""
        try:
            message = wire.receive(self.socket)
        except (OSError, ValueError):
            return None
        return None if message is None else message[:2]

    def signal(self, number: signal.Signals) -> None:
        """To its process; not once that has ended, when its number may be somebody else's."""
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def close(self) -> None:
        """Hang up, and give back what the driver holds of it. One that lives ends when it reads."""
        self.socket.close()


def enlist(home: Nursery, ranks: Sequence[int]) -> list[Worker]:
    """A fresh process for each of these ranks. Raises WorkbenchError if there is none to have."""
    taken = home.take(len(ranks))
    return [Worker(rank, process, home) for rank, process in zip(ranks, taken, strict=True)]


def ended(workers: Iterable[Worker]) -> dict[int, int]:
    """Rank -> exit code of those that have ended."""
    return {one.rank: code for one in workers if (code := one.code) is not None}


def settle(workers: Iterable[Worker], seconds: float) -> None:
    """Wait until all of them have ended, no longer than that."""
    left, deadline = list(workers), time.monotonic() + seconds
    while (left := [one for one in left if one.code is None]) and time.monotonic() < deadline:
        time.sleep(0.002)


def end(workers: Sequence[Worker], patience: float = 0.0) -> None:
    """Returns when all are gone: those that do not end by themselves in so many seconds, killed."""
    settle(workers, patience)
    for one in workers:
        one.signal(signal.SIGKILL)
    settle(workers, GONE)
