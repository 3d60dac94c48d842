"""Ring all-gather: what each rank has goes round once, p-1 steps.

Source Chan et al., "Collective communication: theory, practice, and experience", Concurrency and
       Computation 19(13), 2007 (the bucket algorithm). doi:10.1002/cpe.1206
Cost   T = (p-1)·α + (p-1)/p·n·β                               [seconds]
       p ranks, n bytes gathered; α s/message, β s/byte sent.
Walk   p=4: chunk c starts on rank c and hops c → c+1 → c+2 → c+3.
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
    left, right = (me - 1) % p, (me + 1) % p
    chunks = comm.split(into_N)
    if p == 1:
        chunks[me][:] = x_n
        return
    # Large chunks go round in pieces that stay in cache; every piece makes all the steps.
    for slot, (mine, *pieces) in comm.slices([x_n, *chunks], into_N.itemsize):
        comm.post(mine, to=right, step=0, chunk=me, slot=slot, phase="all_gather")
        pieces[me][:] = mine  # while it is in cache, and the others are on their way
        for step in range(p - 2):  # what arrives at a step leaves at the next
            c = (me - step - 1) % p
            comm.relay(
                pieces[c],
                frm=left,
                to=right,
                reduce=None,
                step=step,
                chunk=c,
                slot=slot,
                phase="all_gather",
            )
        last = (me + 1) % p
        comm.recv(pieces[last], frm=left, step=p - 2, chunk=last, slot=slot, phase="all_gather")
