"""All-reduce by all-to-all peers: every rank sends its tensor to every other, and adds them all.

Cost   T = (p-1)·(α + n·β + n·γ)                                 [seconds]
       p ranks, n bytes; α s/message, β s/byte sent, γ s/byte added.
Walk   p=4, step s: rank r sends its own part to r+1+s and receives that of r-1-s (mod p). When all
       are there, every rank adds x0 + x1 + x2 + x3 in this order, so that all get the same bits.
       ``one_shot`` sends the same messages without waiting for a step's end.
"""

from __future__ import annotations

from typing import Any

from workbench.messaging.communicator import SUM, Communicator
from workbench.transports.arrays import room_for

AT_ONCE = 16  # slots of each peer's part that are kept until all are there


def all_reduce(comm: Communicator, x_N: Any, reduce: str = SUM) -> Any:
    """Combine flat ``x_N`` over the ranks, in place; every rank ends with the same bits.

    Shapes: N elements, any N >= 0, sent whole to every peer, so that (p-1)·N leave each rank.
    Raises CollectiveError if ranks disagree on N or dtype, PeerLost if one ends.
    """
    p, me = comm.size, comm.rank
    theirs: list[Any] = []
    for slot, (mine,) in comm.slices([x_N], x_N.itemsize, AT_ONCE):
        n = len(mine)
        theirs = theirs or [room_for(n if peer != me else 0, mine) for peer in range(p)]
        for step in range(p - 1):
            to, frm = (me + 1 + step) % p, (me - 1 - step) % p
            comm.exchange(
                mine,
                to=to,
                into=theirs[frm][:n],
                frm=frm,
                step=step,
                chunk=0,
                slot=slot,
                phase="exchange",
            )
        # In the order of ranks: those below mine come together first, in the room of rank 0's part.
        for peer in (*range(1, me), *([0] if me else []), *range(me + 1, p)):
            comm.combine(
                theirs[0][:n] if 0 < peer < me else mine,
                theirs[peer][:n],
                reduce,
                frm=peer,
                step=(me - peer - 1) % p,
                chunk=0,
                slot=slot,
                before=peer == 0,
            )
    return x_N
