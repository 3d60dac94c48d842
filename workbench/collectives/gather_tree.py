"""Binomial-tree gather: parts are put together pairwise on their way up to the root.

Paper  Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in
       MPICH", IJHPCA 19(1), 2005. doi:10.1177/1094342005051521
Cost   T = ⌈lg p⌉·α + (p-1)/p·n·β                                [seconds]
       p ranks, n bytes gathered; α s/message, β s/byte sent. In all ⌈lg p⌉/2·n are sent (p a power
       of two), where flat sends n: the tree pays for fewer messages with bytes.
Walk   p=8, root 0: 1→0 3→2 5→4 7→6 with one chunk, then 2→0 6→4 with two, then 4→0 with four.
       With another root r all ranks are shifted by r; chunk c is what rank c has.
"""

from __future__ import annotations

from typing import Any

from workbench.collectives._binomial import node
from workbench.messaging.communicator import Communicator
from workbench.transports.arrays import room_for


def gather(comm: Communicator, x_n: Any, into_N: Any | None, root: int) -> None:
    """Fill flat ``into_N`` of rank ``root`` with the ``x_n`` of all ranks, in their order.

    Shapes: n elements, n >= 0, and N = p·n; ``into_N`` is None on other ranks. ``x_n`` is untouched
    and may be the root's part of ``into_N``.
    Raises CollectiveError if ranks disagree on n, dtype or root, PeerLost if one ends.
    """
    p, n = comm.size, len(x_n)
    place = (comm.rank - root) % p
    here = node(place, p)
    if place == 0:
        chunks = comm.split(into_N)
        parts = [chunks[(v + root) % p] for v in range(p)]
        parts[0][:] = x_n
    else:  # the tensors of the subtree pass through this rank
        below = room_for(n * (here.end - place - 1), x_n)
        parts = [x_n, *(below[i * n : (i + 1) * n] for i in range(here.end - place - 1))]

    for k, child in here.children:
        for v in range(child, node(child, p).end):
            comm.recv(
                parts[v - place],
                frm=(child + root) % p,
                step=k,
                chunk=(v + root) % p,
                phase="gather",
            )
    if here.parent >= 0:
        for v in range(place, here.end):
            comm.send(
                parts[v - place],
                to=(here.parent + root) % p,
                step=here.round,
                chunk=(v + root) % p,
                phase="gather",
            )
