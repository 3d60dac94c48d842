"""Alarms between hosts, where no memory is shared: a page of bytes over a Gloo group.

A line also says that its peer has left, by an empty page, or is lost, by its end without one.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch

from workbench.common.errors import WorkbenchError
from workbench.transports.joining import UNLIMITED
from workbench.transports.peer_page import PLANES, TEXT_BYTES, PeerPage, read_alarm, write_alarm

# Tags of the wire: after a plane's headers and payloads; of the last nothing is ever sent.
_ALARM, _NEVER = 2 * len(PLANES), 2 * len(PLANES) + 1


class AlarmLines:
    """Lines to the group ranks ``far``. ``peer_page``: this rank's own, which gets their alarms.
    ``ended(rank, said_bye)`` is called when a line has ended.
    """

    def __init__(
        self,
        group: Any,
        far: list[int],
        peer_page: PeerPage,
        ended: Callable[[int, bool], None] = lambda far, said_bye: None,
    ) -> None:
        self.ended = ended
        self._group, self._far, self._peer_page, self._closing = group, far, peer_page, False
        self._listeners = [
            threading.Thread(target=self._listen, args=(frm,), daemon=True) for frm in far
        ]
        for listener in self._listeners:
            listener.start()
        self._alarms: list[Any] = []  # under way, with what they send: Gloo does not keep it

    def raise_alarm(self, error: WorkbenchError) -> None:
        """Tell every rank on another host that the group has failed."""
        self._tell(write_alarm(error))

    def say_bye(self, seconds: float = 0.0) -> None:
        """Tell them that this rank leaves, and wait so long until they have it. Without it a closed
        connection looks like a lost one.
        """
        byes, deadline = self._tell(b""), time.monotonic() + seconds
        for work in byes if seconds else []:
            left = max(1e-3, deadline - time.monotonic())
            with contextlib.suppress(RuntimeError):
                work.wait(timedelta(seconds=left))

    def _tell(self, data: bytes) -> list[Any]:
        page = torch.zeros(TEXT_BYTES, dtype=torch.uint8)
        page[: len(data)] = torch.frombuffer(bytearray(data or b"\0"), dtype=torch.uint8)[
            : len(data)
        ]
        works = []
        for to in self._far:
            with contextlib.suppress(RuntimeError):
                works.append(self._group.send([page], to, _ALARM))
        self._alarms += [(work, page) for work in works]
        return works

    def _listen(self, frm: int) -> None:
        page, said_bye = torch.zeros(TEXT_BYTES, dtype=torch.uint8), False
        with contextlib.suppress(RuntimeError):
            while not said_bye:
                self._group.recv([page], frm, _ALARM).wait(UNLIMITED)
                if text := bytes(page.numpy()).rstrip(b"\0"):
                    self._peer_page.raise_alarm(read_alarm(text))
                else:
                    said_bye = True
        if said_bye or not self._closing:
            self.ended(frm, said_bye)

    def close(self) -> None:
        """End all that still waits on the group's connections."""
        self._closing = True
        break_connections(self._group, self._far)
        for listener in self._listeners:
            listener.join(1.0)
        self.ended = lambda far, said_bye: None  # it refers to our owner: memory goes at once


def break_connections(group: Any, ranks: list[int]) -> None:
    """End whatever a Gloo group still waits for; its own ``abort`` does not.

    A wait of ours that times out closes the connection, and every operation on it fails.
    """
    nothing = torch.zeros(1)
    for rank in ranks:
        with contextlib.suppress(RuntimeError):
            group.recv([nothing], rank, _NEVER).wait(timedelta(milliseconds=1))
