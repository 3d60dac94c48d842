"""Recursive-doubling all-gather: partners at distance 1, 2, 4, ... exchange all they have.

Paper  Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in
       MPICH", IJHPCA 19(1), 2005. doi:10.1177/1094342005051521
Cost   T = lg p·α + (p-1)/p·n·β                                  [seconds]
       p ranks, a power of two, n bytes gathered; α s/message, β s/byte sent. Otherwise some fold
       into a neighbor first, and get all from it last, (p-1)/p·n.
Walk   p=4: 0↔1 2↔3 exchange one chunk each, then 0↔2 1↔3 two. Chunk c is what rank c has.
"""

from __future__ import annotations

from typing import Any

from workbench.collectives._folding import fold
from workbench.messaging.communicator import Communicator


def all_gather(comm: Communicator, x_n: Any, into_N: Any) -> None:
    """Fill flat ``into_N`` with the ``x_n`` of all ranks, in their order; ``x_n`` is untouched.

    Shapes: n elements, n >= 0, and N = p·n. ``x_n`` may be this rank's part of ``into_N``.
    Raises CollectiveError if ranks disagree on n or dtype, PeerLost if one ends.
    """
    p, me = comm.size, comm.rank
    chunks = comm.split(into_N)
    chunks[me][:] = x_n
    here = fold(me, p)
    step, distance, last = here.first_step, 1, here.first_step + here.m.bit_length() - 1
    if here.place < 0:
        comm.send(chunks[me], to=here.neighbor, step=0, chunk=me, phase="fold")
        for c in (c for c in range(p) if c != me):
            comm.recv(chunks[c], frm=here.neighbor, step=last, chunk=c, phase="unfold")
        return
    if here.neighbor >= 0:
        c = here.neighbor
        comm.recv(chunks[c], frm=c, step=0, chunk=c, phase="fold")

    def block(place: int) -> list[int]:
        """Return the chunks that this place has by now: its block's, and those folded in."""
        first = place // distance * distance
        owners = [fold(here.rank(v), p) for v in range(first, first + distance)]
        both = [(one.neighbor, here.rank(one.place)) for one in owners]
        return [c for pair in both for c in pair if c >= 0]

    while distance < here.m:
        place = here.place ^ distance
        has, lacks, partner = block(here.place), block(place), here.rank(place)
        comm.exchange(
            [chunks[c] for c in has],
            to=partner,
            into=[chunks[c] for c in lacks],
            frm=partner,
            step=step,
            chunk=has,
            into_chunk=lacks,
            phase="all_gather",
        )
        step, distance = step + 1, 2 * distance
    if here.neighbor >= 0:
        for c in (c for c in range(p) if c != here.neighbor):
            comm.send(chunks[c], to=here.neighbor, step=last, chunk=c, phase="unfold")
