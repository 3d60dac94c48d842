"""Who sends to whom, and how much each counts: the graphs over which replicas mix.

W[i, j] is the weight of rank j's parameters in rank i's mix. Rows add up to 1, so that replicas
that agree stay as they are, and columns do, so that the mean of all replicas does.

Papers  Xiao & Boyd, "Fast linear iterations for distributed averaging", Systems & Control Letters
        53, 2004 (Metropolis weights); Ying et al., "Exponential Graph is Provably Efficient for
        Decentralized Deep Training", NeurIPS 2021; Li et al., "MALT: Distributed Data-Parallelism
        for Existing ML Applications", EuroSys 2015 (Halton offsets).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from workbench.errors import SpecError
from workbench.source import listed, nearest

Pairs = tuple[tuple[int, int], ...]
Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Graph:
    """``edges``: (sender, receiver), without loops. Where not every edge has one back, all ranks
    send to equally many, and receive from as many.
    """

    kind: str
    ranks: int
    edges: frozenset[tuple[int, int]]

    def into(self, rank: int) -> list[int]:
        """The ranks that it receives from."""
        return sorted(a for a, b in self.edges if b == rank)

    def out_of(self, rank: int) -> list[int]:
        """The ranks that it sends to."""
        return sorted(b for a, b in self.edges if a == rank)

    @cached_property
    def weights(self) -> Matrix:
        """W. Metropolis where edges go both ways: 1 / (1 + the larger number of neighbours)."""
        degree = [len(self.into(rank)) for rank in range(self.ranks)]
        W = np.zeros((self.ranks, self.ranks))
        for a, b in self.edges:
            W[b, a] = 1 / (1 + max(degree[a], degree[b]))
        np.fill_diagonal(W, 1 - W.sum(axis=1))
        return W

    def distances(self, rank: int = 0) -> list[int]:
        """Hops from ``rank`` to each; -1: there is no path."""
        hops, reached = [-1] * self.ranks, [rank]
        hops[rank] = 0
        for at in reached:
            for to in self.out_of(at):
                if hops[to] < 0:
                    hops[to] = hops[at] + 1
                    reached.append(to)
        return hops

    @property
    def parts(self) -> list[list[int]]:
        """Ranks between which there are paths; a single part is a graph over which all agree.

        Edges that go one way only are those of graphs that look alike from every rank: there a
        path has one back.
        """
        found: dict[tuple[bool, ...], list[int]] = {}
        for rank in range(self.ranks):
            reached = tuple(hops >= 0 for hops in self.distances(rank))
            found.setdefault(reached, []).append(rank)
        return [*found.values()]


def ring(n: int) -> Graph:
    return _both_ways("ring", n, ((i, (i + 1) % n) for i in range(n)))


def complete(n: int) -> Graph:
    return _both_ways("all", n, ((i, j) for i in range(n) for j in range(i)))


def torus(n: int) -> Graph:
    """A grid as square as n allows, its borders glued; of a prime number of ranks, a ring."""
    rows = max(d for d in range(1, math.isqrt(n) + 1) if n % d == 0)
    columns = n // rows

    def pairs() -> Iterator[tuple[int, int]]:
        for i in range(n):
            row, column = divmod(i, columns)
            yield i, row * columns + (column + 1) % columns
            yield i, (row + 1) % rows * columns + column

    return _both_ways("torus", n, pairs())


def exponential(n: int) -> Graph:
    """Each rank sends to those 1, 2, 4, 8, ... after it: few messages, and short paths."""
    return by_offsets("exponential", n, (2**k for k in range((n - 1).bit_length())))


def halton(n: int, peers: int = 0) -> Graph:
    """Each rank sends to those n/2, n/4, 3n/4, n/8, ... after it; see ``halton_offsets``."""
    return by_offsets("halton", n, halton_offsets(n, peers))


def bipartite(n: int) -> Graph:
    """Every rank with an even number and every one with an odd number."""
    return _both_ways("bipartite", n, ((i, j) for i in range(0, n, 2) for j in range(1, n, 2)))


def by_offsets(kind: str, n: int, offsets: Iterable[int]) -> Graph:
    steps = {offset % n for offset in offsets} - {0}
    return Graph(kind, n, frozenset((i, (i + step) % n) for i in range(n) for step in steps))


def halton_offsets(n: int, peers: int = 0) -> list[int]:
    """The first ``peers`` of them; 0: as many as it takes until all ranks are connected, that is
    until no number but 1 divides n and all of them.

    Halton's sequence in base 2 halves what is left: 1/2, 1/4, 3/4, 1/8, 5/8, ... of n, rounded
    down; what was there before is left out.
    """
    found: list[int] = []
    k = 0
    while len(found) < n - 1 and (len(found) < peers if peers else math.gcd(n, *found) != 1):
        k += 1
        digits = f"{k:b}"
        offset = n * int(digits[::-1], 2) // 2 ** len(digits)
        if offset and offset not in found:
            found.append(offset)
    return found


NAMED: Mapping[str, Callable[[int], Graph]] = {
    "ring": ring, "complete": complete, "torus": torus, "exponential": exponential,
    "halton": halton, "bipartite": bipartite,
}  # fmt: skip


def graph(given: str | Pairs, ranks: int, names: Iterable[str], option: str = "graph") -> Graph:
    """By name, one of ``names``; or of pairs of ranks, each with an edge both ways. ``option``: as
    which it is given.

    Raises SpecError for a name that is none, for ranks that there are not, and where there is no
    path between some: those would never agree.
    """
    if isinstance(given, str):
        if given not in names:
            raise SpecError(
                f"Experiment.options.{option} = {given!r}{nearest(given, names)}. Allowed: "
                f"{listed(names)}; or pairs of ranks, such as [[0, 1], [1, 2]]"
            )
        return NAMED[given](ranks)
    for a, b in given:
        if a == b or not (0 <= a < ranks and 0 <= b < ranks):
            why = "is of a rank with itself" if a == b else f"there are ranks 0 to {ranks - 1}"
            raise SpecError(f"Experiment.options.{option}: the pair [{a}, {b}]: {why}")
    made = _both_ways("given", ranks, given)
    if len(made.parts) > 1:
        groups = " and ".join(listed(map(str, part)) for part in made.parts)
        raise SpecError(
            f"Experiment.options.{option} falls apart: no path leads from one to another of "
            f"ranks {groups}, so they would never agree. Add a pair that connects them"
        )
    return made


def two_sides(made: Graph, option: str = "graph") -> list[int]:
    """0 or 1 for each rank, so that every edge has one end on each side; rank 0 is on side 0.

    Raises SpecError where that cannot be: around a circle of an odd number of ranks.
    """
    hops = made.distances()
    for a, b in sorted(made.edges):
        if hops[a] % 2 == hops[b] % 2:
            raise SpecError(
                f"Experiment.options.{option}: ranks {min(a, b)} and {max(a, b)} would be on "
                "the same side. Pairs are averaged between two sides, so that nobody waits for "
                "somebody who waits: there must be no circle of an odd number of ranks. A ring "
                f"needs an even number of ranks; {option}='bipartite' takes any"
            )
    return [hop % 2 for hop in hops]


def _both_ways(kind: str, n: int, pairs: Iterable[tuple[int, int]]) -> Graph:
    both = {edge for a, b in pairs if a != b for edge in ((a, b), (b, a))}
    return Graph(kind, n, frozenset(both))
