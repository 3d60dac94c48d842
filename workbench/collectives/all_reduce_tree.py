"""Binomial-tree all-reduce: a reduce up the tree to rank 0, then a broadcast down.

Paper  Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in
       MPICH", IJHPCA 19(1), 2005. doi:10.1177/1094342005051521
Cost   T = 2·⌈lg p⌉·(α + n·β) + ⌈lg p⌉·n·γ                       [seconds]
       p ranks, n bytes; α s/message, β s/byte sent, γ s/byte added. In all 2(p-1)·n are sent.
Walk   p=4: 1→0 3→2, then 2→0: rank 0 has x0 + x1 + (x2 + x3). Then 0→2, then 0→1 2→3.
"""

from __future__ import annotations

from typing import Any

from workbench.collectives._binomial import rounds
from workbench.collectives.broadcast_tree import broadcast
from workbench.collectives.reduce_tree import climb
from workbench.messaging.communicator import SUM, Communicator


def all_reduce(comm: Communicator, x_N: Any, reduce: str = SUM) -> Any:
    """Combine flat ``x_N`` over the ranks, in place; every rank ends with the same bits.

    Shapes: N elements, any N >= 0, sent as one chunk.
    Raises CollectiveError if ranks disagree on N or dtype, PeerLost if one ends.
    """
    climb(comm, x_N, 0, reduce)  # what it leaves in x_N of other ranks the broadcast replaces
    return broadcast(comm, x_N, 0, first_step=rounds(comm.size))
