"""A mover moves a message in one call: the compiled one, or none, so that Python moves each slot.

A call of the mover returns DONE; LOOK: it was blocked for a while, so that we look around and call
it again; PYTHON: slot ``at`` is held, slowed, paced, damaged or disagreed about, so that Slots
moves it; or FOREIGN: Slots moves all of the message, as the mover does not know its memory.
"""

from __future__ import annotations

from typing import Any

from workbench.native import compiled
from workbench.recording.lane import Lane
from workbench.shared_memory.control_block import ABORT, LOST, Control
from workbench.transports.mailbox import SLOTS
from workbench.transports.peer_page import HISTORY, HISTORY_AT, W_ALARM
from workbench.transports.shared_memory import SharedInbox, SharedOutbox

DONE, LOOK, PYTHON, FOREIGN = range(4)
AHEAD = SLOTS - 1  # slots that an exchange sends before it takes the first: latencies overlap
YIELDS = 200  # looks of a wait that shares its core with the peer: 100 to 150 us
YIELDS_ASIDE = 20  # of one on a thread beside computing


class NoMover:
    """Stands where there is no mover; it keeps the counts that the mover keeps."""

    def __init__(self) -> None:
        self.heard = self.heard_chunk = self.most_heard = -1
        self.bytes_sent = self.awake_ns = self.yields = 0

    def post(self, *_: Any) -> int:
        return FOREIGN

    recv = relay = exchange = post


def open_mover(slots: Any, control: Control | None, lane: Lane | None = None) -> Any:
    """Return what moves the messages of a group; ``slots``: its Slots, which opens it.

    ``lane``: of messages from one rank to another, which have lanes of their own.
    """
    native, members, journal = compiled(), slots.members, (lane or slots.lane).journal
    if native is None or journal is None or slots.verify or slots.all_by_hand:
        return NoMover()
    recorder = slots.recorder
    mover = native.Mover(
        journal,
        recorder.numbers,
        recorder.name,
        slots.rank,
        slots.world,
        slots.generation,
        members.slot_bytes,
        slots.attention,  # its first word: ATTENTION
        -1 if control is None else ABORT,
        -1 if control is None else LOST,
        members.page.words,
        W_ALARM,
        HISTORY_AT // 8,
        HISTORY,
    )
    mover.group, mover.full, mover.fused = slots.group_number, slots.full, slots.fused
    mover.p2p = recorder.name("p2p")
    mover.ahead, mover.slice_ns = AHEAD, int(slots.watch.slice * 1e9)
    return mover


def wire(mover: Any, out: bool, peer: int, box: Any) -> bool:
    """Let the mover use a mailbox that was opened, to or from that group rank. Returns whether it
    can: where there is a mover, and the mailbox is in shared memory.
    """
    if isinstance(mover, NoMover) or not isinstance(box, SharedOutbox | SharedInbox):
        return False
    bell = () if box.bell is None else box.bell.place
    mover.wire(out, peer, box.memory, box.counts, SLOTS, box.stride, *bell)
    return True
