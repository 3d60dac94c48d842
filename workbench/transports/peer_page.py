"""A rank's peer page: memory that its peers on the same host read, and where they leave an alarm.

It says which operation of the group the rank is in, where its mailboxes are, and whether a rank
has found that the group cannot go on. One page a rank and group; peers find it through the store.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass

from workbench.common import environment
from workbench.common.errors import CollectiveError, WorkbenchError, from_fields
from workbench.shared_memory.ordering import fence, observe, publish
from workbench.shared_memory.segments import Segment, process_state
from workbench.transports.doorbell import Bells

W_OP, W_ALARM, W_LEAVING = range(3)
STAYS, LEAVES, LEFT = range(3)
FIRST_AT = 64  # a semaphore: whose alarm it is
TEXT_AT, TEXT_BYTES, HISTORY_AT = 512, 1536, 2048
HISTORY = 64  # collectives of which peers can still ask what the owner passed
LINES_AT, LINE_BYTES = HISTORY_AT + 16 * HISTORY, 64  # of an attached job, by collective
TABLE_AT = LINES_AT + LINE_BYTES * HISTORY
PLANES = ("collective", "p2p")


def write_alarm(error: WorkbenchError) -> bytes:
    """Return why a group has failed, in at most as many bytes as a page has room for: texts are
    cut.
    """
    fields = error.as_fields()
    for most in (1000, 400, 100, 0):  # JSON may take six bytes for a letter
        texts = {name: fields[name][:most] for name in ("text", "doing")}
        data = json.dumps(fields | texts | {"kind": fields["kind"][:100]}).encode()
        if len(data) <= TEXT_BYTES - 8:
            break
    return data


def read_alarm(data: bytes) -> WorkbenchError:
    """Return the error that ``write_alarm`` wrote; CollectiveError if the bytes are damaged."""
    try:
        facts = json.loads(data)
        blank = WorkbenchError().as_fields()
        return from_fields({name: type(value)(facts[name]) for name, value in blank.items()})
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return CollectiveError("a peer gave up")


def host_identity() -> str:
    """Return a text that is equal for processes exactly if they can open each other's memory.

    ``WORKBENCH_HOST`` overrides it (tests).
    """
    if name := environment.text("WORKBENCH_HOST"):
        return name
    with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
        return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')} {os.getuid()}"


def clock_identity() -> str:
    """Return a text that is equal for processes exactly if they read the same clock."""
    namespace = ""
    with contextlib.suppress(OSError):  # a kernel without time namespaces
        namespace = os.readlink("/proc/self/ns/time")
    with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
        return f"{file.read().strip()} {namespace}"


class PeerPage:
    def __init__(self, segment: Segment, fresh: bool) -> None:
        self.segment, self.words = segment, segment.words
        if fresh:
            self.words[W_OP] = self.words[HISTORY_AT // 8] = -1
        self._first = segment.semaphore(FIRST_AT, 1 if fresh else None)

    @classmethod
    def create(cls, size: int) -> PeerPage:
        # Mailboxes by plane and peer; the peers that have come; those that have given up.
        nbytes = TABLE_AT + 8 * (len(PLANES) + 2) * size
        return cls(Segment.create(nbytes, "a rank's peer page"), fresh=True)

    def mailbox(self, plane: int, to: int, size: int) -> int:
        """Return the descriptor of the owner's mailbox to that group rank, or -1 while there is
        none.
        """
        return observe(self.words, TABLE_AT // 8 + plane * size + to) - 1

    def publish_mailbox(self, plane: int, to: int, size: int, fd: int) -> None:
        publish(self.words, TABLE_AT // 8 + plane * size + to, fd + 1)

    def sign(self, visitor: int, size: int) -> None:
        """Note on the owner's page that this peer has opened it."""
        self.words[TABLE_AT // 8 + len(PLANES) * size + visitor] = 1

    def signed(self, visitor: int, size: int) -> bool:
        return bool(self.words[TABLE_AT // 8 + len(PLANES) * size + visitor])

    def give_up(self, visitor: int, size: int, op: int) -> None:
        """Note on the owner's page that this peer stops at that collective."""
        self.words[TABLE_AT // 8 + (len(PLANES) + 1) * size + visitor] = op + 2

    def given_up(self, size: int) -> int:
        """Return the first collective in which a peer of the owner's gave up; -1: before any."""
        first = TABLE_AT // 8 + (len(PLANES) + 1) * size
        return min((word - 2 for word in self.words[first : first + size] if word), default=-1)

    def begin(self, op: int, signature: int) -> None:
        """Enter a collective, as the owner. No peer can take one collective's fingerprint for
        another's.
        """
        words, at = self.words, HISTORY_AT // 8 + op % HISTORY * 2
        words[at] = -1
        fence()
        words[at + 1] = signature
        publish(words, at, op)
        publish(words, W_OP, op)

    @property
    def doing(self) -> tuple[int, int]:
        """The collective that the owner is in, or was in last, and its signature; (-1, 0) before.

        For the owner alone to ask.
        """
        op = self.words[W_OP]
        return op, self.signature(op) or 0

    def signature(self, op: int) -> int | None:
        """Return the fingerprint that the owner passed to that collective; None if it has not come
        there, or long ago.
        """
        at = HISTORY_AT // 8 + op % HISTORY * 2
        if observe(self.words, at) != op:
            return None
        signature = observe(self.words, at + 1)
        return signature if self.words[at] == op else None

    def note_line(self, op: int, line: str) -> None:
        """Note the line of the owner's program that makes a collective, before it begins."""
        at = LINES_AT + op % HISTORY * LINE_BYTES
        self.words[at // 8] = -1
        fence()
        text = line.encode()[: LINE_BYTES - 8].ljust(LINE_BYTES - 8, b"\0")
        self.segment.memory[at + 8 : at + LINE_BYTES] = text
        publish(self.words, at // 8, op + 1)

    def line(self, op: int) -> str:
        """Return the line of the owner's program that made that collective; "" if not known."""
        at = LINES_AT + op % HISTORY * LINE_BYTES
        if observe(self.words, at // 8) != op + 1:
            return ""
        text = bytes(self.segment.memory[at + 8 : at + LINE_BYTES])
        return text.rstrip(b"\0").decode(errors="replace") if self.words[at // 8] == op + 1 else ""

    @property
    def leaving(self) -> int:
        """STAYS, LEAVES (takes nothing any more) or LEFT (all that it sent has been taken)."""
        return observe(self.words, W_LEAVING)

    @leaving.setter
    def leaving(self, stage: int) -> None:
        publish(self.words, W_LEAVING, stage)

    def raise_alarm(self, error: WorkbenchError) -> None:
        """Tell the owner, once, that the group has failed: the first alarm stays, whole."""
        if self._first.acquire(False):
            data = write_alarm(error)
            self.segment.memory[TEXT_AT : TEXT_AT + len(data)] = data
            publish(self.words, W_ALARM, len(data))

    def alarm(self) -> WorkbenchError | None:
        """Return why the group has failed, as a peer has reported it; None without a report."""
        size = observe(self.words, W_ALARM)
        if not size:
            return None
        return read_alarm(bytes(self.segment.memory[TEXT_AT : TEXT_AT + size]))


@dataclass
class Peer:
    """Another member of the group: its world rank, process, host, and its page if on this host."""

    rank: int
    pid: int
    host: str
    page: PeerPage | None
    bells: Bells | None = None  # of another process on this host
    lost = False  # a rank on another host: its connection broke
    said_bye = False  # a rank on another host

    def state(self) -> str:
        """Return the kernel's letter for its process; "?" on another host."""
        return process_state(self.pid) if self.page is not None else "?"

    @property
    def left(self) -> bool:
        """Whether it has left the group in good order."""
        return self.said_bye if self.page is None else self.page.leaving == LEFT

    @property
    def gone(self) -> bool:
        """Whether it has ended without leaving the group first."""
        return self.lost or (self.page is not None and self.state() in "ZX" and not self.left)

    @property
    def deaf(self) -> bool:
        """Whether it will never again receive what is sent to it."""
        return self.gone or self.left or (self.page is not None and self.page.leaving != STAYS)
