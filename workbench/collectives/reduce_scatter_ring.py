"""Ring reduce-scatter: sums grow as they go round once, p-1 steps; each rank keeps one.

Source Chan et al., "Collective communication: theory, practice, and experience", Concurrency and
       Computation 19(13), 2007 (the bucket algorithm). doi:10.1002/cpe.1206
Cost   T = (p-1)·α + (p-1)/p·n·β + (p-1)/p·n·γ                 [seconds]
       p ranks, n bytes on each; α s/message, β s/byte sent, γ s/byte added.
Walk   p=4: chunk c starts on rank c+1 and hops c+1 → c+2 → c+3 → c, gaining
       one summand a hop, so rank c ends with the whole of it.
"""

from __future__ import annotations

from typing import Any

from workbench.messaging.communicator import SUM, Communicator


def reduce_scatter(comm: Communicator, x_N: Any, into_n: Any, reduce: str = SUM) -> None:
    """Put this rank's part of the ranks' combined flat ``x_N`` into ``into_n``; ``x_N`` is
    untouched.

    Shapes: N = p·n elements, n >= 0. Memory of ``into_n`` must not be that of ``x_N``.
    Raises CollectiveError if ranks disagree on N or dtype, PeerLost if one ends.
    """
    p, me = comm.size, comm.rank
    left, right = (me - 1) % p, (me + 1) % p
    chunks = comm.split(x_N)
    into_n[:] = chunks[me]
    if p == 1:
        return
    chunks[me] = into_n  # where the last summand meets this rank's own
    # Large chunks go round in pieces that stay in cache; every piece makes all the steps.
    for slot, pieces in comm.slices(chunks, x_N.itemsize):
        first = (me - 1) % p
        comm.post(pieces[first], to=right, step=0, chunk=first, slot=slot, phase="reduce_scatter")
        for step in range(p - 2):  # what arrives at a step leaves at the next, one summand richer
            c = (me - step - 2) % p
            comm.relay(
                pieces[c],
                frm=left,
                to=right,
                reduce=reduce,
                keep=False,
                step=step,
                chunk=c,
                slot=slot,
                phase="reduce_scatter",
            )
        comm.recv(
            pieces[me],
            frm=left,
            reduce=reduce,
            step=p - 2,
            chunk=me,
            slot=slot,
            phase="reduce_scatter",
        )
