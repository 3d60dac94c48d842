"""A rank's board: a page that its peers on the same host read, and where they can leave an alarm.

It says which operation of the group the rank is in, where its mailboxes are, and whether somebody
has found that the group cannot go on. One board a rank and group; peers find it through the store.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

from workbench import environment
from workbench.shared import Segment, process_state
from workbench.transports.bell import Bells

W_OP, W_ALARM, W_LEAVING = range(3)
STAYS, LEAVES, LEFT = range(3)
FIRST_AT = 64  # a semaphore: whose alarm it is
TEXT_AT, TEXT_BYTES, HISTORY_AT = 512, 1536, 2048
HISTORY = 64  # collectives of which peers can still ask what the owner passed
TABLE_AT = HISTORY_AT + 16 * HISTORY
PLANES = ("collective", "p2p")


def write_alarm(kind: str, rank: int, text: str) -> bytes:
    """Why a group has failed, in at most as many bytes as a board has for it: the text is cut."""
    for most in (1000, 400, 100, 0):  # JSON may take six bytes for a letter
        data = json.dumps({"kind": kind[:100], "rank": rank, "text": text[:most]}).encode()
        if len(data) <= TEXT_BYTES - 8:
            break
    return data


def read_alarm(data: bytes) -> dict[str, Any]:
    """``write_alarm`` undone. Of other bytes the words are lost, the alarm is not."""
    try:
        told = json.loads(data)
        return {"kind": str(told["kind"]), "rank": int(told["rank"]), "text": str(told["text"])}
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return {"kind": "CollectiveError", "rank": -1, "text": "a peer gave up"}


def host_identity() -> str:
    """Equal on two processes exactly if one can open the other's memory.

    ``WORKBENCH_HOST`` overrides it (tests).
    """
    if given := environment.text("WORKBENCH_HOST"):
        return given
    with open("/proc/sys/kernel/random/boot_id") as file:
        return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')} {os.getuid()}"


class Board:
    def __init__(self, segment: Segment, fresh: bool) -> None:
        self.segment, self.words = segment, segment.words
        if fresh:
            self.words[W_OP] = self.words[HISTORY_AT // 8] = -1
        self._first = segment.semaphore(FIRST_AT, 1 if fresh else None)

    @classmethod
    def create(cls, size: int) -> Board:
        nbytes = (
            TABLE_AT + 8 * (len(PLANES) + 2) * size
        )  # mailboxes by plane and peer; who has come; who has given up
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

    def give_up(self, visitor: int, size: int, op: int) -> None:
        """A peer notes on the owner's board that it does no more from that collective on."""
        self.words[TABLE_AT // 8 + (len(PLANES) + 1) * size + visitor] = op + 2

    def given_up(self, size: int) -> int:
        """The first collective in which a peer of the owner's gave up; -1: before any."""
        first = TABLE_AT // 8 + (len(PLANES) + 1) * size
        return min((word - 2 for word in self.words[first : first + size] if word), default=-1)

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
        """Tell the owner, once, that the group has failed: the first alarm stays, whole."""
        if self._first.acquire(False):
            data = write_alarm(kind, rank, text)
            self.segment.memory[TEXT_AT : TEXT_AT + len(data)] = data
            self.words[W_ALARM] = len(data)

    def alarm(self) -> dict[str, Any] | None:
        size = self.words[W_ALARM]
        if not size:
            return None
        return read_alarm(bytes(self.segment.memory[TEXT_AT : TEXT_AT + size]))


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
