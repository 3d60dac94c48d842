"""All-reduce: naive, one-shot, all-to-all peers, tree, butterfly, ring.

Papers Patarasuk & Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
       JPDC 69(2), 2009: the ring.
       Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in MPICH",
       IJHPCA 19(1), 2005: trees, recursive doubling (butterfly).
"""

from __future__ import annotations

from dataclasses import replace
from math import log2

from workbench.formulas import rooted
from workbench.formulas.model import Algorithm, Terms, Transfer, chunk_sizes, in_parts
from workbench.formulas.shapes import fold, folded, folded_pairs, lg, unfolded


def ring_sent(n: int, elements: int) -> list[int]:
    """Return the elements that each rank sends in a ring.

    In each of the two phases it sends all chunks but the one that it ends with.
    """
    c = chunk_sizes(elements, n)
    return [2 * elements - c[(r + 1) % n] - c[(r + 2) % n] for r in range(n)]


def _ring_schedule(n: int) -> list[Transfer]:
    last = n - 1  # the first step of the all-gather
    return [
        Transfer(
            step,
            "reduce_scatter" if step < last else "all_gather",
            r,
            (r + 1) % n,
            (r - step) % n,
            adds=step < last,
        )
        for step in range(2 * last)
        for r in range(n)
    ]


def _naive_schedule(n: int) -> list[Transfer]:
    return rooted.flat_reduce(n) + rooted.later(rooted.flat_broadcast(n), n - 1)


def _exchange_schedule(n: int) -> list[Transfer]:
    return [
        Transfer(step, "exchange", r, (r + 1 + step) % n, 0, adds=True)
        for step in range(n - 1)
        for r in range(n)
    ]


def _tree_schedule(n: int) -> list[Transfer]:
    return rooted.tree_reduce(n) + rooted.later(rooted.tree_broadcast(n), lg(n))


def _tree_sends(n: int) -> list[int]:
    """Return the messages of each rank in a binomial tree with root 0.

    Rank r sends once to its parent, and once to each child. The children of r are the r + 2^k with
    2^k below the lowest bit of r.
    """
    low = [n if r == 0 else r & -r for r in range(n)]
    return [(r > 0) + sum(r + 2**k < n and 2**k < low[r] for k in range(lg(n))) for r in range(n)]


def _butterfly_schedule(n: int) -> list[Transfer]:
    m, extra = folded(n)
    pairs, first = folded_pairs(n), bool(extra)
    before = [Transfer(0, "fold", even, odd, 0, adds=True) for even, odd in pairs]
    rounds = [
        Transfer(first + k, "exchange", unfolded(v, n), unfolded(v ^ 2**k, n), 0, adds=True)
        for k in range(lg(m))
        for v in range(m)
    ]
    after = [Transfer(first + lg(m), "unfold", odd, even, 0) for even, odd in pairs]
    return before + rounds + after


def _butterfly_terms(n: int, nbytes: float) -> Terms:
    m, extra = folded(n)
    rounds, once = log2(m), bool(extra)
    return Terms(rounds + 2 * once, nbytes * (rounds + 2 * once), nbytes * (rounds + once))


RING = Algorithm(
    "ring",
    steps=lambda n: 2 * (n - 1),
    sends=lambda n: [2 * (n - 1)] * n,
    sent=ring_sent,
    terms=lambda n, L: Terms(2 * (n - 1), 2 * (n - 1) / n * L, (n - 1) / n * L),
    schedule=_ring_schedule,
    cut=in_parts,
)
NAIVE = Algorithm(
    "naive",
    steps=lambda n: 2 * (n - 1),
    sends=lambda n: [n - 1] + [1] * (n - 1),
    sent=lambda n, elements: [(n - 1) * elements] + [elements] * (n - 1),
    terms=lambda n, L: Terms(2 * (n - 1), 2 * (n - 1) * L, (n - 1) * L),
    schedule=_naive_schedule,
)
ONE_SHOT = Algorithm(
    "one_shot",
    steps=lambda n: n - 1,
    sends=lambda n: [n - 1] * n,
    sent=lambda n, elements: [(n - 1) * elements] * n,
    terms=lambda n, L: Terms(n - 1, (n - 1) * L, (n - 1) * L),
    schedule=_exchange_schedule,
    adds_last=True,
)
ALL_TO_ALL = replace(ONE_SHOT, name="all_to_all")  # the same messages, one peer after the other
TREE = Algorithm(
    "tree",
    steps=lambda n: 2 * lg(n),
    sends=_tree_sends,
    sent=lambda n, elements: [messages * elements for messages in _tree_sends(n)],
    terms=lambda n, L: Terms(2 * lg(n), 2 * lg(n) * L, lg(n) * L),
    schedule=_tree_schedule,
)
BUTTERFLY = Algorithm(
    "butterfly",
    steps=lambda n: int(_butterfly_terms(n, 1).messages),
    sends=lambda n: fold(n, lambda _, m: lg(m), 1),
    sent=lambda n, elements: fold(n, lambda _, m: lg(m) * elements, elements),
    terms=_butterfly_terms,
    schedule=_butterfly_schedule,
)
