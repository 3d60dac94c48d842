"""Ring all-reduce: reduce-scatter, then all-gather, p-1 steps each.

Paper  Patarasuk & Yuan, "Bandwidth optimal all-reduce algorithms for clusters
       of workstations", JPDC 69(2), 2009. doi:10.1016/j.jpdc.2008.09.002
Cost   T = 2(p-1)·α + 2·(p-1)/p·n·β + (p-1)/p·n·γ              [seconds]
       p ranks, n bytes; α s/message, β s/byte sent, γ s/byte added.
Walk   p=4: chunk c starts on rank c, hops c → c+1 → c+2 → c+3 gaining one
       summand a hop, so it is complete on rank c-1 (mod p) after 3 steps;
       in 3 more it goes round once again and replaces what the others hold.

           step      0       1       2       3       4       5
           chunk 0   0→1     1→2     2→3     3→0     0→1     1→2
                     └── sums grow ────┘     └── sums spread ──┘
"""

from __future__ import annotations

from typing import Any

from workbench.messaging.communicator import SUM, Communicator


def all_reduce(comm: Communicator, x_N: Any, reduce: str = SUM) -> Any:
    """Combine flat ``x_N`` over the ranks, in place; every rank ends with the same bits.

    Shapes: N elements, any N >= 0; each chunk has floor(N/p) or ceil(N/p).
    Raises CollectiveError if ranks disagree on N or dtype, PeerLost if one ends.
    """
    p, me = comm.size, comm.rank
    if p == 1:
        return x_N
    left, right = (me - 1) % p, (me + 1) % p
    last = 2 * (p - 1) - 1  # steps are numbered through both phases
    # Large chunks go round in pieces that stay in cache; every piece makes all the steps.
    for slot, chunks in comm.slices(comm.split(x_N), x_N.itemsize):
        comm.post(chunks[me], to=right, step=0, chunk=me, slot=slot, phase="reduce_scatter")
        for step in range(last):  # what arrives at a step leaves at the next
            c = (me - step - 1) % p
            adding = step < p - 1
            comm.relay(
                chunks[c],
                frm=left,
                to=right,
                step=step,
                chunk=c,
                slot=slot,
                reduce=reduce if adding else None,
                keep=step >= p - 2,  # a sum is stored when it is complete, or a copy of it arrives
                phase="reduce_scatter" if adding else "all_gather",
                next_phase="reduce_scatter" if step + 1 < p - 1 else "all_gather",
            )
        c = (me - last - 1) % p
        comm.recv(chunks[c], frm=left, step=last, chunk=c, slot=slot, phase="all_gather")
    return x_N
