"""Rabenseifner's all-reduce: halve what one still adds to, then double what one has, lg p steps
each.

Paper  Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in
       MPICH", IJHPCA 19(1), 2005, section 4.5. doi:10.1177/1094342005051521
Cost   T = 2·lg p·α + 2(p-1)/p·n·β + (p-1)/p·n·γ                 [seconds]
       p ranks, a power of two, n bytes; α s/message, β s/byte sent, γ s/byte added: the ring's
       bytes in fewer messages. Otherwise some fold into a neighbor first and unfold last:
       α + n·β + n·γ and α + n·β more.
Walk   p=4, chunks 0 1 2 3. Reduce-scatter: 0↔2 and 1↔3, each gives the half that the other keeps
       (0 and 1 keep chunks 0 1); then 0↔1 and 2↔3, after which rank r has the whole of chunk r.
       All-gather: the same back; 0↔1 and 2↔3 exchange one chunk, 0↔2 and 1↔3 two.
"""

from __future__ import annotations

from typing import Any

from workbench.collectives._folding import fold
from workbench.messaging.communicator import SUM, Communicator


def all_reduce(comm: Communicator, x_N: Any, reduce: str = SUM) -> Any:
    """Combine flat ``x_N`` over the ranks, in place; every rank ends with the same bits.

    Shapes: N elements, any N >= 0; m chunks, m the largest power of two in p.
    Raises CollectiveError if ranks disagree on N or dtype, PeerLost if one ends.
    """
    here = fold(comm.rank, comm.size)
    m, place, step = here.m, here.place, here.first_step
    chunks = comm.split(x_N, m)
    last = step + 2 * (m.bit_length() - 1)
    if place < 0:
        for c in range(m):
            comm.send(chunks[c], to=here.neighbor, step=0, chunk=c, phase="fold")
        for c in range(m):
            comm.recv(chunks[c], frm=here.neighbor, step=last, chunk=c, phase="unfold")
        return x_N
    if here.neighbor >= 0:
        for c in range(m):
            comm.recv(chunks[c], frm=here.neighbor, reduce=reduce, step=0, chunk=c, phase="fold")

    def swap(distance: int, give: range, take: range, reduce: str | None, phase: str) -> None:
        partner = here.rank(place ^ distance)
        comm.exchange(
            [chunks[c] for c in give],
            to=partner,
            into=[chunks[c] for c in take],
            frm=partner,
            reduce=reduce,
            step=step,
            chunk=[*give],
            into_chunk=[*take],
            phase=phase,
        )

    distance = m // 2
    while distance:
        keeps, gives = _block(place, distance), _block(place ^ distance, distance)
        swap(distance, gives, keeps, reduce, "reduce_scatter")
        step, distance = step + 1, distance // 2
    distance = 1
    while distance < m:
        has, lacks = _block(place, distance), _block(place ^ distance, distance)
        swap(distance, has, lacks, None, "all_gather")
        step, distance = step + 1, 2 * distance
    if here.neighbor >= 0:
        for c in range(m):
            comm.send(chunks[c], to=here.neighbor, step=last, chunk=c, phase="unfold")
    return x_N


def _block(place: int, size: int) -> range:
    """Return the chunks of the block of this size that ``place`` is in."""
    first = place // size * size
    return range(first, first + size)
