"""An algorithm's file walked through without ranks: which slots it moves, in which order.

What an algorithm does depends on its rank, the number of ranks and the sizes, never on what is in
the tensors. So each rank's part can be run by itself, over a communicator that writes down every
slot and moves none: the same file, the same cutting, no formula of it needed, a user's own too.

Sizes are scaled down, so that no memory is needed: an element stands for ``unit`` bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch  # noqa: F401 (before what stands on it: torch brings our backend in)

from workbench.common.errors import CollectiveError
from workbench.messaging.communicator import Communicator
from workbench.messaging.message import Message
from workbench.messaging.mover import NoMover
from workbench.messaging.slot_by_slot import SlotBySlot
from workbench.transports.arrays import flat_array

SEND, RECV, RELAY, COMBINE = range(4)
ITEM = np.dtype(np.float32).itemsize
FINEST = 4  # bytes an element stands for, where there are few
MOST_ELEMENTS = 1 << 14
ROOTED = ("broadcast", "reduce", "gather", "scatter")


class Move(NamedTuple):
    """One slot moved by one rank."""

    kind: int
    frm: int  # -1: none
    to: int
    nbytes: int
    adds: bool = False
    copies: bool = False  # of a relay: it keeps, or stores, besides passing on


class _Slots:
    """Takes the place of ``slots.Slots``."""

    def __init__(self, members: Any, *_: Any) -> None:
        self.moves: list[Move] = []
        self.unit, self.doing, self.lane = members.unit, "a walk", members.recorder
        self.recorder, self.mover = members.recorder, NoMover()

    def put(self, message: Message) -> None:
        self.moves.append(Move(SEND, -1, message.peer, len(message.x) * self.unit))

    def take(self, message: Message, reduce: str | None, *_: Any) -> None:
        nbytes = len(message.x) * self.unit
        self.moves.append(Move(RECV, message.peer, -1, nbytes, reduce is not None))

    def pass_on(self, message: Message, to: int, reduce: str | None, keep: bool, *_: Any) -> None:
        copies, nbytes = reduce is None or keep, len(message.x) * self.unit
        self.moves.append(Move(RELAY, message.peer, to, nbytes, reduce is not None, copies))

    def anyone(self) -> NoReturn:
        raise CollectiveError("which slot comes first is known only when it comes")


class Walker(Communicator):
    """A rank that writes down what it would move."""

    slots_class = _Slots

    def __init__(self, rank: int, size: int, slot_bytes: int, unit: int) -> None:
        silent = SimpleNamespace(name=lambda _: 0, write=lambda *_, **__: None)  # hears the rows
        members: Any = SimpleNamespace(
            slot_bytes=max(1, slot_bytes // unit) * ITEM,
            world=[*range(size)],
            rank=rank,
            size=size,
            unit=unit,
            recorder=silent,
        )
        super().__init__(members, "comm", "walk", control=None)

    def note_in(self, slots: Any, name: Callable[[str], int]) -> None:
        """Let ``slots`` note the moves instead of this rank's own; ``name`` numbers the names."""
        recorder: Any = SimpleNamespace(name=name)
        self.slots, self.recorder, self._mover = slots, recorder, NoMover()
        slots.recorder, slots.mover = recorder, self._mover
        self._rest = SlotBySlot(slots, self.members.slot_bytes)

    def combine(self, into: Any, other: Any, reduce: str, *, slot: int = 0, **_: Any) -> None:
        for piece in self._pieces(flat_array(into), slot):
            self.slots.moves.append(Move(COMBINE, -1, -1, len(piece) * self.slots.unit, True))


def walk(
    operation: str,
    function: Callable[..., Any],
    n: int,
    nbytes: int,
    slot_bytes: int,
    root: int = 0,
    levels: tuple[int, ...] = (),
) -> list[list[Move]]:
    """Return the moves of each rank in ``operation`` of ``nbytes`` in all, by rank.

    ``nbytes``: the whole tensor (N); of an all-to-all what a rank gives. ``levels``: of the ranks'
    hosts, if they are known. Raises CollectiveError if the algorithm does not take ``n``, or
    receives from any rank.
    """
    unit = FINEST
    while nbytes > unit * MOST_ELEMENTS and 32 * unit <= slot_bytes:
        unit *= 2
    elements = -(-nbytes // unit)
    moves = []
    for rank in range(n):
        walker = Walker(rank, n, slot_bytes, unit)
        walker.levels = levels
        function(walker, *arguments(operation, rank, n, elements, root))
        moves.append(walker.slots.moves)
    return moves


def arguments(
    operation: str, rank: int, n: int, elements: int, root: int = 0, dtype: Any = np.float32
) -> Sequence[Any]:
    """Return the arguments of an algorithm of ``operation`` after the communicator."""
    part = -(-elements // n) if operation in PARTED else 0
    whole, part_of_rank = np.zeros(n * part or elements, dtype), np.zeros(part, dtype)
    match operation:
        case "broadcast" | "reduce":
            return whole, root
        case "gather":
            return part_of_rank, whole if rank == root else None, root
        case "scatter":
            return whole if rank == root else None, part_of_rank, root
        case "all_gather":
            return part_of_rank, whole
        case "reduce_scatter":
            return whole, part_of_rank
        case "all_to_all":
            return whole, np.zeros_like(whole), [part] * n, [part] * n
        case "barrier":
            return ()
    return (whole,)


PARTED = ("gather", "scatter", "all_gather", "reduce_scatter", "all_to_all")
