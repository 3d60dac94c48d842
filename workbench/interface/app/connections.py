"""Connections of a web server, counted: of each address and in all.

    accept -> a descriptor left? -> fewer than its address may have? -> fewer than all? -> served

A connection that is one too many is closed at once. Without this, a few hundred idle ones take all
descriptors of the process: then no run can start, and the loop that accepts them spins.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sys
import time
from collections import Counter
from typing import Any

from workbench.common import descriptors
from workbench.interface.app.guesses import network

SHARE = 2  # connections take at most this part of the process's descriptors: half of them
SHARE_OF_ADDRESS = 2  # and those of one address this part of all connections
SILENT_S = 60.0  # between two lines in the terminal
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_AT_ONCE = 128  # callers that are hung up on before others have their turn


class Listener(socket.socket):
    """A listening socket whose callers are counted. ``proxied``: a proxy passes on all callers'
    requests, so that its address may have as many connections as all.
    """

    def __init__(self, listening: socket.socket, proxied: bool = False) -> None:
        super().__init__(fileno=listening.detach())
        self.setblocking(False)
        self._proxied = proxied
        self._counts: Counter[str] = Counter()
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._newest_line = -SILENT_S

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next caller that is served. Raises BlockingIOError where there is none."""
        for _ in range(_AT_ONCE):
            try:
                number, address = self._accept()  # type: ignore[attr-defined]
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                self._hang_up_on_one(error)
                continue
            caller = _Connection(number, self._counts, network(str(address[0])) if address else "")
            if not self._is_one_too_many(caller.address):
                return caller, address
            caller.close()
        raise BlockingIOError(errno.EAGAIN, "other callers have their turn")

    def close(self) -> None:
        """Stop listening."""
        super().close()
        spare, self._spare = self._spare, -1
        if spare >= 0:
            os.close(spare)

    def _is_one_too_many(self, address: str) -> bool:
        most = max(descriptors.limit() // SHARE, 1)
        of_one = most if self._proxied else max(most // SHARE_OF_ADDRESS, 1)
        if self._counts[address] > of_one:
            self._say(f"{address} has {of_one} connections: more are closed at once")
        elif self._counts.total() > most:
            self._say(f"{most} connections are open: more are closed at once")
        else:
            return False
        return True

    def _hang_up_on_one(self, error: OSError) -> None:
        """Accept a caller with a descriptor that was kept for this, and close the connection. Else
        it would wait in the queue, and wake the loop again and again.
        """
        self._say(f"no connection can be accepted: {error.strerror}")
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1
        with contextlib.suppress(OSError):
            os.close(self._accept()[0])  # type: ignore[attr-defined]
        with contextlib.suppress(OSError):  # another thread was quicker: the next one tries again
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        if self._spare < 0:
            time.sleep(0.01)  # without it the loop would spin

    def _say(self, words: str) -> None:
        if time.monotonic() - self._newest_line > SILENT_S:
            self._newest_line = time.monotonic()
            print(f"The web app: {words}.", file=sys.stderr, flush=True)


class _Connection(socket.socket):
    """A caller's connection, which counts until it is closed."""

    def __init__(self, number: int, counts: Counter[str], address: str) -> None:
        super().__init__(fileno=number)
        self.address, self._counts = address, counts
        counts[address] += 1

    def close(self) -> None:
        """Close it, and count it no more."""
        counts, self._counts = self._counts, Counter()
        counts[self.address] -= 1
        if counts[self.address] <= 0:
            del counts[self.address]
        super().close()

    def __del__(self) -> None:
        self.close()
