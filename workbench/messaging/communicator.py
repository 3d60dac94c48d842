"""The interface of collective algorithms: rank, size, send, recv, exchange, relay, span.

Tensors are flat or contiguous, of any dtype; a tensor travels in slots of at most ``slot_bytes``.
Every call may raise PeerLost, CollectiveError or RunTimeout, and never blocks forever.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from workbench.messaging.chunk_index import Whole, part_of
from workbench.messaging.members import Members
from workbench.messaging.message import Message
from workbench.messaging.mover import NoMover
from workbench.messaging.pacing import sleep_until
from workbench.messaging.slot_by_slot import SlotBySlot, pieces_of, slots_of
from workbench.messaging.slots import Slots
from workbench.messaging.watchdog import PeerWait
from workbench.recording.events import CODE, COLLECTIVE, FAILED, REDUCE, Where, now
from workbench.shared_memory.control_block import Control
from workbench.transports.arrays import MAX, MIN, PRODUCT, SUM, flat_array, kernels_of
from workbench.transports.mailbox import SLOTS

__all__ = ["MAX", "MIN", "PRODUCT", "SUM", "Communicator"]
_METRIC = CODE["metric"]


class Communicator:
    """One rank's end of a group. Peers are group ranks; the events name world ranks."""

    slots_class: Any = Slots  # what moves slots; a walk only notes them

    def __init__(
        self,
        members: Members,
        lane: str,
        group: str,
        *,
        control: Control | None,
        generation: int = 0,
    ) -> None:
        self.rank, self.size, self.group = members.rank, members.size, group
        self.members, self.recorder, self.generation = members, members.recorder, generation
        self.slots = self.slots_class(members, lane, group, control, generation)
        self.lane = self.slots.lane
        # A send returns only when its receiver has taken it: what hides in slots comes to light.
        self.rendezvous = False
        self.whole: Whole | None = None  # what a user's own algorithm works on, to number its parts
        self.additions: Any = None  # observes those of a user's algorithm (reduction_tracer.py)
        self.failed = False  # the call raised an error: it was never completed
        self.untold = False  # its rows do not tell whose parts its chunks are made of
        self.levels: tuple[int, ...] = ()  # of common/topology.py, where they are known
        self.in_turn: tuple[int, ...] = ()  # the same where ranks were dealt to hosts in turn
        self.way = ""  # how an algorithm goes that can go several ways: its outer row's phase
        self._step, self._chunk, self._phase, self._next_step = -1, -1, 0, 0
        self._mover = self.slots.mover
        self._framed = not isinstance(self._mover, NoMover)
        self._rest = SlotBySlot(self.slots, members.slot_bytes)
        self._cut: dict[int, tuple[Any, list[Any]]] = {}  # arrays that stay, with their parts

    # -- what a collective begins and ends with --

    def begin(
        self,
        collective: str,
        algorithm: str,
        op: int,
        signature: int,
        where: Where,
        shape: tuple[int, ...] = (),
        dtype: str = "",
    ) -> None:
        """Begin a collective, the group's ``op``-th: the rows that follow belong to it."""
        slots, name = self.slots, self.recorder.name
        slots.op, slots.signature, slots.where, slots.call = op, signature, where, (collective, op)
        self._next_step, self.whole, self.untold, self.way = 0, None, False, ""
        self.failed = False
        if self._framed:
            wrong = self._mover.begin(collective, algorithm, op, signature, where, shape, dtype)
            if wrong or slots.watch.error or slots.watch.closing:
                slots.watch.check(op)
            return
        self._mover.most_heard = -1
        self.members.page.begin(op, signature)
        slots.watch.check(op)
        numbers = name(collective), name(algorithm), slots.group_number
        self.lane.context(*numbers, op, where, self.generation)
        self.lane.status(
            COLLECTIVE,
            collective=numbers[0],
            algorithm=numbers[1],
            group=numbers[2],
            op=op,
            dtype=name(dtype),
            shape=shape,
        )

    def end(
        self, start: int, nbytes: int, label: str = "", itemsize: float = math.nan, peer: int = -1
    ) -> None:
        """Write the outer row of the collective that ends here. Its ``value`` is the bytes per
        element; its ``peer`` the root's world rank, where the operation has a root.
        """
        way = FAILED if self.failed else "untold" if self.untold else self.way
        if self._framed:
            self._mover.end(start, nbytes, label, itemsize, peer, way)
            return
        name = self.recorder.name(label) if label else 0
        phase = self.recorder.name(way) if way else 0
        self.lane.write(
            COLLECTIVE, start, now(), peer, nbytes=nbytes, name=name, phase=phase, value=itemsize
        )
        self.lane.idle()

    @contextmanager
    def span(
        self, phase: str = "", *, step: int | None = None, chunk: int | None = None
    ) -> Iterator[None]:
        """Name what happens inside: the algorithm's phase, its step, which chunk of the tensor."""
        before = self._phase, self._step, self._chunk
        self._phase = self.recorder.name(phase) if phase else self._phase
        self._step = before[1] if step is None else step
        self._chunk = before[2] if chunk is None else chunk
        try:
            yield
        finally:
            self._phase, self._step, self._chunk = before

    def mark(self, name: str, value: float = float("nan")) -> None:
        """Put an instant with a name (and a number) into the record."""
        moment = now()
        self.lane.write(
            _METRIC,
            moment,
            moment,
            step=self._step,
            chunk=self._chunk,
            name=self.recorder.name(name),
            value=value,
        )

    # -- cutting --

    def split(self, x_N: Any, parts: int | None = None) -> list[Any]:
        """Return ``parts`` (default: size) views of flat ``x_N``; the first N mod parts have one
        element more.
        """
        if parts is None:
            if cut := self._cut.get(id(x_N)):
                return [*cut[1]]
            parts = self.size
        whole, extra = divmod(len(x_N), parts)
        if not extra:
            return [x_N[i * whole : (i + 1) * whole] for i in range(parts)]
        ends = [i * whole + min(i, extra) for i in range(parts + 1)]
        return [x_N[a:b] for a, b in pairwise(ends)]

    def cut_once(self, arrays: Sequence[Any]) -> None:
        """Cut these arrays now, so that every ``split`` has their parts ready: they stay as long as
        this communicator, or until ``forget``.
        """
        self._cut |= {id(x_N): (x_N, self.split(x_N)) for x_N in arrays}

    def forget(self) -> None:
        """Forget the arrays of ``cut_once``."""
        self._cut.clear()

    def slices(
        self, chunks: Sequence[Any], itemsize: int, stride: int = SLOTS // 2
    ) -> Iterator[tuple[int, list[Any]]]:
        """Walk all chunks together in pieces of ``stride`` slots, that stay in the core's cache.

        Yields (number of the piece's first slot, a view of each chunk). At most half the slots of a
        link are in flight, so that a ring of links can never be full.
        """
        longest = max(map(len, chunks))
        if longest * itemsize <= self.members.slot_bytes:
            return iter([(0, [*chunks])])
        slots, per = slots_of(longest, itemsize, self.members.slot_bytes)
        return (
            (first, [chunk[first * per : (first + stride) * per] for chunk in chunks])
            for first in range(0, slots, stride)
        )

    def has_room_for(self, nbytes: int) -> bool:
        """Return whether a message of so many bytes may be posted before others are received: at
        most half the slots of a link are in flight then, as in ``slices``.
        """
        return nbytes <= self.members.slot_bytes * (SLOTS // 2)

    def _pieces(self, x: Any, first: int) -> list[Any]:
        """Return the slots of ``x``, whose first one has this number."""
        return pieces_of(x, first, self.members.slot_bytes)

    def _place(self, step: int | None, chunk: Any, leaving: Any = None) -> tuple[int, Any]:
        """Return where a call stands in its algorithm: as the call says, as the span says, or
        counted.

        Counted: a message's step is above those of all that its sender sent and received before.
        """
        if step is None:
            step = self._step
            if step < 0:
                heard: int = self._mover.most_heard
                self._next_step = max(self._next_step, heard + 1)
                step = self._next_step if leaving is not None else max(self._next_step - 1, 0)
                self._next_step += leaving is not None
        if chunk is None:
            chunk = self._chunk
            if chunk < 0 and leaving is not None:
                chunk = part_of(leaving, self.whole, self.size)
        return step, chunk

    # -- the primitives --

    def send(
        self,
        x: Any,
        *,
        to: int,
        step: int | None = None,
        chunk: int | None = None,
        phase: str = "",
        slot: int = 0,
    ) -> None:
        """Send ``x``. May return before it is received; does not where ``rendezvous`` is set."""
        if step is None or chunk is None:
            step, chunk = self._place(step, chunk, x)
        self.post(x, to=to, step=step, chunk=chunk, phase=phase, slot=slot)
        if self.rendezvous:
            number = self.recorder.name(phase) if phase else self._phase
            self.slots.until_taken(Message(x, to, step, chunk, -1, number))

    def post(
        self,
        x: Any,
        *,
        to: int,
        step: int | None = None,
        chunk: int | None = None,
        phase: str = "",
        slot: int = 0,
    ) -> None:
        """Send ``x`` without waiting for its receiver, as ``exchange`` and ``relay`` do.

        For what is sent before it can be received, such as the first message of a ring: the caller
        relies on room in the mailbox, which ``slices`` leaves.
        """
        if step is None or chunk is None:
            step, chunk = self._place(step, chunk, x)
        name = phase or self._phase
        if self.additions is not None:
            self.additions.sends(x)
        if code := self._mover.post(x, to, step, chunk, slot, name):
            self._rest.post(code, Message(x, to, step, chunk, slot, name))

    def recv(
        self,
        into: Any,
        *,
        frm: int | None,
        reduce: str | None = None,
        step: int | None = None,
        chunk: int | None = None,
        phase: str = "",
        slot: int = 0,
    ) -> int:
        """Receive into ``into``, or combine with it (``reduce="SUM"``). Returns the sender.

        ``frm=None`` receives from any rank that has sent something.
        """
        if step is None or chunk is None:
            step, chunk = self._place(step, chunk)
        name = phase or self._phase
        frm = self._anyone() if frm is None else frm
        if code := self._mover.recv(into, frm, reduce, step, chunk, slot, name):
            self._rest.recv(code, Message(into, frm, step, chunk, slot, name), reduce)
        if self.additions is not None:
            self._tell(into, frm, reduce, slot)
        return frm

    def exchange(
        self,
        x: Any,
        *,
        to: int,
        into: Any,
        frm: int,
        reduce: str | None = None,
        step: int | None = None,
        chunk: Any = None,
        phase: str = "",
        slot: int = 0,
        into_chunk: Any = None,
        before: bool = False,
    ) -> None:
        """Send ``x`` and receive ``into``, slot by slot: two full mailboxes cannot block each
        other. ``into`` may be ``x``. ``into_chunk``: which chunk arrives, if it is another one.

        One message may be several chunks: ``x``, ``into`` and their chunks' numbers are lists then.
        ``before``: what arrives stands in front of ``into`` where they are combined. Two ranks that
        both add the same must do it in one order: -0.0 and 0.0 are equal, and so may be two NaN.
        """
        if step is None or chunk is None:
            step, chunk = self._place(step, chunk, x)
        name, into_chunk = phase or self._phase, chunk if into_chunk is None else into_chunk
        if self.additions is not None:
            for part in x if isinstance(x, list) else [x]:
                self.additions.sends(part)
        of = x, to, into, frm, reduce, step, chunk, into_chunk, slot, name, before
        if code := self._mover.exchange(*of):
            out = Message(x, to, step, chunk, slot, name)
            back = Message(into, frm, step, into_chunk, slot, name)
            self._rest.exchange(code, out, back, reduce, before)
        if self.additions is not None:
            self._tell(into, frm, reduce, slot)

    def relay(
        self,
        mine: Any,
        *,
        frm: int,
        to: int,
        reduce: str | None,
        keep: bool = True,
        step: int,
        chunk: int,
        phase: str = "",
        next_phase: str = "",
        slot: int = 0,
    ) -> None:
        """Receive ``mine``'s counterpart, combine it with ``mine``, pass the outcome on as ``step``
        + 1.

        ``reduce=None`` replaces ``mine`` and passes it on. ``keep=False`` leaves ``mine`` alone:
        the sum goes from slot to slot in one pass over memory (NCCL calls this recvReduceSend).
        """
        name = phase or self._phase
        of = mine, frm, to, reduce, keep, step, chunk, slot, name, next_phase or name
        if code := self._mover.relay(*of):
            message = Message(mine, frm, step, chunk, slot, name)
            self._rest.relay(code, message, to, reduce, keep, next_phase or name)

    def combine(
        self,
        into: Any,
        other: Any,
        reduce: str,
        *,
        chunk: int = -1,
        slot: int = 0,
        frm: int | None = None,
        step: int | None = None,
        before: bool = False,
    ) -> None:
        """Combine ``into`` with ``other``, in place; no message is sent.

        ``other``: this rank's own part, kept aside, or what came from rank ``frm`` at ``step``.
        ``before``: it stands in front, as in ``exchange``.
        """
        into, other = flat_array(into), flat_array(other)
        me = self.members.world[self.rank if frm is None else frm]
        step = self._step if step is None else step
        both = zip(self._pieces(into, slot), self._pieces(other, slot), strict=True)
        for i, (mine, own) in enumerate(both, slot):
            start = now()
            first, second = (own, mine) if before else (mine, own)
            kernels_of(mine).reduce[reduce](first, second, out=mine)
            self.lane.write(REDUCE, start, now(), me, step, chunk, i, mine.nbytes)

    def _tell(self, into: Any, frm: int, reduce: str | None, slot: int) -> None:
        """Report the received values to observers."""
        if reduce is not None or isinstance(into, list):
            for part in into if isinstance(into, list) else [into]:
                self.additions.sends(part)  # it must be what this rank holds, here too
            return
        pieces = self._pieces(flat_array(into), slot)
        self.additions.received(
            into,
            self.members.world[frm],
            self._mover.heard,
            self._mover.heard_chunk,
            tuple(piece.nbytes for piece in pieces),
        )

    def _anyone(self) -> int:
        """Return a peer that has sent something; wait for one if there is none."""
        peer_wait: PeerWait | None = None
        while True:
            peer: int | None = self.slots.anyone()
            if peer is not None:
                return peer
            watch = self.members.watch
            peer_wait = peer_wait or PeerWait(watch, -1, self.lane, self.slots.doing)
            peer_wait.look()
            sleep_until(now() + 100_000, watch.check)
