"""Python's part beside a mover: it looks around while that is blocked, moves slots, or all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from workbench.messaging.mover import AHEAD, DONE, FOREIGN, LOOK, NoMover
from workbench.messaging.slots import Slots
from workbench.messaging.watchdog import PeerWait
from workbench.transports.arrays import flat_array

Numbered = list[tuple[Any, int, int]]  # slots, with the numbers of their chunk and slot


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

    def post(
        self, code: int, x: Any, to: int, step: int, chunk: int, slot: int, phase: str | int
    ) -> None:
        x, number, put = flat_array(x), self._number(phase), self._slots.put
        pieces = pieces_of(x, slot, self._slot_bytes)

        def again() -> int:
            result: int = self._mover.post(x, to, step, chunk, slot, number)
            return result

        def one(i: int) -> None:
            put(pieces[i], to, step, chunk, slot + i, number)

        self._complete(code, again, one, len(pieces), [x])

    def recv(
        self,
        code: int,
        into: Any,
        frm: int,
        reduce: str | None,
        step: int,
        chunk: int,
        slot: int,
        phase: str | int,
    ) -> None:
        into, number, take = flat_array(into), self._number(phase), self._slots.take
        pieces = pieces_of(into, slot, self._slot_bytes)

        def again() -> int:
            result: int = self._mover.recv(into, frm, reduce, step, chunk, slot, number)
            return result

        def one(i: int) -> None:
            take(pieces[i], frm, reduce, step, chunk, slot + i, number)

        self._complete(code, again, one, len(pieces), [into])

    def relay(
        self,
        code: int,
        mine: Any,
        frm: int,
        to: int,
        reduce: str | None,
        keep: bool,
        step: int,
        chunk: int,
        slot: int,
        phase: str | int,
        next_phase: str | int,
    ) -> None:
        mine, pass_on = flat_array(mine), self._slots.pass_on
        phases = self._number(phase), self._number(next_phase)
        pieces = pieces_of(mine, slot, self._slot_bytes)

        def again() -> int:
            result: int = self._mover.relay(mine, frm, to, reduce, keep, step, chunk, slot, *phases)
            return result

        def one(i: int) -> None:
            pass_on(pieces[i], frm, to, reduce, keep, step, chunk, slot + i, phases)

        self._complete(code, again, one, len(pieces), [mine])

    def exchange(
        self,
        code: int,
        x: Any,
        to: int,
        into: Any,
        frm: int,
        reduce: str | None,
        step: int,
        chunk: Any,
        into_chunk: Any,
        slot: int,
        phase: str | int,
        before: bool,
    ) -> None:
        number, put, take = self._number(phase), self._slots.put, self._slots.take
        x, into = self._flat(x), self._flat(into)
        out, arriving = self._numbered(x, chunk, slot), self._numbered(into, into_chunk, slot)

        def again() -> int:
            result: int = self._mover.exchange(
                x, to, into, frm, reduce, step, chunk, into_chunk, slot, number, before
            )
            return result

        def one(turn: int) -> None:
            i, taking = divmod(turn, 2)
            if not taking and i < len(out):
                piece, c, at = out[i]
                put(piece, to, step, c, at, number)
            if taking and AHEAD <= i < len(arriving) + AHEAD:
                piece, c, at = arriving[i - AHEAD]
                take(piece, frm, reduce, step, c, at, number, before)

        turns = 2 * max(len(out), len(arriving) + AHEAD)
        arrays = [*x, *into] if isinstance(x, list) else [x, into]
        self._complete(code, again, one, turns, arrays)

    def _flat(self, x: Any) -> Any:
        return [flat_array(one) for one in x] if isinstance(x, list) else flat_array(x)

    def _numbered(self, x: Any, chunk: Any, slot: int) -> Numbered:
        """Return all slots of ``x``, with the numbers of its chunk and slot."""
        chunks = zip(x, chunk, strict=True) if isinstance(x, list) else [(x, chunk)]
        return [
            (piece, c, i)
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
