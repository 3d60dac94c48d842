"""Flat scatter: the root sends each rank its chunk.

Cost   T = (p-1)·α + (p-1)/p·n·β, all of it at the root          [seconds]
       p ranks, n bytes scattered; α s/message, β s/byte sent.
Walk   p=4, root 0: 0→1, 0→2, 0→3; chunk c is for rank c.
"""

from __future__ import annotations

from typing import Any

from workbench.messaging.communicator import Communicator


def scatter(comm: Communicator, x_N: Any | None, into_n: Any, root: int) -> None:
    """Put each rank's part of flat ``x_N`` of rank ``root`` into its ``into_n``.

    Shapes: n elements, n >= 0, and N = p·n; ``x_N`` is None on other ranks, and untouched on the
    root, whose part of it may be ``into_n``.
    Raises CollectiveError if ranks disagree on n, dtype or root, PeerLost if one ends.
    """
    p, me = comm.size, comm.rank
    if me != root:
        comm.recv(into_n, frm=root, step=(me - root) % p - 1, chunk=me, phase="scatter")
        return
    chunks = comm.split(x_N)
    for step in range(p - 1):
        c = (root + 1 + step) % p
        comm.send(chunks[c], to=c, step=step, chunk=c, phase="scatter")
    into_n[:] = chunks[me]
