"""Butterfly all-reduce (recursive doubling): partners at distance 1, 2, 4, ... exchange their sums.

Paper  Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in
       MPICH", IJHPCA 19(1), 2005. doi:10.1177/1094342005051521
Cost   T = lg p·(α + n·β + n·γ)                                  [seconds]
       p ranks, a power of two, n bytes; α s/message, β s/byte sent, γ s/byte added. Otherwise some
       fold into a neighbor first and unfold last: α + n·β + n·γ and α + n·β more.
Walk   p=4: 0↔1 2↔3, then 0↔2 1↔3. After step k each rank has the sum of a block of 2^(k+1) ranks,
       and both partners add the same two sums, the lower block's first: they get the same bits.
"""

from __future__ import annotations

from typing import Any

from workbench.collectives._folding import fold
from workbench.messaging.communicator import SUM, Communicator


def all_reduce(comm: Communicator, x_N: Any, reduce: str = SUM) -> Any:
    """Combine flat ``x_N`` over the ranks, in place; every rank ends with the same bits.

    Shapes: N elements, any N >= 0, sent as one chunk.
    Raises CollectiveError if ranks disagree on N or dtype, PeerLost if one ends.
    """
    here = fold(comm.rank, comm.size)
    step, distance, last = here.first_step, 1, here.first_step + here.m.bit_length() - 1
    if here.place < 0:
        comm.send(x_N, to=here.neighbor, step=0, chunk=0, phase="fold")
        comm.recv(x_N, frm=here.neighbor, step=last, chunk=0, phase="unfold")
        return x_N
    if here.neighbor >= 0:
        comm.recv(x_N, frm=here.neighbor, reduce=reduce, step=0, chunk=0, phase="fold")
    while distance < here.m:
        partner = here.rank(here.place ^ distance)
        comm.exchange(
            x_N,
            to=partner,
            into=x_N,
            frm=partner,
            reduce=reduce,
            step=step,
            chunk=0,
            phase="exchange",
            before=partner < comm.rank,
        )
        step, distance = step + 1, 2 * distance
    if here.neighbor >= 0:
        comm.send(x_N, to=here.neighbor, step=last, chunk=0, phase="unfold")
    return x_N
