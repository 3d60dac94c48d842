"""The graphs over which replicas mix: edges between ranks, and their weights.

W[i, j] is the weight of rank j's parameters in rank i's mix. Rows sum to 1, so that replicas that
agree do not change; columns sum to 1, so that the mean of all replicas does not change.

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

from workbench.common.errors import SpecError
from workbench.common.names import listed, nearest

Pairs = tuple[tuple[int, int], ...]
Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Graph:
    """A graph of ranks. ``edges``: (sender, receiver), without loops.

    Where some edge has no reverse, all ranks send to equally many, and receive from as many.
    """

    kind: str
    ranks: int
    edges: frozenset[tuple[int, int]]

    @cached_property
    def _neighbors(self) -> tuple[list[list[int]], list[list[int]]]:
        """For each rank, the ranks that it receives from, and those that it sends to."""
        into: list[list[int]] = [[] for _ in range(self.ranks)]
        out_of: list[list[int]] = [[] for _ in range(self.ranks)]
        for a, b in sorted(self.edges):
            into[b].append(a)
            out_of[a].append(b)
        return into, out_of

    def into(self, rank: int) -> list[int]:
        """Return the ranks that ``rank`` receives from."""
        return [*self._neighbors[0][rank]]

    def out_of(self, rank: int) -> list[int]:
        """Return the ranks that ``rank`` sends to."""
        return [*self._neighbors[1][rank]]

    @cached_property
    def weights(self) -> Matrix:
        """W. Metropolis where edges go both ways: 1 / (1 + the larger number of neighbors)."""
        degree = [len(self.into(rank)) for rank in range(self.ranks)]
        W = np.zeros((self.ranks, self.ranks))
        for a, b in self.edges:
            W[b, a] = 1 / (1 + max(degree[a], degree[b]))
        np.fill_diagonal(W, 1 - W.sum(axis=1))
        return W

    def distances(self, rank: int = 0) -> list[int]:
        """Return the hops from ``rank`` to each rank; -1 where there is no path."""
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
        result: list[list[int]] = []
        left = dict.fromkeys(range(self.ranks))
        while left:
            hops = self.distances(next(iter(left)))
            result.append([rank for rank in left if hops[rank] >= 0])
            for rank in result[-1]:
                del left[rank]
        return result


def ring(n: int) -> Graph:
    return _both_ways("ring", n, ((i, (i + 1) % n) for i in range(n)))


def complete(n: int) -> Graph:
    return _both_ways("all", n, ((i, j) for i in range(n) for j in range(i)))


def torus(n: int) -> Graph:
    """Return a grid as square as n allows, with wrapped borders; a ring for a prime n."""
    rows = max(d for d in range(1, math.isqrt(n) + 1) if n % d == 0)
    columns = n // rows

    def pairs() -> Iterator[tuple[int, int]]:
        for i in range(n):
            row, column = divmod(i, columns)
            yield i, row * columns + (column + 1) % columns
            yield i, (row + 1) % rows * columns + column

    return _both_ways("torus", n, pairs())


def exponential(n: int) -> Graph:
    """Connect each rank to those 1, 2, 4, 8, ... after it: few messages, and short paths."""
    return by_offsets("exponential", n, (2**k for k in range((n - 1).bit_length())))


def halton(n: int, peers: int = 0) -> Graph:
    """Connect each rank to those n/2, n/4, 3n/4, n/8, ... after it; see ``halton_offsets``."""
    return by_offsets("halton", n, halton_offsets(n, peers))


def bipartite(n: int) -> Graph:
    """Connect every even rank with every odd rank."""
    return _both_ways("bipartite", n, ((i, j) for i in range(0, n, 2) for j in range(1, n, 2)))


def by_offsets(kind: str, n: int, offsets: Iterable[int]) -> Graph:
    steps = {offset % n for offset in offsets} - {0}
    return Graph(kind, n, frozenset((i, (i + step) % n) for i in range(n) for step in steps))


def halton_offsets(n: int, peers: int = 0) -> list[int]:
    """Return the first ``peers`` offsets; 0: as many as connect all ranks.

    All ranks are connected when only 1 divides n and all offsets. Halton's sequence in base 2
    halves the remainder: 1/2, 1/4, 3/4, 1/8, 5/8, ... of n, rounded down, without repeats.
    """
    result: list[int] = []
    k = 0
    while len(result) < n - 1 and (len(result) < peers if peers else math.gcd(n, *result) != 1):
        k += 1
        digits = f"{k:b}"
        offset = n * int(digits[::-1], 2) // 2 ** len(digits)
        if offset and offset not in result:
            result.append(offset)
    return result


NAMED: Mapping[str, Callable[[int], Graph]] = {
    "ring": ring,
    "complete": complete,
    "torus": torus,
    "exponential": exponential,
    "halton": halton,
    "bipartite": bipartite,
}


def graph(choice: str | Pairs, ranks: int, names: Iterable[str], option: str = "graph") -> Graph:
    """Return the graph of a name among ``names``, or of pairs of ranks with an edge both ways.

    ``option``: the option that holds it. Raises SpecError for an unknown name or rank, and where
    some ranks have no path between them: those would never agree.
    """
    if isinstance(choice, str):
        check_name(choice, names, option)
        return NAMED[choice](ranks)
    if len(choice) > ranks * (ranks - 1):
        raise _refuse(
            option,
            f"has {len(choice):,} pairs, and {ranks} ranks make {ranks * (ranks - 1):,} at most: "
            "name each once",
        )
    for a, b in choice:
        if a == b or not (0 <= a < ranks and 0 <= b < ranks):
            why = "is of a rank with itself" if a == b else f"there are ranks 0 to {ranks - 1}"
            raise _refuse(option, f"the pair [{a}, {b}]: {why}")
    result = _both_ways("given", ranks, choice)
    if len(result.parts) > 1:
        groups = " and ".join(listed(map(str, part)) for part in result.parts)
        raise _refuse(
            option,
            f"falls apart: no path leads from one to another of ranks {groups}, so they would "
            "never agree. Add a pair that connects them",
        )
    return result


def _refuse(option: str, why: str, value: object = None, names: Iterable[str] = ()) -> SpecError:
    """Return the error of an option of a strategy."""
    return SpecError.at(("options", option), why, value, allowed=names).within("Experiment")


def check_name(name: str, names: Iterable[str], option: str = "graph") -> None:
    """Raise SpecError for a name that is not in ``names``."""
    if name not in names:
        why = (
            f"there is no such name{nearest(name, names)}. Allowed: {listed(names)}; or pairs of "
            "ranks, such as [[0, 1], [1, 2]]"
        )
        raise _refuse(option, why, name, names)


def two_sides(topology: Graph, option: str = "graph") -> list[int]:
    """Return side 0 or 1 for each rank, so that every edge connects both sides; rank 0 is on side
    0.

    Raises SpecError where a cycle of an odd number of ranks makes that impossible.
    """
    hops = topology.distances()
    for a, b in sorted(topology.edges):
        if hops[a] % 2 == hops[b] % 2:
            raise _refuse(
                option,
                f"ranks {min(a, b)} and {max(a, b)} would be on the same side. Pairs are averaged "
                "between two sides, so that no rank waits for one that waits: there must be no "
                "circle of an odd number of ranks. A ring needs an even number of ranks; "
                f"{option}='bipartite' takes any",
            )
    return [hop % 2 for hop in hops]


def _both_ways(kind: str, n: int, pairs: Iterable[tuple[int, int]]) -> Graph:
    both = {edge for a, b in pairs if a != b for edge in ((a, b), (b, a))}
    return Graph(kind, n, frozenset(both))
