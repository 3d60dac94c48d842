"""Naive all-reduce: every rank sends to rank 0, which adds and sends the sum back.

Cost   T = 2(p-1)·(α + n·β) + (p-1)·n·γ, all of it at the root    [seconds]
       p ranks, n bytes; α s/message, β s/byte sent, γ s/byte added.
Walk   p=4: 1→0, 2→0, 3→0 (rank 0 adds in this order), then 0→1, 0→2, 0→3.
       The root sends (p-1)·n bytes, every other rank n: the root is the bottleneck.
"""

from __future__ import annotations

from typing import Any

from workbench.messaging.communicator import SUM, Communicator


def all_reduce(comm: Communicator, x_N: Any, reduce: str = SUM) -> Any:
    """Combine flat ``x_N`` over the ranks, in place; every rank ends with the same bits.

    Shapes: N elements, any N >= 0, sent as one chunk.
    Raises CollectiveError if ranks disagree on N or dtype, PeerLost if one ends.
    """
    p, me, root = comm.size, comm.rank, 0
    if me == root:
        for peer in range(1, p):
            comm.recv(x_N, frm=peer, reduce=reduce, step=peer - 1, chunk=0, phase="reduce")
        for peer in range(1, p):
            comm.send(x_N, to=peer, step=p - 2 + peer, chunk=0, phase="broadcast")
    else:
        comm.send(x_N, to=root, step=me - 1, chunk=0, phase="reduce")
        comm.recv(x_N, frm=root, step=p - 2 + me, chunk=0, phase="broadcast")
    return x_N
