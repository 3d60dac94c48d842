"""The driver's door: agents that show the run's key are let in, all others are hung up on."""

from __future__ import annotations

import contextlib
import hmac
import logging
import queue
import secrets
import socket
import threading
from collections.abc import Iterator
from typing import Any

from workbench.common import ipc, threads
from workbench.launchers.processes.channel import Channel, Identity, accept

HELLO = 5.0  # seconds in which a caller must begin to speak
NAME = 30.0  # seconds in which one that has begun must have shown the key: its cores may be busy
LONGEST_HELLO = 1 << 16  # bytes
MOST_CALLERS = 64  # without a name yet, besides those that are awaited; then silent ones must go
_log = logging.getLogger("workbench.launchers")


class Doorkeeper:
    """Lets in callers that show the run's key, each asked in a thread of its own: one that says
    nothing, or too much, does not keep another waiting. ``identity``: callers must use TLS.
    ``awaited``: how many are to call, perhaps all at once.
    """

    def __init__(self, identity: Identity | None, awaited: int = 0) -> None:
        self._key, self._identity = secrets.token_hex(16), identity
        self._most = MOST_CALLERS + awaited
        self._known: queue.SimpleQueue[tuple[dict[str, Any], Channel]] = queue.SimpleQueue()
        self._asking: dict[socket.socket, bool] = {}  # the oldest first; whether it has spoken
        self._lock = threading.Lock()
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
        """Ask a caller for the key. Where there are too many, hang up on the one that has been
        silent for longest: an agent speaks at once.
        """
        with self._lock:
            if len(self._asking) >= self._most:
                silent = next((one for one, spoken in self._asking.items() if not spoken), None)
                if silent is None:
                    caller.close()
                    return _log.warning("hung up on %s:%s: too many have called", *address[:2])
                del self._asking[silent]
                _hang_up(silent)
            self._asking[caller] = False
        threads.start(lambda: self._ask(caller, address), "workbench caller", self.__exit__)

    def known(self) -> Iterator[tuple[dict[str, Any], Channel]]:
        """Yield the callers that have shown the key since the last call."""
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._known.get_nowait()

    def __enter__(self) -> Doorkeeper:
        return self

    def __exit__(self, *_of_error: object) -> None:
        """Ask no further caller."""
        self._over = True
        for caller in [*self._asking]:
            _hang_up(caller)
        for _, agent in self.known():
            agent.cut()  # one too many

    def _is_key(self, word: object) -> bool:
        return hmac.compare_digest(str(word).encode(errors="replace"), self._key.encode())

    def _ask(self, caller: socket.socket, address: Any) -> None:
        caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        agent, why = None, "it does not show the run's key"
        try:
            caller.settimeout(HELLO)
            if caller.recv(1, socket.MSG_PEEK):
                with self._lock:
                    if caller in self._asking:
                        self._asking[caller] = True
            if self._identity is None:
                agent = Channel(caller)
            else:
                agent = accept(caller, self._identity, NAME)
            agent.socket.settimeout(NAME)
            message = ipc.receive(agent.socket, most=LONGEST_HELLO)
            if message is not None and self._is_key(message[0].get("key")):
                if not self._over:
                    return self._known.put((message[0], agent))
                why = "all ranks have called"
        except (OSError, ValueError) as error:
            why = f"{why} ({error})"
        finally:
            with self._lock:
                self._asking.pop(caller, None)
        if agent is None:
            caller.close()
        else:
            agent.cut()
        if not self._over:
            _log.warning("hung up on %s:%s: %s", *address[:2], why)


def _hang_up(caller: socket.socket) -> None:
    """End the wait of the thread that asks it, which closes it."""
    with contextlib.suppress(OSError):
        caller.shutdown(socket.SHUT_RDWR)
