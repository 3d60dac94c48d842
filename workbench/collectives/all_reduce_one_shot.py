"""One-shot all-reduce: every rank sends everything to every other and adds in rank order. For small
tensors.

Cost   T = (p-1)·(α + n·β + n·γ)                                 [seconds]
       p ranks, n bytes; α s/message, β s/byte sent, γ s/byte added. A message does not wait for
       another one's arrival, so that in practice the α of the p-1 steps overlap.
Walk   p=4, step s: rank r sends to r+1+s and receives from r-1-s (mod p). All messages leave first;
       then each rank adds x0 + x1 + x2 + x3 in this order, so that every rank gets the same bits.
"""

from __future__ import annotations

from typing import Any

from workbench.messaging.communicator import SUM, Communicator


def all_reduce(comm: Communicator, x_N: Any, reduce: str = SUM) -> Any:
    """Combine flat ``x_N`` over the ranks, in place; every rank ends with the same bits.

    Shapes: N elements, any N >= 0, sent whole to every peer, so that (p-1)·N leave each rank.
    Raises CollectiveError if ranks disagree on N or dtype, PeerLost if one ends.
    """
    p, me = comm.size, comm.rank
    for first, (piece,) in comm.slices(
        [x_N], x_N.itemsize
    ):  # no more leaves than the mailboxes hold
        for step in range(p - 1):
            comm.post(
                piece, to=(me + 1 + step) % p, step=step, chunk=0, slot=first, phase="exchange"
            )
        # Ranks below mine come first in the sum: start from rank 0's part, keep my own aside.
        mine = piece.copy() if hasattr(piece, "copy") else piece.clone()
        for peer in range(p):
            if peer == me:
                if me > 0:
                    comm.combine(piece, mine, reduce, chunk=0, slot=first)
            else:
                comm.recv(
                    piece,
                    frm=peer,
                    reduce=reduce if peer > 0 else None,
                    step=(me - peer - 1) % p,
                    chunk=0,
                    slot=first,
                    phase="exchange",
                )
    return x_N
