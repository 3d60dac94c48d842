"""Broadcast, reduce, gather and scatter: flat, and in a binomial tree. Place 0 is the root.

Paper  Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in MPICH",
       IJHPCA 19(1), 2005.
"""

from __future__ import annotations

from collections.abc import Sequence

from workbench.formulas.model import Algorithm, Terms, Transfer, counted, in_parts
from workbench.formulas.shapes import binomial, lg


def later(transfers: Sequence[Transfer], steps: int) -> list[Transfer]:
    """Return the transfers shifted by ``steps``."""
    return [t._replace(step=t.step + steps) for t in transfers]


def flat_broadcast(n: int) -> list[Transfer]:
    return [Transfer(v - 1, "broadcast", 0, v, 0) for v in range(1, n)]


def flat_reduce(n: int) -> list[Transfer]:
    return [Transfer(v - 1, "reduce", v, 0, 0, adds=True) for v in range(1, n)]


def flat_scatter(n: int) -> list[Transfer]:
    return [Transfer(v - 1, "scatter", 0, v, v) for v in range(1, n)]


def flat_gather(n: int) -> list[Transfer]:
    return [Transfer(v - 1, "gather", v, 0, v) for v in range(1, n)]


def tree_broadcast(n: int) -> list[Transfer]:
    """Return the transfers of a broadcast, the far half first: the highest level is step 0."""
    return [
        Transfer(lg(n) - 1 - e.level, "broadcast", e.parent, e.child, 0)
        for e in reversed(binomial(n))
    ]


def tree_reduce(n: int) -> list[Transfer]:
    return [Transfer(e.level, "reduce", e.child, e.parent, 0, adds=True) for e in binomial(n)]


def tree_scatter(n: int) -> list[Transfer]:
    """Return the transfers of a scatter: a child receives the chunks of its whole subtree."""
    return [
        Transfer(lg(n) - 1 - e.level, "scatter", e.parent, e.child, chunk)
        for e in reversed(binomial(n))
        for chunk in e.subtree
    ]


def tree_gather(n: int) -> list[Transfer]:
    return [
        Transfer(e.level, "gather", e.child, e.parent, chunk)
        for e in binomial(n)
        for chunk in e.subtree
    ]


def _flat(n: int, nbytes: float) -> Terms:
    return Terms(n - 1, (n - 1) * nbytes, 0)


def _tree(n: int, nbytes: float) -> Terms:
    return Terms(lg(n), lg(n) * nbytes, 0)


def _flat_parts(n: int, nbytes: float) -> Terms:
    return Terms(n - 1, (n - 1) / n * nbytes, 0)


def _tree_parts(n: int, nbytes: float) -> Terms:
    """Return the terms of 1, 2, 4, ... chunks and a smaller last block: n - 1 chunks in all."""
    return Terms(lg(n), (n - 1) / n * nbytes, 0)


def _adding(terms: Terms) -> Terms:
    return terms._replace(added=terms.sent)


BROADCAST: tuple[Algorithm, ...] = (
    counted("tree", tree_broadcast, _tree),
    counted("flat", flat_broadcast, _flat),
)
REDUCE: tuple[Algorithm, ...] = (
    counted("tree", tree_reduce, lambda n, L: _adding(_tree(n, L))),
    counted("flat", flat_reduce, lambda n, L: _adding(_flat(n, L))),
)
GATHER: tuple[Algorithm, ...] = (
    counted("flat", flat_gather, _flat_parts, in_parts),
    counted("tree", tree_gather, _tree_parts, in_parts),
)
SCATTER: tuple[Algorithm, ...] = (
    counted("flat", flat_scatter, _flat_parts, in_parts),
    counted("tree", tree_scatter, _tree_parts, in_parts),
)
