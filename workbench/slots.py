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

from workbench import environment
from workbench.arrays import bytes_of, kernels_of
from workbench.control import ATTENTION, HELD, SLOW_MOTION, Control, Gate
from workbench.errors import CollectiveError
from workbench.events import NOWHERE, RECV, SEND, WAIT, now
from workbench.members import COLLECTIVE_PLANE, Members
from workbench.pacing import Pacer, sleep_until
from workbench.signature import describe
from workbench.transports.mailbox import SLOTS, Header, checksum
from workbench.watch import Patience, disagreement

# How often a wait looks before it goes to sleep, and how long it stays awake where every rank has a
# core of its own.
LOOKS = 3
SPIN_NS = environment.whole("WORKBENCH_SPIN_US", 0) * 1000
(
    F_GENERATION, F_OP, F_STEP, F_CHUNK, F_SLOT, F_NBYTES, F_SIGNATURE, F_ARRIVES, F_TOTAL, F_TAG,
    F_CHECKSUM, F_SLOWNESS,
) = range(12)  # fmt: skip


class Slots:
    """One rank's channels of a group's collectives, with the collective that is under way."""

    def __init__(
        self, members: Members, lane: str, group: str, control: Control | None, generation: int
    ) -> None:
        self.members, self.watch, self.world = members, members.watch, members.world
        self.rank, self.group, self.generation = members.rank, group, generation
        self.recorder = members.recorder
        self.lane = self.recorder.lane(lane)
        self._write = self.lane.write
        me = self.world[self.rank]
        unsteered = memoryview(bytearray(64)).cast("q")
        self.attention = control.words if control is not None else unsteered
        self.gate = Gate(control, me) if control is not None else None
        self.pacer = Pacer(control, me) if control is not None else None
        self.verify = environment.text("WORKBENCH_VERIFY") == "1"
        self._out: dict[int, Any] = {}
        self._in: dict[int, Any] = {}
        self.bytes_sent = 0
        # Staying awake helps only who has a core of its own, and not on a thread beside computing:
        # there it would hold the interpreter's lock that computing needs.
        local = sum(peer.board is not None for peer in members.peers)
        self.spin_ns = SPIN_NS if local <= (os.cpu_count() or 1) else 0
        self.inline = True
        self.op, self.signature, self.doing, self.where = -1, 0, "", NOWHERE
        self.heard = self.heard_chunk = -1  # step and chunk of the message that was taken last
        self._fused, self.full = self.recorder.name("fused"), self.recorder.name("slots full")
        self.untaken = self.recorder.name("not taken yet")
        self.group_number = self.recorder.name(group)

    # -- the three moves; ``phase`` is a name's number --

    def put(self, x: Any, to: int, step: int, chunk: int, slot: int, phase: int) -> None:
        """Copy ``x`` into a free slot towards ``to`` and post it."""
        box = self._claim(to, step, chunk, phase, x)
        start = now()
        buffer = box.slot(x.dtype)[: len(x)]
        kernels_of(x).copy(buffer, x)
        self._post(box, buffer, to, step, chunk, slot, phase, start)

    def take(
        self, into: Any, frm: int, reduce: str | None, step: int, chunk: int, slot: int, phase: int,
        before: bool = False,
    ) -> None:  # fmt: skip
        """Copy the oldest slot from ``frm`` into ``into``, or combine it with it (``before``: in
        front of it).
        """
        box, fields = self._arrived(frm, step, chunk, into.nbytes, slot, phase)
        start = now()
        buffer = box.slot(into.dtype)[: len(into)]
        if fields[F_CHECKSUM]:
            self._verify(Header(*fields), buffer, frm)
        if reduce is None:
            kernels_of(into).copy(into, buffer)
        else:
            first, second = (buffer, into) if before else (into, buffer)
            kernels_of(into).reduce[reduce](first, second, out=into)
        box.release()
        self._received(start, frm, fields, reduce is not None, phase)

    def pass_on(
        self, mine: Any, frm: int, to: int, reduce: str | None, keep: bool,
        step: int, chunk: int, slot: int, phases: tuple[int, int],
    ) -> None:  # fmt: skip
        """Combine the oldest slot from ``frm`` with ``mine``, straight into a slot to ``to``."""
        arrived, fields = self._arrived(frm, step, chunk, mine.nbytes, slot, phases[0])
        leaving = self._claim(to, step + 1, chunk, phases[1], mine)
        start = now()
        kernels, n, dtype = kernels_of(mine), len(mine), mine.dtype
        incoming, outgoing = arrived.slot(dtype)[:n], leaving.slot(dtype)[:n]
        if fields[F_CHECKSUM]:
            self._verify(Header(*fields), incoming, frm)
        if reduce is None:
            kernels.copy(mine, incoming)
            kernels.copy(outgoing, mine)
        elif keep:
            kernels.reduce[reduce](incoming, mine, out=mine)
            kernels.copy(outgoing, mine)
        else:
            kernels.reduce[reduce](incoming, mine, out=outgoing)
        arrived.release()
        self._received(start, frm, fields, reduce is not None, phases[0])
        self._post(leaving, outgoing, to, step + 1, chunk, slot, phases[1], start)

    def until_taken(self, to: int, step: int, chunk: int, phase: int) -> None:
        """Wait until ``to`` has taken all that was sent to it: until every slot is free."""
        free, held = self._out[to].free, 0
        try:
            while held < SLOTS:
                if not free.acquire(False):
                    self._wait(free, to, step, chunk, -1, self.untaken, phase)
                held += 1
        finally:
            for _ in range(held):
                free.release()

    def anyone(self) -> int | None:
        """A peer whose message is there, if there is one."""
        for peer in range(self.members.size):
            if peer == self.rank:
                continue
            box = self._in.get(peer) or self.members.inbox(peer, COLLECTIVE_PLANE, None)
            if box is not None:
                self._in[peer] = box
                if box.ready.acquire(False):
                    box.ready.release()
                    return peer
        return None

    # -- what a message over an emulated link asks --

    def is_cut(self, to: int) -> bool:
        """Does nothing leave towards that world rank now?"""
        return self.pacer is not None and self.pacer.is_cut(to)

    def flight(self, peer: int, nbytes: int, start: int) -> tuple[int, int, int]:
        """When bytes to a group rank leave, when they arrive, and the slow motion in it."""
        if self.pacer is None:
            return 0, 0, 0
        if self.members.peers[peer].board is None:  # on another host: its clock is another
            return 0, self.pacer.leave(self.world[peer], nbytes, start, self.watch.check), 0
        departs, arrives = self.pacer.flight(self.world[peer], nbytes, start)
        return departs, arrives, self.attention[SLOW_MOTION]

    # -- their halves --

    def _claim(self, to: int, step: int, chunk: int, phase: int, mine: Any) -> Any:
        """A free slot towards ``to``: waits for one, and for the user who may hold ranks here.

        ``mine`` is what this rank has of the chunk by now: its first values are said while held.
        """
        box = self._out.get(to)
        if box is None:
            self._meet(to, "send to")
            box = self._out[to] = self.members.outbox(to, COLLECTIVE_PLANE)
        if not box.free.acquire(False):
            self._wait(box.free, to, step, chunk, -1, self.full, phase)
        if self.attention[ATTENTION] and self.attention[HELD] and self.gate is not None:
            self._say(mine, to, step, chunk)
            self.gate.pass_chunk(self.op, step, self.where.iteration)
            self.watch.check()
        return box

    def _say(self, mine: Any, to: int, step: int, chunk: int) -> None:
        """Tell whoever looks what this rank holds of the chunk that it is about to send."""
        self.lane.status(
            SEND, peer=self.world[to], group=self.group_number, op=self.op, step=step, chunk=chunk,
            dtype=self.recorder.name(str(mine.dtype).removeprefix("torch.")), shape=(len(mine),),
            values=tuple(float(value) for value in mine[:8].tolist()),
        )  # fmt: skip

    def _post(
        self,
        box: Any,
        payload: Any,
        to: int,
        step: int,
        chunk: int,
        slot: int,
        phase: int,
        start: int,
    ) -> None:
        nbytes = payload.nbytes
        departs = arrives = slowness = 0
        if self.attention[ATTENTION] and self.pacer is not None:
            slowness = self.attention[SLOW_MOTION]
            self.pacer.wait_while_cut(self.world[to], self.watch.check)
            if self.members.peers[to].board is None:  # on another host: its clock is another
                arrives = self.pacer.leave(self.world[to], nbytes, start, self.watch.check)
            else:
                departs, arrives = self.pacer.flight(self.world[to], nbytes, start)
        total = checksum(bytes_of(payload)) | 1 if self.verify else 0
        box.post(
            self.generation,
            self.op,
            step,
            chunk,
            slot,
            nbytes,
            self.signature,
            arrives,
            nbytes,
            0,
            total,
            slowness,
        )
        if departs:
            sleep_until(departs, self.watch.check, self.attention, slowness)
        self.bytes_sent += nbytes
        self._write(SEND, start, now(), self.world[to], step, chunk, slot, nbytes, 0, phase)

    def _arrived(
        self, frm: int, step: int, chunk: int, nbytes: int, slot: int, phase: int
    ) -> tuple[Any, tuple[int, ...]]:
        """The oldest slot from ``frm``, once it is there and is what we expect; its header's
        fields.
        """
        box = self._in.get(frm)
        if box is None:
            self._meet(frm, "receive from")
            box = self._in[frm] = self._open(frm, step, chunk, slot, phase)
        if not box.ready.acquire(False):
            self._wait(box.ready, frm, step, chunk, slot, 0, phase)
        fields: tuple[int, ...] = box.fields()
        if fields[F_ARRIVES] and fields[F_ARRIVES] > now():
            start, (step, chunk, slot) = now(), fields[F_STEP : F_SLOT + 1]
            sleep_until(fields[F_ARRIVES], self.watch.check, self.attention, fields[F_SLOWNESS])
            self._write(WAIT, start, now(), self.world[frm], step, chunk, slot, -1, 0, phase)
        if (
            fields[F_OP] != self.op
            or fields[F_SIGNATURE] != self.signature
            or fields[F_NBYTES] != nbytes
            or fields[F_GENERATION] != self.generation
        ):
            raise self.watch.fail(self._disagree(frm, Header(*fields), nbytes))
        return box, fields

    def _open(self, frm: int, step: int, chunk: int, slot: int, phase: int) -> Any:
        """The mailbox from ``frm``, which makes it when it first has something to send: until then
        this is a wait as any other.
        """
        box = self.members.inbox(frm, COLLECTIVE_PLANE, None)
        if box is not None:
            return box
        start, peer = now(), self.world[frm]
        self.lane.status(
            WAIT, peer=peer, group=self.group_number, op=self.op, step=step, chunk=chunk
        )
        try:
            return self.members.inbox(
                frm, COLLECTIVE_PLANE, lambda: Patience(self.watch, frm, self.lane, self.doing)
            )
        finally:
            self._write(WAIT, start, now(), peer, step, chunk, slot, -1, 0, phase)

    def _received(
        self, start: int, frm: int, fields: tuple[int, ...], fused: bool, phase: int
    ) -> None:
        self._write(
            RECV, start, now(), self.world[frm], fields[F_STEP], fields[F_CHUNK], fields[F_SLOT],
            fields[F_NBYTES], self._fused if fused else 0, phase,
        )  # fmt: skip
        self.heard, self.heard_chunk = fields[F_STEP], fields[F_CHUNK]

    def _wait(
        self, semaphore: Any, peer: int, step: int, chunk: int, slot: int, name: int, phase: int
    ) -> None:
        """Be blocked, and record it: first awake, since sleeping and being woken outlasts most
        waits.
        """
        start = now()
        acquire = semaphore.acquire
        looks, awake_until = LOOKS, start + (self.spin_ns if self.inline else 0)
        try:
            while looks > 0 or now() < awake_until:
                looks -= 1
                os.sched_yield()  # the peer may be on this very core
                if acquire(False):
                    break
            else:
                self.lane.status(
                    WAIT,
                    peer=self.world[peer],
                    group=self.group_number,
                    op=self.op,
                    step=step,
                    chunk=chunk,
                )
                self.watch.wait(semaphore, peer, self.lane, f"{self.doing}, step {step}")
        finally:  # a wait that nobody ended was one too
            self._write(WAIT, start, now(), self.world[peer], step, chunk, slot, -1, name, phase)

    # -- what must not be --

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

    def _disagree(self, frm: int, header: Header, nbytes: int) -> CollectiveError:
        me, peer = self.world[self.rank], self.world[frm]
        if header.generation != self.generation:
            return CollectiveError(
                f"rank {peer} sent a message of generation {header.generation} to rank {me}, "
                f"which is in generation {self.generation}"
            )
        mine, theirs = describe(self.signature), describe(header.signature)
        if header.op != self.op:
            return self._apart(frm, header)
        if header.signature != self.signature:
            return disagreement(self.op, (me, mine), (peer, theirs))
        return CollectiveError(
            f"rank {me} expected {nbytes:,} bytes from rank {peer} in {self.doing}, and got "
            f"{header.nbytes:,} (rank {peer}'s step {header.step}, chunk {header.chunk}): "
            "the ranks' sizes or schedules differ"
        )

    def _apart(self, frm: int, header: Header) -> CollectiveError:
        """What is wrong where a message of another collective arrives: the first of the two says.

        Who only sends in a collective is through with it, whatever the others passed to it.
        """
        me, peer = self.world[self.rank], self.world[frm]
        op, mine, theirs = self._passed(frm, header)
        if mine is None or theirs is None:  # long ago, or on another host
            return CollectiveError(
                f"ranks disagree about the order of calls: rank {me} is in collective {self.op} "
                f"({describe(self.signature)}), rank {peer} in collective {header.op} "
                f"({describe(header.signature)})"
            )
        if mine != theirs:
            return disagreement(op, (me, describe(mine)), (peer, describe(theirs)))
        more, took = ("more", "took") if header.op < self.op else ("less", "expects")
        return CollectiveError(
            f"rank {peer} sent rank {me} {more} in collective {op} ({describe(mine)}) than rank "
            f"{me} {took}: the ranks' sizes or schedules differ"
        )

    def _passed(self, frm: int, header: Header) -> tuple[int, int | None, int | None]:
        """The earlier of two collectives that are under way, and what we and that peer passed to
        it; None: not known any more.
        """
        if header.op < self.op:
            return header.op, self.members.board.signature(header.op), header.signature
        board = self.members.peers[frm].board
        return self.op, self.signature, None if board is None else board.signature(self.op)

    def _verify(self, header: Header, payload: Any, frm: int) -> None:
        found = checksum(bytes_of(payload)) | 1
        if found != header.checksum:
            raise self.watch.fail(
                CollectiveError(
                    f"rank {self.world[self.rank]}: step {header.step}, chunk {header.chunk}, slot "
                    f"{header.slot} from rank {self.world[frm]} arrived damaged in {self.doing}: "
                    f"its checksum is {found:#x}, the sender's was {header.checksum:#x}"
                )
            )
