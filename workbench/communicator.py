"""What a collective algorithm is written against: rank, size, send, recv, exchange, relay, span.

Tensors are flat or contiguous, of any dtype; a tensor travels in slots of at most ``slot_bytes``.
Every call may raise PeerLost, CollectiveError or RunTimeout, and never blocks for ever.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from workbench.arrays import MAX, MIN, PRODUCT, SUM, flat_array, kernels_of
from workbench.control import Control
from workbench.events import CODE, COLLECTIVE, REDUCE, Where, now
from workbench.members import Members
from workbench.pacing import sleep_until
from workbench.slots import Slots
from workbench.transports.mailbox import SLOTS
from workbench.watch import Patience

__all__ = ["MAX", "MIN", "PRODUCT", "SUM", "Communicator"]
_METRIC = CODE["metric"]


class Communicator:
    """One rank's end of a group. Peers are group ranks; the events name world ranks."""

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
        self.slots = Slots(members, lane, group, control, generation)
        self.lane = self.slots.lane
        self._step, self._chunk, self._phase, self._next_step = -1, -1, 0, 0

    # -- what a collective begins and ends with --

    def begin(
        self, collective: str, algorithm: str, op: int, signature: int, where: Where,
        shape: tuple[int, ...] = (), dtype: str = "",
    ) -> None:  # fmt: skip
        """From here on rows belong to this collective, the group's ``op``-th."""
        slots, name = self.slots, self.recorder.name
        slots.op, slots.signature, slots.where = op, signature, where
        slots.doing = f"{collective} {op}"
        self._next_step = 0
        slots.watch.check()
        self.members.board.begin(op, signature)
        numbers = name(collective), name(algorithm), slots.group_number
        self.lane.context(*numbers, op, where, self.generation)
        self.lane.status(
            COLLECTIVE, collective=numbers[0], algorithm=numbers[1], group=numbers[2],
            op=op, dtype=name(dtype), shape=shape,
        )  # fmt: skip

    def end(self, start: int, nbytes: int, label: str = "", itemsize: float = math.nan) -> None:
        """The outer row of the collective that ends here; its ``value``: bytes an element."""
        name = self.recorder.name(label) if label else 0
        self.lane.write(COLLECTIVE, start, now(), nbytes=nbytes, name=name, value=itemsize)
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
            _METRIC, moment, moment, step=self._step, chunk=self._chunk,
            name=self.recorder.name(name), value=value,
        )  # fmt: skip

    # -- cutting --

    def split(self, x_N: Any) -> list[Any]:
        """``size`` views of flat ``x_N``; the first N mod size have one element more."""
        whole, extra = divmod(len(x_N), self.size)
        ends = [i * whole + min(i, extra) for i in range(self.size + 1)]
        return [x_N[a:b] for a, b in pairwise(ends)]

    def slices(self, chunks: Sequence[Any], itemsize: int) -> Iterator[tuple[int, list[Any]]]:
        """Walk all chunks together in pieces that stay in the core's cache.

        Yields (number of the piece's first slot, a view of each chunk). At most half the slots of a
        link are in flight, so that a ring of links can never be full.
        """
        slots, per = self._cut(max(len(chunk) for chunk in chunks), itemsize)
        stride = SLOTS // 2
        for first in range(0, slots, stride):
            a, b = first * per, (first + stride) * per
            yield first, [chunk[a:b] for chunk in chunks]

    def _cut(self, elements: int, itemsize: int) -> tuple[int, int]:
        """How many slots so many elements take, and elements a slot: even, with no crumb at the
        end.
        """
        most = max(1, self.members.slot_bytes // itemsize)
        slots = max(1, -(-elements // most))
        return slots, -(-elements // slots)

    def _pieces(self, x: Any, first: int) -> list[Any]:
        """The slots of ``x``. Nothing is still one message, unless it is a tail (``first`` > 0)."""
        elements = len(x)
        if elements == 0:
            return [x] if first == 0 else []
        slots, per = self._cut(elements, x.itemsize)
        return [x] if slots == 1 else [x[i * per : (i + 1) * per] for i in range(slots)]

    def _place(self, step: int | None, chunk: int | None, phase: str) -> tuple[int, int, int]:
        """Where a call stands in its algorithm: as it says, as the span says, or counted."""
        if step is None:
            step = self._step
            if step < 0:
                step, self._next_step = self._next_step, self._next_step + 1
        number = self.recorder.name(phase) if phase else self._phase
        return step, self._chunk if chunk is None else chunk, number

    # -- the primitives --

    def send(
        self, x: Any, *, to: int, step: int | None = None, chunk: int | None = None,
        phase: str = "", slot: int = 0,
    ) -> None:  # fmt: skip
        """Send ``x``. May return before it is received."""
        place = self._place(step, chunk, phase)
        for i, piece in enumerate(self._pieces(flat_array(x), slot), slot):
            self.slots.put(piece, to, place[0], place[1], i, place[2])

    def recv(
        self, into: Any, *, frm: int | None, reduce: str | None = None, step: int | None = None,
        chunk: int | None = None, phase: str = "", slot: int = 0,
    ) -> int:  # fmt: skip
        """Receive into ``into``, or combine with it (``reduce="SUM"``). Returns the sender.

        ``frm=None`` takes from whoever has sent something.
        """
        place = self._place(step, chunk, phase)
        frm = self._anyone() if frm is None else frm
        for i, piece in enumerate(self._pieces(flat_array(into), slot), slot):
            self.slots.take(piece, frm, reduce, place[0], place[1], i, place[2])
        return frm

    def exchange(
        self, x: Any, *, to: int, into: Any, frm: int, reduce: str | None = None,
        step: int | None = None, chunk: int | None = None, phase: str = "", slot: int = 0,
    ) -> None:  # fmt: skip
        """Send ``x`` and receive ``into``, slot by slot: two full mailboxes cannot block each
        other.
        """
        step, chunk, number = self._place(step, chunk, phase)
        out, into = self._pieces(flat_array(x), slot), self._pieces(flat_array(into), slot)
        for i in range(max(len(out), len(into))):
            if i < len(out):
                self.slots.put(out[i], to, step, chunk, slot + i, number)
            if i < len(into):
                self.slots.take(into[i], frm, reduce, step, chunk, slot + i, number)

    def relay(
        self, mine: Any, *, frm: int, to: int, reduce: str | None, keep: bool = True,
        step: int, chunk: int, phase: str = "", next_phase: str = "", slot: int = 0,
    ) -> None:  # fmt: skip
        """Receive ``mine``'s counterpart, combine it with ``mine``, pass the outcome on as ``step``
        + 1.

        ``reduce=None`` replaces ``mine`` and passes it on. ``keep=False`` leaves ``mine`` alone:
        the sum goes from slot to slot in one pass over memory (NCCL calls this recvReduceSend).
        """
        name = self.recorder.name
        phases = name(phase), name(next_phase or phase)
        for i, piece in enumerate(self._pieces(flat_array(mine), slot), slot):
            self.slots.pass_on(piece, frm, to, reduce, keep, step, chunk, i, phases)

    def combine(
        self, into: Any, other: Any, reduce: str, *, chunk: int = -1, slot: int = 0
    ) -> None:
        """``into`` = ``into`` combined with this rank's own ``other``; nothing travels."""
        into, other, me = flat_array(into), flat_array(other), self.members.world[self.rank]
        both = zip(self._pieces(into, slot), self._pieces(other, slot), strict=True)
        for i, (mine, own) in enumerate(both, slot):
            start = now()
            kernels_of(mine).reduce[reduce](mine, own, out=mine)
            self.lane.write(REDUCE, start, now(), me, self._step, chunk, i, mine.nbytes)

    def _anyone(self) -> int:
        """A peer that has sent something, waiting for one if there is none."""
        patience: Patience | None = None
        while (peer := self.slots.anyone()) is None:
            watch = self.members.watch
            patience = patience or Patience(watch, -1, self.lane, self.slots.doing)
            patience.look()
            sleep_until(now() + 100_000, watch.check)
        return peer
