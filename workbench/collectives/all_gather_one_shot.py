"""One-shot all-gather: every rank sends its part to every other one (direct, or spreading).

Source Faraj, Yuan & Lowenthal, "STAR-MPI: self tuned adaptive routines for MPI collective
       operations", ICS 2006, which has it as "spreading simple".
Cost   T = (p-1)·α + (p-1)/p·n·β                               [seconds]
       p ranks, n bytes gathered; α s/message, β s/byte sent. No message waits for another one's
       arrival, as in a ring, so that in practice the α of the p-1 steps overlap.
Walk   p=4, step s: rank r sends chunk r to r+1+s and receives from r-1-s (mod p). All messages
       leave first.
"""

from __future__ import annotations

from typing import Any

from workbench.messaging.communicator import Communicator


def all_gather(comm: Communicator, x_n: Any, into_N: Any) -> None:
    """Fill flat ``into_N`` with the ``x_n`` of all ranks, in their order; ``x_n`` is untouched.

    Shapes: n elements, n >= 0, and N = p·n. ``x_n`` may be this rank's part of ``into_N``.
    Raises CollectiveError if ranks disagree on n or dtype, PeerLost if one ends.
    """
    p, me = comm.size, comm.rank
    # Piece by piece, so that no more leaves at once than the mailboxes hold.
    for slot, (mine, *pieces) in comm.slices([x_n, *comm.split(into_N)], into_N.itemsize):
        for step in range(p - 1):
            to = (me + 1 + step) % p
            comm.post(mine, to=to, step=step, chunk=me, slot=slot, phase="all_gather")
        pieces[me][:] = mine
        for step in range(p - 1):
            frm = (me - 1 - step) % p
            comm.recv(pieces[frm], frm=frm, step=step, chunk=frm, slot=slot, phase="all_gather")
