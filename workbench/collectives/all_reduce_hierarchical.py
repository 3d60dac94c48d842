"""Hierarchical all-reduce: rings within rings, so that most bytes stay inside a host.

Source the ring's (Patarasuk & Yuan, JPDC 69(2), 2009), a level at a time, as in Jia et al.,
       "Highly scalable deep learning training system with mixed-precision", arXiv 1807.11205, 2018,
       and in BlueConnect (Cho et al., MLSys 2019).
Cost   T = 2·Σ(pᵢ-1)·α + 2·(p-1)/p·n·β + (p-1)/p·n·γ             [seconds]
       p = Πpᵢ ranks, n bytes; α s/message, β s/byte sent, γ s/byte added: the ring's bytes in fewer
       steps, for every factorization.
Walk   p=8 as levels (4, 2), two hosts of four ranks. Rank r has place r mod 4 inside its host. A
       ring in each host reduce-scatters: rank r keeps a quarter, summed over its host. Then r and
       r+4 do the same with halves of that quarter, and back: the quarter is complete. Last, the
       ring inside the host gathers the quarters. Between hosts a rank sends n/4 only.
       Ranks that were dealt to the hosts in turn (rank r to host r mod 2) do the same: then r, r+2,
       r+4 and r+6 are a host's ring, and r and r+1 its outer one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

from workbench.common.errors import CollectiveError
from workbench.formulas.hierarchical import levels as most_even
from workbench.formulas.hierarchical import levels_told, strides
from workbench.messaging.communicator import SUM, Communicator


def all_reduce(
    comm: Communicator, x_N: Any, reduce: str = SUM, levels: Sequence[int] | None = None
) -> Any:
    """Combine flat ``x_N`` over the ranks, in place; every rank ends with the same bits.

    ``levels``: ranks of each level, from inside a host outwards, hosts in blocks of ranks; if not
    given, those of the group's hosts, and where nothing is known of these the two most even.
    Shapes: N elements, any N >= 0, in p chunks.
    Raises CollectiveError if the levels' product is not p or ranks disagree on N or dtype, PeerLost
    if one ends.
    """
    p = comm.size
    in_turn = not (levels or comm.levels) and bool(comm.in_turn)
    levels = levels or comm.levels or comm.in_turn or most_even(p)
    if prod(levels) != p or min(levels) < 1:
        raise CollectiveError(
            f"rank {comm.rank}: levels {tuple(levels)} make {prod(levels)} ranks, and the group "
            f"has {p}; {tuple(most_even(p))} would do"
        )
    comm.way = levels_told(levels, in_turn)
    chunks = comm.split(x_N)

    def turn(ring: Ring, first: int, i: int, step: int, reduce: str | None) -> None:
        """Send block ``first - i`` to the right, and receive the block before it from the left."""
        q = len(ring.ranks)
        gives, takes = ring.blocks[(first - i) % q], ring.blocks[(first - i - 1) % q]
        comm.exchange(
            [chunks[c] for c in gives],
            to=ring.ranks[(ring.place + 1) % q],
            into=[chunks[c] for c in takes],
            frm=ring.ranks[(ring.place - 1) % q],
            reduce=reduce,
            step=step,
            chunk=[*gives],
            into_chunk=[*takes],
            phase="all_gather" if reduce is None else "reduce_scatter",
        )

    step = 0
    rings = list(_rings(comm.rank, levels, strides(levels, in_turn)))
    for ring in rings:
        for i in range(len(ring.ranks) - 1):
            turn(ring, ring.place, i, step, reduce)
            step += 1
    for ring in reversed(rings):
        for i in range(len(ring.ranks) - 1):
            turn(ring, ring.place + 1, i, step, None)
            step += 1
    return x_N


class Ring(NamedTuple):
    """One rank's ring at one level."""

    ranks: list[int]  # in the order of their places
    place: int  # this rank's
    blocks: list[range]  # the chunks that go round together, as many blocks as ranks


def _rings(rank: int, levels: Sequence[int], strides: Sequence[int]) -> Iterator[Ring]:
    """Yield a rank's rings from inside outwards. Each leaves it the block after its place."""
    mine = range(prod(levels))
    for q, stride in zip(levels, strides, strict=True):
        place, width = rank // stride % q, len(mine) // q
        ranks = [rank + (i - place) * stride for i in range(q)]
        blocks = [mine[i * width : (i + 1) * width] for i in range(q)]
        yield Ring(ranks, place, blocks)
        mine = blocks[(place + 1) % q]
