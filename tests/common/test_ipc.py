"""Messages between processes."""

from __future__ import annotations

import socket
from typing import Any

from workbench.common import ipc


def test_a_peer_that_has_taken_all_of_a_message_may_go_at_once() -> None:
    mine, theirs = socket.socketpair()

    class Taken(socket.socket):
        """Its peer reads what is sent, and closes before anything else happens."""

        def send(self, data: Any, *flags: int) -> int:
            sent = super().send(data, *flags)
            assert ipc.receive(theirs) == ({"key": "wrong"}, bytearray(), [])
            theirs.close()
            return sent

    with Taken(fileno=mine.detach()) as sock:
        ipc.send(sock, {"key": "wrong"})
