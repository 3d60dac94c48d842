"""Python's part beside a mover: it looks around while that is blocked, moves slots, or all."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from workbench.messaging.message import Message
from workbench.messaging.mover import AHEAD, DONE, FOREIGN, LOOK, NoMover
from workbench.messaging.slots import Slots
from workbench.messaging.watchdog import PeerWait
from workbench.transports.arrays import flat_array


def slots_of(elements: int, itemsize: int, slot_bytes: int) -> tuple[int, int]:
    """Return the number of slots for these elements, and the elements per slot.

    The slots are even, without a small rest.
    """
    most = max(1, slot_bytes // itemsize)
    slots = max(1, -(-elements // most))
    return slots, -(-elements // slots)


def pieces_of(x: Any, first: int, slot_bytes: int) -> list[Any]:
    """Return the slots of ``x``. An empty tensor is still one message, unless it is a tail
    (``first`` > 0).
    """
    elements, itemsize = len(x), x.itemsize
    if elements == 0:
        return [x] if first == 0 else []
    if elements * itemsize <= slot_bytes:
        return [x]
    slots, per = slots_of(elements, itemsize, slot_bytes)
    return [x[i * per : (i + 1) * per] for i in range(slots)]


class SlotBySlot:
    """Completes a message of which the mover has said that it is not done (``code``)."""

    def __init__(self, slots: Slots, slot_bytes: int) -> None:
        self._slots, self._mover, self._slot_bytes = slots, slots.mover, slot_bytes

    def post(self, code: int, message: Message) -> None:
        message, put = self._ready(message), self._slots.put
        pieces = pieces_of(message.x, message.slot, self._slot_bytes)

        def one(i: int) -> None:
            put(message._replace(x=pieces[i], slot=message.slot + i))

        self._complete(code, partial(self._mover.post, *message), one, len(pieces), [message.x])

    def recv(self, code: int, message: Message, reduce: str | None) -> None:
        message, take = self._ready(message), self._slots.take
        pieces = pieces_of(message.x, message.slot, self._slot_bytes)
        again = partial(self._mover.recv, *message[:2], reduce, *message[2:])

        def one(i: int) -> None:
            take(message._replace(x=pieces[i], slot=message.slot + i), reduce)

        self._complete(code, again, one, len(pieces), [message.x])

    def relay(
        self,
        code: int,
        message: Message,
        to: int,
        reduce: str | None,
        keep: bool,
        next_phase: str | int,
    ) -> None:
        message, pass_on = self._ready(message), self._slots.pass_on
        pieces, number = (
            pieces_of(message.x, message.slot, self._slot_bytes),
            self._number(next_phase),
        )
        x, frm, *place = message
        again = partial(self._mover.relay, x, frm, to, reduce, keep, *place, number)

        def one(i: int) -> None:
            piece = message._replace(x=pieces[i], slot=message.slot + i)
            pass_on(piece, to, reduce, keep, number)

        self._complete(code, again, one, len(pieces), [x])

    def exchange(
        self, code: int, leaving: Message, arriving: Message, reduce: str | None, before: bool
    ) -> None:
        put, take = self._slots.put, self._slots.take
        out, back = self._ready(leaving), self._ready(arriving)
        put_each, take_each = self._each(out), self._each(back)
        ends, place = (*out[:2], *back[:2]), (out.step, out.chunk, back.chunk, out.slot, out.phase)
        again = partial(self._mover.exchange, *ends, reduce, *place, before)

        def one(turn: int) -> None:
            i, taking = divmod(turn, 2)
            if not taking and i < len(put_each):
                put(put_each[i])
            if taking and AHEAD <= i < len(take_each) + AHEAD:
                take(take_each[i - AHEAD], reduce, before)

        turns = 2 * max(len(put_each), len(take_each) + AHEAD)
        arrays = [*out.x, *back.x] if isinstance(out.x, list) else [out.x, back.x]
        self._complete(code, again, one, turns, arrays)

    def _ready(self, message: Message) -> Message:
        """Return the message with flat arrays, and its phase as a number."""
        x = message.x
        flat = [flat_array(one) for one in x] if isinstance(x, list) else flat_array(x)
        return message._replace(x=flat, phase=self._number(message.phase))

    def _each(self, message: Message) -> list[Message]:
        """Return all slots of a message, of one chunk or of several."""
        x, chunk, slot = message.x, message.chunk, message.slot
        chunks = zip(x, chunk, strict=True) if isinstance(x, list) else [(x, chunk)]
        return [
            message._replace(x=piece, chunk=c, slot=i)
            for one, c in chunks
            for i, piece in enumerate(pieces_of(one, slot, self._slot_bytes), slot)
        ]

    def _number(self, phase: str | int) -> int:
        return phase if isinstance(phase, int) else self._slots.recorder.name(phase)

    def _complete(
        self,
        code: int,
        again: Callable[[], int],
        one: Callable[[int], None],
        turns: int,
        arrays: list[Any],
    ) -> None:
        mover, slots = self._mover, self._slots
        there = not isinstance(mover, NoMover)
        if there and code == FOREIGN and all(isinstance(x, np.ndarray) for x in arrays):
            code = again()  # a tensor, which numpy has shown it by now
        if code == FOREIGN:
            for turn in range(turns):
                one(turn)
            return
        peer_wait: PeerWait | None = None
        try:
            while code != DONE:
                if code == LOOK:
                    peer_wait = peer_wait or self._peer_wait()
                    peer_wait.look()
                    mover.slice_ns = int(slots.watch.slice * 1e9)
                else:
                    one(mover.at)
                    mover.at, peer_wait = mover.at + 1, None
                code = again()
        except BaseException:
            mover.give_up()
            raise

    def _peer_wait(self) -> PeerWait:
        """Return the state of the wait in which the mover is blocked."""
        mover, slots = self._mover, self._slots
        doing = f"{slots.doing}, step {mover.step() + 1}"
        return PeerWait(slots.watch, mover.peer(), slots.lane, doing, since=mover.waiting)
