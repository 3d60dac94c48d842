"""The driver's door: agents that show the run's key are let in, all others are hung up on."""

from __future__ import annotations

import contextlib
import hmac
import logging
import queue
import secrets
import socket
from collections.abc import Iterator
from typing import Any

from workbench.common import ipc, threads
from workbench.launchers.processes.channel import Channel, Identity, accept

HELLO = 5.0  # seconds in which a caller must send its name
LONGEST_HELLO = 1 << 16  # bytes
MOST_CALLERS = 64  # without a name yet, besides those that are awaited; more are hung up on
_log = logging.getLogger("workbench.launchers")


class Doorkeeper:
    """Lets in callers that show the run's key, each asked in a thread of its own: one that says
    nothing, or too much, keeps no other waiting. ``identity``: callers must speak TLS. ``awaited``:
    how many are to call, perhaps all at once.
    """

    def __init__(self, identity: Identity | None, awaited: int = 0) -> None:
        self._key, self._identity = secrets.token_hex(16), identity
        self._most = MOST_CALLERS + awaited
        self._known: queue.SimpleQueue[tuple[dict[str, Any], Channel]] = queue.SimpleQueue()
        self._asking: set[socket.socket] = set()
        self._over = False

    @property
    def proof(self) -> str:
        """The key, and the fingerprint of the driver that an agent is to trust."""
        return f"{self._key}/{self._identity.fingerprint}" if self._identity else self._key

    @property
    def asks(self) -> bool:
        """Return whether a caller has yet to identify itself, or to be taken."""
        return bool(self._asking) or not self._known.empty()

    def ask(self, caller: socket.socket, address: Any) -> None:
        """Ask one who has called who it is."""
        if len(self._asking) >= self._most:
            caller.close()
            return _log.warning("hung up on %s:%s: too many have called", *address[:2])
        self._asking.add(caller)
        threads.start(lambda: self._ask(caller, address), "workbench caller", self.__exit__)

    def known(self) -> Iterator[tuple[dict[str, Any], Channel]]:
        """Yield those who have shown the key since the last call."""
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._known.get_nowait()

    def __enter__(self) -> Doorkeeper:
        return self

    def __exit__(self, *_of_error: object) -> None:
        """Ask nobody any more."""
        self._over = True
        for caller in [*self._asking]:
            with contextlib.suppress(OSError):
                caller.shutdown(socket.SHUT_RDWR)
        for _, agent in self.known():
            agent.cut()  # one too many

    def _ask(self, caller: socket.socket, address: Any) -> None:
        caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        agent, why = None, "it does not show the run's key"
        try:
            if self._identity is None:
                agent = Channel(caller)
            else:
                agent = accept(caller, self._identity, HELLO)
            agent.socket.settimeout(HELLO)
            message = ipc.receive(agent.socket, most=LONGEST_HELLO)
            if message is not None and hmac.compare_digest(str(message[0].get("key")), self._key):
                if not self._over:
                    return self._known.put((message[0], agent))
                why = "all ranks have called"
        except (OSError, ValueError) as error:
            why = f"{why} ({error})"
        finally:
            self._asking.discard(caller)
        if agent is None:
            caller.close()
        else:
            agent.cut()
        if not self._over:
            _log.warning("hung up on %s:%s: %s", *address[:2], why)
