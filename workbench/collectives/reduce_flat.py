"""Flat reduce: every rank sends its tensor to the root, which adds them one by one.

Cost   T = (p-1)·(α + n·β + n·γ), all of it at the root          [seconds]
       p ranks, n bytes; α s/message, β s/byte sent, γ s/byte added.
Walk   p=4, root 0: 1→0, 2→0, 3→0. The root adds x0 + x1 + x2 + x3 in this order.
"""

from __future__ import annotations

from typing import Any

from workbench.messaging.communicator import SUM, Communicator


def reduce(comm: Communicator, x_N: Any, root: int, reduce: str = SUM) -> Any:
    """Combine flat ``x_N`` over the ranks into the root's; that of the others is untouched.

    Shapes: N elements, any N >= 0.
    Raises CollectiveError if ranks disagree on N, dtype or root, PeerLost if one ends.
    """
    p, place = comm.size, (comm.rank - root) % comm.size
    for slot, (piece,) in comm.slices([x_N], x_N.itemsize, 1):
        if place > 0:
            comm.send(piece, to=root, step=place - 1, chunk=0, slot=slot, phase="reduce")
            continue
        for step in range(p - 1):
            frm = (root + 1 + step) % p
            comm.recv(piece, frm=frm, reduce=reduce, step=step, chunk=0, slot=slot, phase="reduce")
    return x_N
