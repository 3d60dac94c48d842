"""All-gather, reduce-scatter, all-to-all and barrier: all ranks do the same.

Papers Chan, Heimlich, Purkayastha & van de Geijn, "Collective communication: theory, practice, and
       experience", Concurrency and Computation 19(13), 2007: rings, recursive doubling.
       Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in MPICH",
       IJHPCA 19(1), 2005: the pairwise exchange.
       Faraj, Yuan & Lowenthal, "STAR-MPI: self tuned adaptive routines for MPI collective
       operations", ICS 2006: the all-gather in one shot.
       Hensgen, Finkel & Manber, "Two algorithms for barrier synchronization", International Journal
       of Parallel Programming 17(1), 1988: dissemination.
"""

from __future__ import annotations

from collections.abc import Callable

from workbench.formulas.model import (
    Algorithm,
    Schedule,
    Terms,
    Transfer,
    chunk_sizes,
    counted,
    in_parts,
)
from workbench.formulas.shapes import folded, folded_pairs, lg, unfolded


def _ring_all_gather(n: int) -> list[Transfer]:
    return [
        Transfer(step, "all_gather", r, (r + 1) % n, (r - step) % n)
        for step in range(n - 1)
        for r in range(n)
    ]


def _one_shot_all_gather(n: int) -> list[Transfer]:
    return [
        Transfer(step, "all_gather", r, (r + 1 + step) % n, r)
        for step in range(n - 1)
        for r in range(n)
    ]


def _ring_reduce_scatter(n: int) -> list[Transfer]:
    """Return the transfers: chunk c starts on rank c + 1, so that it is complete on rank c."""
    return [
        Transfer(step, "reduce_scatter", r, (r + 1) % n, (r - 1 - step) % n, adds=True)
        for step in range(n - 1)
        for r in range(n)
    ]


def _doubling_block(v: int, size: int, n: int) -> list[int]:
    """Return the chunks of the v-th rank with blocks of this size, including those folded in."""
    first = v // size * size
    extra = folded(n)[1]
    return [
        chunk
        for each in range(first, first + size)
        for chunk in ([2 * each, 2 * each + 1] if each < extra else [each + extra])
    ]


def _recursive_doubling(n: int) -> list[Transfer]:
    """Return transfers of blocks of 1, 2, 4, ... chunks; fold unless n is a power of two."""
    m, extra = folded(n)
    first, pairs = bool(extra), folded_pairs(n)
    result = [Transfer(0, "fold", even, odd, even) for even, odd in pairs]
    for k in range(lg(m)):
        result += (
            Transfer(first + k, "all_gather", unfolded(v, n), unfolded(v ^ 2**k, n), chunk)
            for v in range(m)
            for chunk in _doubling_block(v, 2**k, n)
        )
    last = first + lg(m)
    return result + [
        Transfer(last, "unfold", odd, even, chunk)
        for even, odd in pairs
        for chunk in range(n)
        if chunk != even
    ]


def _recursive_doubling_terms(n: int, nbytes: float) -> Terms:
    m, extra = folded(n)
    rounds = sum(2**k + min(2**k, extra) for k in range(lg(m)))  # chunks of the largest block
    once = bool(extra)
    return Terms(lg(m) + 2 * once, (rounds + once * n) / n * nbytes, 0)


def _pairwise(n: int) -> list[Transfer]:
    """Return the transfers: at step s each rank sends its chunk for the rank s + 1 to the right.

    The chunk's number is source·n + target.
    """
    return [
        Transfer(step, "all_to_all", r, to, r * n + to)
        for step in range(n - 1)
        for r in range(n)
        for to in [(r + 1 + step) % n]
    ]


def _dissemination(n: int) -> list[Transfer]:
    return [Transfer(k, "barrier", r, (r + 2**k) % n, 0) for k in range(lg(n)) for r in range(n)]


def _share(n: int, nbytes: float) -> Terms:
    return Terms(n - 1, (n - 1) / n * nbytes, 0)


def _one_round(
    name: str,
    schedule: Schedule,
    kept: Callable[[int, int], int],
    adding: bool = False,
    cut: Callable[[int, int], list[int]] = in_parts,
) -> Algorithm:
    """Return an algorithm of n - 1 messages per rank, of one chunk each; a rank keeps one chunk."""

    def sent(n: int, elements: int) -> list[int]:
        c = chunk_sizes(elements, n)
        return [elements - c[kept(r, n)] for r in range(n)]

    return Algorithm(
        name,
        steps=lambda n: n - 1,
        sends=lambda n: [n - 1] * n,
        sent=sent,
        terms=lambda n, L: _share(n, L)._replace(added=adding * (n - 1) / n * L),
        schedule=schedule,
        cut=cut,
    )


ALL_GATHER: tuple[Algorithm, ...] = (
    _one_round("ring", _ring_all_gather, lambda r, n: (r + 1) % n),
    counted("recursive_doubling", _recursive_doubling, _recursive_doubling_terms, in_parts),
    counted("one_shot", _one_shot_all_gather, _share, in_parts),
)
REDUCE_SCATTER: tuple[Algorithm, ...] = (
    _one_round("ring", _ring_reduce_scatter, lambda r, n: r, adding=True),
)
ALL_TO_ALL: tuple[Algorithm, ...] = (
    _one_round("pairwise", _pairwise, lambda r, n: r, cut=lambda n, e: chunk_sizes(e, n) * n),
)
BARRIER: tuple[Algorithm, ...] = (
    counted("dissemination", _dissemination, lambda n, L: Terms(lg(n), 0, 0), lambda n, e: [0]),
)
