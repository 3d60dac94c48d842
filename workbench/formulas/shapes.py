"""The shapes that algorithms share: binomial trees, and folding down to a power of two.

Paper  Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in MPICH",
       IJHPCA 19(1), 2005.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


def lg(n: int) -> int:
    """Return ⌈lg n⌉."""
    return (n - 1).bit_length()


class Edge(NamedTuple):
    """An edge of a binomial tree with root 0; the child's subtree is child, child + 1, ..."""

    level: int  # parent + 2^level = child
    parent: int
    child: int
    subtree: range


def binomial(n: int) -> list[Edge]:
    """Return a binomial tree's edges, the leaves' first: v hangs below v without its lowest bit.

    n=6: level 0 holds 1→0 3→2 5→4, level 1 2→0, level 2 4→0 (child → parent).
    """
    return [
        Edge(level, child - 2**level, child, range(child, min(child + 2**level, n)))
        for level in range(lg(n))
        for child in range(2**level, n, 2 ** (level + 1))
    ]


def folded(n: int) -> tuple[int, int]:
    """Return the largest power of two m <= n, and how many ranks fold into a neighbor first."""
    m = 1 << (n.bit_length() - 1)
    return m, n - m


def folded_pairs(n: int) -> list[tuple[int, int]]:
    """Return the pairs that fold: even ranks below 2·extra send all, and receive it at the end."""
    return [(2 * v, 2 * v + 1) for v in range(folded(n)[1])]


def unfolded(v: int, n: int) -> int:
    """Return the rank that is the v-th of the m which remain after folding."""
    extra = folded(n)[1]
    return 2 * v + 1 if v < extra else v + extra


def fold(n: int, inner: Callable[[int, int], int], whole: int) -> list[int]:
    """Return the elements that each rank sends, with folding.

    ``inner(v, m)``: those of the v-th of the m ranks that remain after folding.
    """
    m, extra = folded(n)
    first = [x for v in range(extra) for x in (whole, inner(v, m) + whole)]
    return first + [inner(v, m) for v in range(extra, m)]
