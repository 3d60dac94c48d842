"""Flat broadcast: the root itself sends the tensor to every rank.

Cost   T = (p-1)·(α + n·β), all of it at the root                [seconds]
       p ranks, n bytes; α s/message, β s/byte sent.
Walk   p=4, root 0: 0→1, 0→2, 0→3. No rank passes anything on, so that only the root's end
       keeps the tensor from another rank.
"""

from __future__ import annotations

from typing import Any

from workbench.messaging.communicator import Communicator


def broadcast(comm: Communicator, x_N: Any, root: int) -> Any:
    """Give flat ``x_N`` of rank ``root`` to all, in place.

    Shapes: N elements, any N >= 0.
    Raises CollectiveError if ranks disagree on N, dtype or root, PeerLost if one ends.
    """
    p, place = comm.size, (comm.rank - root) % comm.size
    for slot, (piece,) in comm.slices([x_N], x_N.itemsize, 1):
        if place == 0:
            for step in range(p - 1):
                to = (root + 1 + step) % p
                comm.send(piece, to=to, step=step, chunk=0, slot=slot, phase="broadcast")
        else:
            comm.recv(piece, frm=root, step=place - 1, chunk=0, slot=slot, phase="broadcast")
    return x_N
