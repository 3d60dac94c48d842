"""A rank's board: a page that its peers on the same host read, and where they can leave an alarm.

It says which operation of the group the rank is in, where its mailboxes are, and whether somebody
has found that the group cannot go on. One board a rank and group; peers find it through the store.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

from workbench.shared import Segment, process_state
from workbench.transports.bell import Bells

W_OP, W_ALARM, W_LEAVING = range(3)
STAYS, LEAVES, LEFT = range(3)
TEXT_AT, TEXT_BYTES, HISTORY_AT = 512, 1536, 2048
HISTORY = 64  # collectives of which peers can still ask what the owner passed
TABLE_AT = HISTORY_AT + 16 * HISTORY
PLANES = ("collective", "p2p")


def host_identity() -> str:
    """Equal on two processes exactly if one can open the other's memory.

    ``WORKBENCH_HOST`` overrides it (tests).
    """
    if given := os.environ.get("WORKBENCH_HOST"):
        return given
    with open("/proc/sys/kernel/random/boot_id") as file:
        return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')} {os.getuid()}"


class Board:
    def __init__(self, segment: Segment, fresh: bool) -> None:
        self.segment, self.words = segment, segment.words
        if fresh:
            self.words[W_OP] = self.words[HISTORY_AT // 8] = -1

    @classmethod
    def create(cls, size: int) -> Board:
        nbytes = (
            TABLE_AT + 8 * (len(PLANES) + 1) * size
        )  # mailboxes by plane and peer; who has come
        return cls(Segment.create(nbytes, "a rank's board"), fresh=True)

    def mailbox(self, plane: int, to: int, size: int) -> int:
        """The descriptor of the owner's mailbox to that group rank, or -1 while there is none."""
        return self.words[TABLE_AT // 8 + plane * size + to] - 1

    def publish_mailbox(self, plane: int, to: int, size: int, fd: int) -> None:
        self.words[TABLE_AT // 8 + plane * size + to] = fd + 1

    def sign(self, visitor: int, size: int) -> None:
        """A peer notes on the owner's board that it has opened it."""
        self.words[TABLE_AT // 8 + len(PLANES) * size + visitor] = 1

    def signed(self, visitor: int, size: int) -> bool:
        return bool(self.words[TABLE_AT // 8 + len(PLANES) * size + visitor])

    def begin(self, op: int, signature: int) -> None:
        """The owner enters a collective. Nobody takes one collective's signature for another's."""
        words, at = self.words, HISTORY_AT // 8 + op % HISTORY * 2
        words[at] = -1
        words[at + 1] = signature
        words[at] = words[W_OP] = op

    @property
    def doing(self) -> tuple[int, int]:
        """The collective that the owner is in, or was in last, and its signature; (-1, 0) before.

        For the owner alone to ask.
        """
        op = self.words[W_OP]
        return op, self.signature(op) or 0

    def signature(self, op: int) -> int | None:
        """What the owner passed to that collective; None if it has not come there, or long ago."""
        at = HISTORY_AT // 8 + op % HISTORY * 2
        if self.words[at] != op:
            return None
        signature = self.words[at + 1]
        return signature if self.words[at] == op else None

    @property
    def leaving(self) -> int:
        """STAYS, LEAVES (takes nothing any more) or LEFT (all that it sent has been taken)."""
        return self.words[W_LEAVING]

    @leaving.setter
    def leaving(self, stage: int) -> None:
        self.words[W_LEAVING] = stage

    def raise_alarm(self, kind: str, rank: int, text: str) -> None:
        """Tell the owner, once, that the group has failed: the first alarm stays."""
        if not self.words[W_ALARM]:
            data = json.dumps({"kind": kind, "rank": rank, "text": text[:1000]}).encode()[
                : TEXT_BYTES - 8
            ]
            self.segment.memory[TEXT_AT : TEXT_AT + len(data)] = data
            self.words[W_ALARM] = len(data)

    def alarm(self) -> dict[str, Any] | None:
        size = self.words[W_ALARM]
        if not size:
            return None
        try:
            return dict(json.loads(bytes(self.segment.memory[TEXT_AT : TEXT_AT + size])))
        except ValueError:  # cut off: the words are lost, the alarm is not
            return {"kind": "CollectiveError", "rank": -1, "text": "a peer gave up"}


@dataclass
class Peer:
    """Another member of the group: its world rank, process, host, and its board if on this host."""

    rank: int
    pid: int
    host: str
    board: Board | None
    bells: Bells | None = None  # of another process on this host
    lost = False  # a rank on another host: its connection broke
    said_bye = False  # a rank on another host

    def state(self) -> str:
        """The kernel's letter for its process; "?" on another host."""
        return process_state(self.pid) if self.board is not None else "?"

    @property
    def left(self) -> bool:
        """Has it left the group in good order?"""
        return self.said_bye if self.board is None else self.board.leaving == LEFT

    @property
    def gone(self) -> bool:
        """Has it ended without leaving the group first?"""
        return self.lost or (self.board is not None and self.state() in "ZX" and not self.left)

    @property
    def deaf(self) -> bool:
        """Will it never again take anything that was sent to it?"""
        return self.gone or self.left or (self.board is not None and self.board.leaving != STAYS)
