"""Moving one slot: put it, take it, or pass it on; and the rows that are written around each move.

This is the hot path of every collective. It keeps to local names and does nothing twice; where a
rank is held, slowed or paced, one word in shared memory says so. ``wait`` = blocked, before the
``recv``; ``recv`` = from the first byte being there until it is copied or added; ``send`` = from
the start of writing until the last byte is in the slot (paced: has left the link).
"""

from __future__ import annotations

import os
from numbers import Integral
from typing import Any

from workbench.common import environment
from workbench.common.errors import CollectiveError
from workbench.messaging.flights import Flights
from workbench.messaging.members import COLLECTIVE_PLANE, Members
from workbench.messaging.message import Message
from workbench.messaging.mismatch import Side, mismatch
from workbench.messaging.mover import YIELDS, YIELDS_ASIDE, open_mover, wire
from workbench.messaging.pacing import Pacer, sleep_until
from workbench.messaging.watchdog import PeerWait
from workbench.recording.events import NOWHERE, RECV, SEND, WAIT, now
from workbench.shared_memory.control_block import ATTENTION, HELD, SLOW_MOTION, Control
from workbench.transports.arrays import bytes_of, kernels_of
from workbench.transports.mailbox import Header, checksum

LOOKS = 3  # of a wait, before it goes to sleep
# A header's fields, by place.
F_GENERATION, F_OP, F_STEP, F_CHUNK, F_SLOT, F_NBYTES = range(6)
F_SIGNATURE, F_ARRIVES, F_TOTAL, F_TAG, F_CHECKSUM, F_SLOWNESS = range(6, 12)


class Slots:
    """One rank's channels of a group's collectives, with the collective that is under way."""

    all_by_hand = False  # whether no mover takes part: a subclass looks on at every slot

    def __init__(
        self, members: Members, lane: str, group: str, control: Control | None, generation: int
    ) -> None:
        self.members, self.watch, self.world = members, members.watch, members.world
        self.rank, self.group, self.generation = members.rank, group, generation
        self.recorder = members.recorder
        self.lane = self.recorder.take_lane(lane)
        self._write = self.lane.write
        me = self.world[self.rank]
        unsteered = memoryview(bytearray(64)).cast("q")
        self.attention = control.words if control is not None else unsteered
        self.gate = control.own_gate(me) if control is not None else None
        self.pacer = Pacer(control, me) if control is not None else None
        self.flights = Flights(self.watch)
        self.verify = environment.text("WORKBENCH_VERIFY") == "1"
        self._out: dict[int, Any] = {}
        self._in: dict[int, Any] = {}
        # Staying awake helps only a rank with a core of its own, and not on a thread beside
        # computing: there it would hold the interpreter's lock that computing needs.
        local = sum(peer.page is not None for peer in members.peers)
        # Read for each group: a process that was started ahead of its run gets this later.
        spin_ns = environment.whole("WORKBENCH_SPIN_US", 0) * 1000
        self.spin_ns = spin_ns if local <= (os.cpu_count() or 1) else 0
        self.op, self.signature, self.where = -1, 0, NOWHERE
        self.call = ("", -1)  # the collective that is under way, and its number
        self.fused, self.full = self.recorder.name("fused"), self.recorder.name("slots full")
        self.untaken = self.recorder.name("not taken yet")
        self.group_number = self.recorder.name(group)
        self.messages_sent = 0  # bytes of messages from one rank to another
        self.mover = open_mover(self, control)  # what both of us count, it counts
        self.run_inline(True)

    @property
    def doing(self) -> str:
        return f"{self.call[0]} {self.call[1] + 1}"

    @property
    def bytes_sent(self) -> int:
        """The payload bytes that this rank has sent in this group."""
        return int(self.mover.bytes_sent) + self.messages_sent

    def run_inline(self, inline: bool) -> None:
        """Note whether collectives run in their caller from now on, or on a thread beside
        computing.
        """
        self.inline = inline
        self.mover.awake_ns = self.spin_ns if inline else 0
        self.mover.yields = 0 if self.mover.awake_ns else YIELDS if inline else YIELDS_ASIDE

    # -- the three moves, of one slot each --

    def put(self, message: Message) -> None:
        """Copy the slot's ``x`` into a free slot toward its peer and post it."""
        box, x = self._claim(message), message.x
        start = now()
        buffer = box.slot(x.dtype)[: len(x)]
        kernels_of(x).copy(buffer, x)
        self._post(box, buffer, message, start)

    def take(self, message: Message, reduce: str | None, before: bool = False) -> None:
        """Copy the oldest slot from the peer into ``x``, or combine it with it (``before``: in
        front of it).
        """
        box, fields = self._arrived(message)
        start, into = now(), message.x
        buffer = box.slot(into.dtype)[: len(into)]
        if fields[F_CHECKSUM]:
            self._verify(Header(*fields), buffer, message.peer)
        if reduce is None:
            kernels_of(into).copy(into, buffer)
        else:
            first, second = (buffer, into) if before else (into, buffer)
            kernels_of(into).reduce[reduce](first, second, out=into)
        box.release()
        self._received(start, message, fields, reduce is not None)

    def pass_on(
        self, message: Message, to: int, reduce: str | None, keep: bool, next_phase: int
    ) -> None:
        """Combine the oldest slot from the peer with ``x``, straight into a slot to ``to``."""
        arrived, fields = self._arrived(message)
        mine, step = message.x, message.step + 1
        onward = message._replace(peer=to, step=step, phase=next_phase)
        leaving = self._claim(onward)
        start = now()
        kernels, n, dtype = kernels_of(mine), len(mine), mine.dtype
        incoming, outgoing = arrived.slot(dtype)[:n], leaving.slot(dtype)[:n]
        if fields[F_CHECKSUM]:
            self._verify(Header(*fields), incoming, message.peer)
        if reduce is None:
            kernels.copy(mine, incoming)
            kernels.copy(outgoing, mine)
        elif keep:
            kernels.reduce[reduce](incoming, mine, out=mine)
            kernels.copy(outgoing, mine)
        else:
            kernels.reduce[reduce](incoming, mine, out=outgoing)
        arrived.release()
        self._received(start, message, fields, reduce is not None)
        self._post(leaving, outgoing, onward, start)

    def until_taken(self, message: Message) -> None:
        """Wait until the peer has taken all that was sent to it: until every slot is free."""
        box, held = self._out[message.peer], 0
        try:
            while held < box.slots:
                if not box.free.acquire(False):
                    self._wait(box.free, message, self.untaken)
                held += 1
        finally:
            for _ in range(held):
                box.free.release()

    def anyone(self) -> int | None:
        """Return a peer whose message has arrived; None: no message has."""
        for peer in range(self.members.size):
            if peer == self.rank:
                continue
            box = self._in.get(peer) or self.members.inbox(peer, COLLECTIVE_PLANE, None)
            if box is not None:
                if peer not in self._in:
                    self._in[peer] = box
                    wire(self.mover, False, peer, box)
                if box.ready.acquire(False):
                    box.ready.release()
                    return peer
        return None

    # -- what a message over an emulated link asks --

    def is_cut(self, to: int) -> bool:
        """Return whether the link to that world rank is cut now."""
        return self.pacer is not None and self.pacer.is_cut(to)

    def flight(self, peer: int, nbytes: int, start: int) -> tuple[int, int, int]:
        """Return when bytes to a group rank leave, when they arrive, and the slow motion in it."""
        if self.pacer is None:
            return 0, 0, 0
        slowness = self.attention[SLOW_MOTION]
        if self.members.peers[peer].page is None:  # on another host: it leaves here and now
            return 0, self.pacer.leave(self.world[peer], nbytes, start, self.watch.check), slowness
        return *self.pacer.flight(self.world[peer], nbytes, start), slowness

    # -- their halves --

    def _claim(self, message: Message) -> Any:
        """Claim a free slot toward the peer: wait for one, and at the gate where the user may hold
        ranks.

        ``x`` is what this rank has of the chunk by now: its first values are said while held.
        """
        to = message.peer
        box = self._out.get(to)
        if box is None:
            self._meet(to, "send to")
            box = self._out[to] = self.members.outbox(to, COLLECTIVE_PLANE)
            wire(self.mover, True, to, box)
        if not box.free.acquire(False):
            self._wait(box.free, message._replace(slot=-1), self.full)
        if self.attention[ATTENTION] and self.attention[HELD] and self.gate is not None:
            self._say(message)
            self.gate.pass_chunk((self.group, self.op, message.step), self.where.iteration)
            self.watch.check()
        return box

    def _say(self, message: Message) -> None:
        """Report to observers what this rank holds of the chunk that it is about to send."""
        mine = message.x
        self.lane.status(
            SEND,
            peer=self.world[message.peer],
            group=self.group_number,
            op=self.op,
            step=message.step,
            chunk=message.chunk,
            dtype=self.recorder.name(str(mine.dtype).removeprefix("torch.")),
            shape=(len(mine),),
            values=tuple(float(value) for value in mine[:8].tolist()),
        )

    def _post(self, box: Any, payload: Any, message: Message, start: int) -> None:
        """Post a slot that was filled."""
        _, to, step, chunk, slot, phase = message
        nbytes = payload.nbytes
        departs = arrives = slowness = 0
        if self.attention[ATTENTION] and self.pacer is not None:
            if self.pacer.is_cut(self.world[to]):
                peer_wait = PeerWait(self.watch, to, self.lane, f"{self.doing}, step {step + 1}")
                self.pacer.wait_while_cut(self.world[to], peer_wait.look)
            departs, arrives, slowness = self.flight(to, nbytes, start)
        box.post(
            Header(
                self.generation,
                self.op,
                step,
                chunk,
                slot,
                nbytes,
                self.signature,
                arrives,
                total=nbytes,
                checksum=checksum(bytes_of(payload)) | 1 if self.verify else 0,
                slowness=slowness,
            )
        )
        if departs:
            sleep_until(departs, self.watch.check, self.attention, slowness)
        self.mover.bytes_sent += nbytes
        self._write(SEND, start, now(), self.world[to], step, chunk, slot, nbytes, 0, phase)

    def _arrived(self, message: Message) -> tuple[Any, tuple[int, ...]]:
        """Return the header's fields of the oldest slot from the peer, once it is there and is what
        is expected.
        """
        frm, nbytes = message.peer, message.x.nbytes
        box = self._in.get(frm)
        if box is None:
            self._meet(frm, "receive from")
            box = self._in[frm] = self._open(message)
            wire(self.mover, False, frm, box)
        if not box.ready.acquire(False):
            self._wait(box.ready, message, 0)
        fields: tuple[int, ...] = box.fields()
        if fields[F_ARRIVES] and fields[F_ARRIVES] > now():
            start, place = now(), fields[F_STEP : F_SLOT + 1]
            flight = fields[F_ARRIVES], fields[F_SLOWNESS]
            self.flights.land(self.op, frm, flight, self.attention)
            self._write(WAIT, start, now(), self.world[frm], *place, -1, 0, message.phase)
        if (
            fields[F_OP] != self.op
            or fields[F_SIGNATURE] != self.signature
            or fields[F_NBYTES] != nbytes
            or fields[F_GENERATION] != self.generation
        ):
            raise self.watch.fail(self._explain(frm, Header(*fields), nbytes))
        return box, fields

    def _open(self, message: Message) -> Any:
        """Return the mailbox from the peer. The sender makes it for its first message: until then
        this waits.
        """
        _, frm, step, chunk, slot, phase = message
        box = self.members.inbox(frm, COLLECTIVE_PLANE, None)
        if box is not None:
            return box
        start, peer = now(), self.world[frm]
        self.lane.status(
            WAIT, peer=peer, group=self.group_number, op=self.op, step=step, chunk=chunk
        )
        try:
            return self.members.inbox(
                frm, COLLECTIVE_PLANE, lambda: PeerWait(self.watch, frm, self.lane, self.doing)
            )
        finally:
            self._write(WAIT, start, now(), peer, step, chunk, slot, -1, 0, phase)

    def _received(self, start: int, message: Message, fields: tuple[int, ...], fused: bool) -> None:
        peer, place = self.world[message.peer], fields[F_STEP : F_NBYTES + 1]
        name = self.fused if fused else 0
        self._write(RECV, start, now(), peer, *place, name, message.phase)
        mover = self.mover
        mover.heard, mover.heard_chunk = fields[F_STEP], fields[F_CHUNK]
        mover.most_heard = max(mover.most_heard, mover.heard)

    def _wait(self, semaphore: Any, message: Message, name: int) -> None:
        """Wait, and record it; stay awake at first, as sleeping and waking outlasts most waits."""
        start = now()
        acquire = semaphore.acquire
        _, to_or_from, *place, phase = message
        peer, (step, chunk, _) = self.world[to_or_from], place
        looks, awake_until = LOOKS, start + self.mover.awake_ns
        try:
            while looks > 0 or now() < awake_until:
                looks -= 1
                os.sched_yield()  # the peer may be on this very core
                if acquire(False):
                    break
            else:
                self.lane.status(
                    WAIT, peer=peer, group=self.group_number, op=self.op, step=step, chunk=chunk
                )
                self.watch.wait(semaphore, to_or_from, self.lane, f"{self.doing}, step {step + 1}")
        finally:  # a wait that was not ended was one too
            self._write(WAIT, start, now(), peer, *place, -1, name, phase)

    def _meet(self, peer: Any, doing: str) -> None:
        """Raise CollectiveError unless ``peer`` is another rank of this group."""
        whole = isinstance(peer, Integral)
        if whole and 0 <= peer < self.members.size and peer != self.rank:
            return
        me, last = self.rank, self.members.size - 1
        what = (
            f"rank {me} cannot {doing} itself: what it has needs no message"
            if whole and peer == me
            else f"rank {me} cannot {doing} rank {peer!r}: the group has ranks 0 to {last}"
        )
        raise self.watch.fail(CollectiveError(f"{what} (in {self.doing})"))

    def _explain(self, frm: int, header: Header, nbytes: int) -> CollectiveError:
        """Return what is wrong with a message that is not the one expected here."""
        mine = Side(
            self.world[self.rank], self.op, self.signature, self.generation, self.members.page
        )
        theirs = Side(
            self.world[frm],
            header.op,
            header.signature,
            header.generation,
            self.members.peers[frm].page,
        )
        return mismatch(mine, theirs, self.doing, header, nbytes)

    def _verify(self, header: Header, payload: Any, frm: int) -> None:
        result = checksum(bytes_of(payload)) | 1
        if result != header.checksum:
            raise self.watch.fail(
                CollectiveError(
                    f"rank {self.world[self.rank]}: step {header.step + 1}, chunk {header.chunk}, "
                    f"slot {header.slot} from rank {self.world[frm]} arrived damaged in "
                    f"{self.doing}: its checksum is {result:#x}, the sender's was "
                    f"{header.checksum:#x}"
                )
            )
