"""Binomial-tree scatter: each rank keeps its part and passes on what is for those below it.

Paper  Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in
       MPICH", IJHPCA 19(1), 2005. doi:10.1177/1094342005051521
Cost   T = ⌈lg p⌉·α + (p-1)/p·n·β                                [seconds]
       p ranks, n bytes scattered; α s/message, β s/byte sent. In all ⌈lg p⌉/2·n are sent (p a power
       of two), where flat sends n: the tree pays for fewer messages with bytes.
Walk   p=8, root 0: 0→4 with four chunks, then 0→2 4→6 with two, then 0→1 2→3 4→5 6→7 with one.
       With another root r all ranks are shifted by r; chunk c is for rank c.
"""

from __future__ import annotations

from typing import Any

from workbench.collectives._binomial import node, rounds
from workbench.messaging.communicator import Communicator
from workbench.transports.arrays import room_for


def scatter(comm: Communicator, x_N: Any | None, into_n: Any, root: int) -> None:
    """Put each rank's part of flat ``x_N`` of rank ``root`` into its ``into_n``.

    Shapes: n elements, n >= 0, and N = p·n; ``x_N`` is None on other ranks, and untouched on the
    root, whose part of it may be ``into_n``.
    Raises CollectiveError if ranks disagree on n, dtype or root, PeerLost if one ends.
    """
    p, n = comm.size, len(into_n)
    place = (comm.rank - root) % p
    here, last = node(place, p), rounds(p) - 1
    if place == 0:
        chunks = comm.split(x_N)
        parts = [chunks[(v + root) % p] for v in range(p)]
    else:  # what is for those below passes through this rank
        below = room_for(n * (here.end - place - 1), into_n)
        parts = [into_n, *(below[i * n : (i + 1) * n] for i in range(here.end - place - 1))]
        for v in range(place, here.end):
            comm.recv(
                parts[v - place],
                frm=(here.parent + root) % p,
                step=last - here.round,
                chunk=(v + root) % p,
                phase="scatter",
            )

    for k, child in reversed(here.children):  # the largest part of the tree first
        for v in range(child, node(child, p).end):
            comm.send(
                parts[v - place],
                to=(child + root) % p,
                step=last - k,
                chunk=(v + root) % p,
                phase="scatter",
            )
    if place == 0:
        into_n[:] = parts[0]
