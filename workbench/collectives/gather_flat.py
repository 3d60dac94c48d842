"""Flat gather: every rank sends its part to the root.

Cost   T = (p-1)·α + (p-1)/p·n·β, all of it at the root          [seconds]
       p ranks, n bytes gathered; α s/message, β s/byte sent.
Walk   p=4, root 0: 1→0, 2→0, 3→0; chunk c is what rank c has.
"""

from __future__ import annotations

from typing import Any

from workbench.messaging.communicator import Communicator


def gather(comm: Communicator, x_n: Any, into_N: Any | None, root: int) -> None:
    """Fill flat ``into_N`` of rank ``root`` with the ``x_n`` of all ranks, in their order.

    Shapes: n elements, n >= 0, and N = p·n; ``into_N`` is None on other ranks. ``x_n`` is untouched
    and may be the root's part of ``into_N``.
    Raises CollectiveError if ranks disagree on n, dtype or root, PeerLost if one ends.
    """
    p, me = comm.size, comm.rank
    if me != root:
        comm.send(x_n, to=root, step=(me - root) % p - 1, chunk=me, phase="gather")
        return
    chunks = comm.split(into_N)
    chunks[me][:] = x_n
    for step in range(p - 1):
        c = (root + 1 + step) % p
        comm.recv(chunks[c], frm=c, step=step, chunk=c, phase="gather")
