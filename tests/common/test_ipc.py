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


def test_messages_are_taken_as_they_come_without_a_wait_for_the_rest_of_one() -> None:
    mine, theirs = socket.socketpair()
    frames = ipc.Frames()
    assert frames.receive(theirs) == []
    large = bytes(range(256)) * 400
    with mine, theirs:
        mine.sendall(ipc.frame({"first": 1}, large) + large[:-1])
        assert frames.receive(theirs) == []
        mine.sendall(large[-1:])
        assert frames.receive(theirs) == [({"first": 1}, large)]
        second = ipc.frame({"second": 2}, b"xy") + b"xy"
        mine.sendall(second + second + second[:5])
        assert frames.receive(theirs) == [({"second": 2}, b"xy")] * 2
        mine.sendall(second[5:])
        mine.shutdown(socket.SHUT_WR)
        assert frames.receive(theirs) == [({"second": 2}, b"xy")]
        assert frames.receive(theirs) is None
