"""All-reduce by halving and doubling: a reduce-scatter, then an all-gather, lg n steps each.

Paper  Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in MPICH",
       IJHPCA 19(1), 2005, section 4.5.

The tensor is cut into m chunks, m the largest power of two in n. What folds gives all of them first
and gets all of them last. Of the m that remain the v-th halves what it holds with v xor m/2,
v xor m/4, ..., v xor 1, which leaves it chunk v, and doubles it back in the opposite order.
"""

from __future__ import annotations

from itertools import accumulate
from math import log2

from workbench.formulas.model import Algorithm, Terms, Transfer, chunk_sizes
from workbench.formulas.shapes import fold, folded, folded_pairs, lg, unfolded


def _cut(n: int, elements: int) -> list[int]:
    return chunk_sizes(elements, folded(n)[0])


def _block(v: int, size: int) -> range:
    """Return the chunks of the block of this size that the v-th one is in."""
    return range(v // size * size, v // size * size + size)


def _schedule(n: int) -> list[Transfer]:
    m, extra = folded(n)
    pairs, first, rounds = folded_pairs(n), bool(extra), lg(m)
    whole = range(m)
    result = [Transfer(0, "fold", even, odd, c, adds=True) for even, odd in pairs for c in whole]
    distances = [2**k for k in reversed(range(rounds))]  # m/2, m/4, ..., 1
    for step, distance in enumerate(distances, first):
        result += (
            Transfer(step, "reduce_scatter", unfolded(v, n), unfolded(peer, n), c, adds=True)
            for v in whole
            for peer in [v ^ distance]
            for c in _block(peer, distance)  # the half that the peer keeps
        )
    for step, distance in enumerate(reversed(distances), first + rounds):
        result += (
            Transfer(step, "all_gather", unfolded(v, n), unfolded(v ^ distance, n), c)
            for v in whole
            for c in _block(v, distance)
        )
    last = first + 2 * rounds
    return result + [Transfer(last, "unfold", odd, even, c) for even, odd in pairs for c in whole]


def _sent(n: int, elements: int) -> list[int]:
    """Return the elements that each rank sends.

    Halving sends all chunks but the rank's own; doubling sends blocks of 1, 2, 4, ... chunks.
    """

    m = folded(n)[0]
    c = chunk_sizes(elements, m)
    before = [0, *accumulate(c)]  # a block's elements are a difference of two: n ranks take n lg n

    def inner(v: int, _: int) -> int:
        blocks = (_block(v, 2**k) for k in range(lg(m)))
        return elements - c[v] + sum(before[block.stop] - before[block.start] for block in blocks)

    return fold(n, inner, elements)


def _terms(n: int, nbytes: float) -> Terms:
    m, extra = folded(n)
    part, once = (m - 1) / m * nbytes, bool(extra)
    return Terms(
        2 * log2(m) + 2 * once, 2 * part + 2 * once * nbytes, part + once * nbytes
    )  # folding adds all, once


RABENSEIFNER = Algorithm(
    "rabenseifner",
    steps=lambda n: int(_terms(n, 1).messages),
    sends=lambda n: fold(n, lambda _, m: 2 * lg(m), 1),
    sent=_sent,
    terms=_terms,
    schedule=_schedule,
    cut=_cut,
)
