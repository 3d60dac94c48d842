"""Binomial-tree reduce: sums meet pairwise on their way up to the root.

Paper  Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in
       MPICH", IJHPCA 19(1), 2005. doi:10.1177/1094342005051521
Cost   T = ⌈lg p⌉·(α + n·β + n·γ)                                [seconds]
       p ranks, n bytes; α s/message, β s/byte sent, γ s/byte added.
Walk   p=8, root 0: 1→0 3→2 5→4 7→6, then 2→0 6→4, then 4→0. Each rank but the root sends once, when
       the sum of its own part of the tree is complete. With another root r all ranks are shifted.
"""

from __future__ import annotations

from typing import Any

from workbench.collectives._binomial import node
from workbench.messaging.communicator import SUM, Communicator
from workbench.transports.arrays import copy_of


def reduce(comm: Communicator, x_N: Any, root: int, reduce: str = SUM) -> Any:
    """Combine flat ``x_N`` over the ranks into the root's; that of the others is untouched.

    Shapes: N elements, any N >= 0.
    Raises CollectiveError if ranks disagree on N, dtype or root, PeerLost if one ends.
    """
    place = (comm.rank - root) % comm.size
    adds_aside = place > 0 and bool(node(place, comm.size).children)
    climb(comm, copy_of(x_N) if adds_aside else x_N, root, reduce)
    return x_N


def climb(comm: Communicator, sum_N: Any, root: int, reduce: str) -> None:
    """Reduce as above; leave in ``sum_N`` the sum over the rank's own subtree."""
    p = comm.size
    here = node((comm.rank - root) % p, p)
    for k, child in here.children:
        comm.recv(sum_N, frm=(child + root) % p, reduce=reduce, step=k, chunk=0, phase="reduce")
    if here.parent >= 0:
        comm.send(sum_N, to=(here.parent + root) % p, step=here.round, chunk=0, phase="reduce")
