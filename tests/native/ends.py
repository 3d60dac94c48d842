"""Movers without a group around them: two ends in one process, for tests of the C code alone."""

from __future__ import annotations

import contextlib
import random
import weakref
from typing import Any

import numpy as np

from workbench.recording.events import PAGE, RECORD_BYTES, ROW
from workbench.shared_memory.segments import SEMAPHORE_BYTES, Segment
from workbench.transports.sizes import HEADER_BYTES, SLOTS, mailbox_bytes, stride

DONE, LOOK, PYTHON, FOREIGN = range(4)
RECORDS = 64
HEAD_BYTES = mailbox_bytes(0) - SLOTS * stride(0)
DTYPES = ("float32", "float64", "uint8", "int8", "int16", "int32", "int64", "float16", "bool")
REDUCTIONS = (None, "SUM", "PRODUCT", "MIN", "MAX", "AVG")


class Box:
    """A mailbox as a sender makes it."""

    def __init__(self, slot_bytes: int) -> None:
        self.segment = Segment.create(mailbox_bytes(slot_bytes), "a test")
        self.stride = stride(slot_bytes)
        self.ready = self.segment.semaphore(0, 0)
        self.free = self.segment.semaphore(SEMAPHORE_BYTES, SLOTS)

    def header(self, slot: int) -> memoryview:
        at = HEAD_BYTES + slot * self.stride
        return self.segment.memory[at : at + HEADER_BYTES].cast("q")


class LaneOf:
    """Stands where a lane stands."""

    def next_block(self, contexts: int, number: int) -> None:
        return None


class End:
    """A rank's end: a mover with its journal, peer page and control page."""

    def __init__(self, native: Any, rank: int, size: int, slot_bytes: int) -> None:
        self.lane, self.names = LaneOf(), {"": 0}
        self.page, self.rows = bytearray(PAGE), bytearray(RECORDS * RECORD_BYTES)
        self.contexts = bytearray(RECORDS * RECORD_BYTES)
        self.control = memoryview(bytearray(64)).cast("q")
        self.peer_page = memoryview(bytearray(1024)).cast("q")
        rows, contexts = (self.rows, 0, RECORDS, 0, False), (self.contexts, 0, RECORDS, 0, False)
        lane = weakref.ref(self.lane)
        self.journal = native.Journal(lane, 1, 0, self.page, False, None, *rows, *contexts)
        mover = self.mover = native.Mover(
            self.journal,
            self.names,
            self.number,
            rank,
            [*range(size)],
            0,
            slot_bytes,
            self.control,
            -1,
            -1,
            self.peer_page,
            1,
            2,
            8,
        )
        mover.slice_ns, mover.yields, mover.ahead = 100_000, 1, SLOTS - 1
        self.counts: list[Any] = []

    def number(self, text: str) -> int:
        return self.names.setdefault(text, len(self.names))

    def wire(self, out: bool, peer: int, box: Box, *bell: Any) -> None:
        """Give the mover a mailbox. ``bell``: the page of the peer's bells, and a word of it."""
        self.counts.append(memoryview(bytearray(16)).cast("q"))
        self.mover.wire(out, peer, box.segment.memory, self.counts[-1], SLOTS, box.stride, *bell)

    def written(self) -> Any:
        return np.frombuffer(self.rows, ROW)


class Guarded:
    """An array between two strips that must not be written."""

    def __init__(self, chance: random.Random, dtype: str, elements: int) -> None:
        item, shift = np.dtype(dtype).itemsize, chance.choice((0, 0, 0, 1, 8))
        self.room = np.full(64 + shift + elements * item + 64, 0x5A, np.uint8)
        self.begin, self.end = 64 + shift, 64 + shift + elements * item
        self.array: Any = self.room[self.begin : self.end].view(dtype)

    def intact(self) -> bool:
        return bool(
            (self.room[: self.begin] == 0x5A).all() and (self.room[self.end :] == 0x5A).all()
        )


def any_number(chance: random.Random) -> int:
    edges = (0, 1, -1, 63, 64, 1024, 4096, 2**31 - 1, 2**31, 2**62, 2**63 - 1, -(2**63))
    return chance.choice(edges) if chance.random() < 0.6 else chance.randint(-(2**63), 2**63 - 1)


def fuzz(native: Any, seed: int, rounds: int) -> dict[int, int]:
    """Let a mover take and pass on what a hostile peer has written into its mailboxes, and let it
    send what no algorithm would. Returns how often it said what.

    Raises AssertionError if it wrote beside an array.
    """
    chance, counts = random.Random(seed), dict.fromkeys(range(4), 0)
    for _ in range(rounds):
        slot_bytes = chance.choice((64, 128, 1024, 4096))
        end, coming, going = End(native, 0, 3, slot_bytes), Box(slot_bytes), Box(slot_bytes)
        bells = memoryview(bytearray(PAGE))
        end.wire(False, 1, coming, bells, chance.randrange(8))
        end.wire(True, 2, going, bells, chance.randrange(8))
        end.mover.begin("x", "y", 5, 77, Somewhere(), (1,), "float32")
        end.mover.past_caches = chance.randrange(2)
        for _ in range(8):
            bells.cast("q")[chance.randrange(8)] = any_number(chance)
            elements = chance.choice((0, 1, 2, 7, 16, 17, 64, 1000, 3000))
            places = [Guarded(chance, chance.choice(DTYPES), elements) for _ in range(2)]
            scribble(chance, coming, places[0].array.nbytes)
            with contextlib.suppress(TypeError, ValueError, OverflowError):  # no message
                counts[one_call(chance, end.mover, places)] += 1
            end.mover.give_up()
            assert all(place.intact() for place in places), (seed, "beside an array")
            if chance.random() < 0.1:
                end.control[0] ^= 1
    return counts


class Somewhere:
    iteration = stage = version = 0
    microbatch = -1


def scribble(chance: random.Random, box: Box, whole: int) -> None:
    """Write headers: right ones, right but for a field, and any; say that slots are there.
    ``whole``: bytes of the message that is expected.
    """
    for slot in range(SLOTS):
        words, nbytes = box.header(slot), chance.choice((0, 4, 64, 128, 1000, 1024, 4096))
        total = chance.choice((nbytes, whole))
        right = [0, 5, 0, 0, slot, nbytes, 77, 0, total, 0, 0, 0]
        if chance.random() < 0.5:
            right[chance.randrange(12)] = any_number(chance)
        for at, value in enumerate(right):
            words[at] = value
    for _ in range(chance.randrange(4)):
        with contextlib.suppress(ValueError):  # there are more than a semaphore counts
            box.ready.release()
    if chance.random() < 0.05:  # the counts of its semaphores, too
        at = chance.choice((0, SEMAPHORE_BYTES))
        box.segment.words[at // 8] = chance.choice((0, 1, 5, 2**31, 2**63 - 1))


def one_call(chance: random.Random, mover: Any, places: list[Guarded]) -> int:
    x, y = places[0].array, places[1].array
    reduce, some = chance.choice(REDUCTIONS), chance.random() < 0.1
    step, chunk, slot = (any_number(chance) if some else chance.randrange(4) for _ in range(3))
    frm, to = (chance.choice((1, 1, 1, 0, 2, -1, 7)), chance.choice((2, 2, 2, 0, 1, 2**40)))
    call = chance.randrange(6)
    if call >= 4:
        return point_to_point(chance, mover, x, frm if call == 4 else to, slot, call == 4)
    if call == 0:
        result = mover.recv(x, frm, reduce, step, chunk, slot, "p")
    elif call == 1:
        result = mover.post(x, to, step, chunk, slot, "p")
    elif call == 2:
        keep = chance.random() < 0.5
        result = mover.relay(x, frm, to, reduce, keep, step, chunk, slot, "p", "q")
    else:
        many = chance.choice((1, 1, 3, 70))
        arguments = (
            (x, y, chunk, chunk) if many == 1 else ([x] * many, [y] * many, [0] * many, [1] * many)
        )
        out, into, c, d = arguments
        before = chance.random() < 0.5
        result = mover.exchange(out, to, into, frm, reduce, step, c, d, slot, "p", before)
    return int(result)


def point_to_point(
    chance: random.Random, mover: Any, x: Any, peer: int, slot: int, takes: bool
) -> int:
    """Move slots of one message; DONE where any moved, PYTHON where none did."""
    number, tag = (any_number(chance) if chance.random() < 0.1 else known for known in (5, 0))
    name = chance.choice((0, 0, 0, 7, any_number(chance)))
    since, context = chance.choice((0, 1)), chance.choice((-1, -1, 3, any_number(chance)))
    facts = (number, slot if chance.random() < 0.3 else 0, 77, tag, name, since)
    move = mover.take_slots if takes else mover.send_slots
    awake = chance.choice((0, 0, 1000, any_number(chance) % 100_000))
    moved: int = move(x, peer, *facts, Somewhere(), context, chance.random() < 0.5, awake)
    assert 0 <= moved <= 2 * SLOTS
    return DONE if moved else PYTHON
