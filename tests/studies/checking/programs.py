"""All-reduces as data: true ones, ones with one thing wrong, and what must come of each.

A program is a row of moves for every rank: (what, peer, chunk), where what is ``send``, ``post``,
``add`` (receive and add) or ``copy`` (receive). It is deterministic, whatever the ranks' speeds:
no rank receives from just any other. So playing it here, with counters for tensors and queues for
mailboxes, says what real ranks must end with, without any of the code that judges them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch  # noqa: F401 (before any module of ours that needs it: it loads our backend)

from workbench.transports.mailbox import SLOTS


class Move(NamedTuple):
    what: str
    peer: int
    chunk: int

    @property
    def sends(self) -> bool:
        return self.what in ("send", "post")


Program = list[list[Move]]

CODE = """\
MOVES = {moves}


def all_reduce(comm, x):
    chunks = x.tensor_split({parts})
    for what, peer, chunk in MOVES[comm.rank]:
        part = chunks[chunk]
        if what == "send":
            comm.send(part, to=peer)
        elif what == "post":
            comm.post(part, to=peer)
        elif what == "add":
            comm.recv(part, frm=peer, reduce="SUM")
        else:
            comm.recv(part, frm=peer)
"""


def code(program: Program, parts: int) -> str:
    return CODE.format(moves=[[tuple(move) for move in row] for row in program], parts=parts)


# -- true ones --


def ring(n: int) -> Program:
    """In n chunks: sums grow on their way round, then they go round once more."""
    rows: Program = []
    for me in range(n):
        left, right = (me - 1) % n, (me + 1) % n
        row = []
        for step in range(n - 1):
            row += [Move("post", right, (me - step) % n), Move("add", left, (me - step - 1) % n)]
        for step in range(n - 1):
            row += [Move("post", right, (me + 1 - step) % n), Move("copy", left, (me - step) % n)]
        rows.append(row)
    return rows


def tree(n: int) -> Program:
    """Whole tensors up a binomial tree to rank 0, and down again."""
    rows: Program = []
    for me in range(n):
        row, down, distance = [], [], 1
        while distance < n and not me & distance:
            if me + distance < n:
                row.append(Move("add", me + distance, 0))
                down.insert(0, Move("send", me + distance, 0))
            distance *= 2
        if me:
            row += [Move("send", me - distance, 0), Move("copy", me - distance, 0)]
        rows.append(row + down)
    return rows


# -- what must come of one --


@dataclass
class End:
    """``held``: rank -> chunk -> how many times each rank's part is in. ``blocked``: rank -> which
    it waits for, in which move. ``left``: (from, to) -> messages that were not taken. ``sent``: of
    each rank, in chunks."""

    held: list[list[tuple[int, ...]]]
    blocked: dict[int, Move]
    left: Counter[tuple[int, int]]
    sent: list[int]

    @property
    def right(self) -> bool:
        return not self.blocked and not self.left and not self.wrong

    @property
    def wrong(self) -> list[int]:
        """Ranks that do not hold every rank's part once, everywhere."""
        return [r for r, row in enumerate(self.held) if any({*counts} != {1} for counts in row)]


def play(program: Sequence[Sequence[Move]], parts: int, rendezvous: bool) -> End:
    n = len(program)
    held = [[tuple(int(r == me) for r in range(n)) for _ in range(parts)] for me in range(n)]
    boxes: dict[tuple[int, int], deque[tuple[int, ...]]] = {
        (a, b): deque() for a in range(n) for b in range(n)
    }
    at, sent, posted, moved = [0] * n, [0] * n, [False] * n, True
    while moved:
        moved = False
        for me, row in enumerate(program):
            while at[me] < len(row):
                move = row[at[me]]
                if move.sends:
                    box = boxes[me, move.peer]
                    if not posted[me]:
                        if len(box) == SLOTS:
                            break
                        box.append(held[me][move.chunk])
                        sent[me] += 1
                        posted[me] = moved = True
                    if rendezvous and move.what == "send" and box:
                        break  # it returns when all is taken
                    posted[me] = False
                else:
                    box = boxes[move.peer, me]
                    if not box:
                        break
                    came, mine = box.popleft(), held[me][move.chunk]
                    added = tuple(a + b for a, b in zip(came, mine, strict=True))
                    held[me][move.chunk] = added if move.what == "add" else came
                at[me] += 1
                moved = True
    blocked = {me: row[at[me]] for me, row in enumerate(program) if at[me] < len(row)}
    return End(held, blocked, Counter({pair: len(box) for pair, box in boxes.items() if box}), sent)
