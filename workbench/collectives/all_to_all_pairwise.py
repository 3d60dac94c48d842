"""Pairwise all-to-all: in each step every rank sends to one rank and receives from another.

Paper  Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in
       MPICH", IJHPCA 19(1), 2005. doi:10.1177/1094342005051521
Cost   T = (p-1)·α + (p-1)/p·n·β                                 [seconds]
       p ranks, n bytes on each, evenly for all; α s/message, β s/byte sent.
Walk   p=4, step s: rank r sends to r+1+s and receives from r-1-s (mod p), so that in every step
       each rank has one message to send and one to receive. Chunk source·p + target.
       Small messages of all steps are on their way before the first is received.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

from workbench.messaging.communicator import Communicator


def all_to_all(
    comm: Communicator, x_N: Any, into_M: Any, sends: Sequence[int], receives: Sequence[int]
) -> None:
    """Give part i of flat ``x_N`` to rank i; part i of flat ``into_M`` is what rank i gave.

    Shapes: ``sends`` and ``receives`` are the parts' elements, one for each rank, >= 0; their sums
    are N and M. What rank i sends to j is what j receives from i. ``x_N`` is untouched; the two
    must not share memory.
    Raises CollectiveError if ranks disagree on a part or dtype, PeerLost if one ends.
    """
    p, me = comm.size, comm.rank
    out, into = _parts(x_N, sends), _parts(into_M, receives)
    into[me][:] = out[me]
    if p > 2 and comm.has_room_for(max(sends) * x_N.itemsize):  # no wait for a partner's turn
        for step in range(p - 1):
            to = (me + 1 + step) % p
            comm.post(out[to], to=to, step=step, chunk=me * p + to, phase="all_to_all")
        for step in range(p - 1):
            frm = (me - 1 - step) % p
            comm.recv(into[frm], frm=frm, step=step, chunk=frm * p + me, phase="all_to_all")
        return
    for step in range(p - 1):
        to, frm = (me + 1 + step) % p, (me - 1 - step) % p
        comm.exchange(
            out[to],
            to=to,
            into=into[frm],
            frm=frm,
            step=step,
            chunk=me * p + to,
            into_chunk=frm * p + me,
            phase="all_to_all",
        )


def _parts(x: Any, sizes: Sequence[int]) -> list[Any]:
    return [x[a:b] for a, b in pairwise(accumulate(sizes, initial=0))]
