"""Binomial-tree broadcast: in every round each rank that has the tensor passes it on to one more.

Paper  Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in
       MPICH", IJHPCA 19(1), 2005. doi:10.1177/1094342005051521
Cost   T = ⌈lg p⌉·(α + n·β)                                      [seconds]
       p ranks, n bytes; α s/message, β s/byte sent. The root alone sends ⌈lg p⌉·n.
Walk   p=8, root 0: 0→4, then 0→2 4→6, then 0→1 2→3 4→5 6→7. With another root r all ranks are
       shifted by r. Large tensors are passed on slot by slot, before all of them is there.
"""

from __future__ import annotations

from typing import Any

from workbench.collectives._binomial import node, rounds
from workbench.messaging.communicator import Communicator


def broadcast(comm: Communicator, x_N: Any, root: int, *, first_step: int = 0) -> Any:
    """Give flat ``x_N`` of rank ``root`` to all, in place. ``first_step``: where numbering starts.

    Shapes: N elements, any N >= 0.
    Raises CollectiveError if ranks disagree on N, dtype or root, PeerLost if one ends.
    """
    p = comm.size
    here, last = node((comm.rank - root) % p, p), first_step + rounds(p) - 1
    for slot, (piece,) in comm.slices([x_N], x_N.itemsize, 1):
        if here.parent >= 0:
            comm.recv(
                piece,
                frm=(here.parent + root) % p,
                step=last - here.round,
                chunk=0,
                slot=slot,
                phase="broadcast",
            )
        for k, child in reversed(here.children):  # the largest part of the tree first
            comm.send(
                piece, to=(child + root) % p, step=last - k, chunk=0, slot=slot, phase="broadcast"
            )
    return x_N
