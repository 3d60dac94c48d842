"""The all-reduce algorithms as formulas: steps, messages, bytes, and what stands before α, β and γ.

n ranks, L bytes; α seconds a message, β seconds a byte sent, γ seconds a byte added. Then
T = a·α + b·β + g·γ, where a counts the messages, b the bytes sent and g the bytes added along the
longest path through the ranks.

Papers Patarasuk & Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
       JPDC 69(2), 2009: the ring, and the lower bound 2(n-1)/n·L on the bytes of a rank.
       Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in MPICH",
       IJHPCA 19(1), 2005: trees, recursive doubling (butterfly), halving + doubling (Rabenseifner).

An algorithm is one entry of ``ALGORITHMS``, named as its file ``collectives/all_reduce_<name>.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log2, prod
from typing import NamedTuple


@dataclass(frozen=True)
class Cost:
    """The α-β-γ model of a link and its ranks."""

    alpha_s: float  # seconds a message
    beta_s_per_byte: float  # seconds a byte sent
    gamma_s_per_byte: float = 0.0  # seconds a byte added


class Terms(NamedTuple):
    """What stands before α, β and γ on the longest path."""

    messages: float
    sent: float  # bytes
    added: float  # bytes

    def seconds(self, cost: Cost) -> float:
        return (
            self.messages * cost.alpha_s
            + self.sent * cost.beta_s_per_byte
            + self.added * cost.gamma_s_per_byte
        )


class Transfer(NamedTuple):
    """One message of a schedule."""

    step: int
    phase: str
    source: int
    target: int
    chunk: int
    adds: bool  # the target adds what it receives; otherwise it replaces


@dataclass(frozen=True)
class Algorithm:
    """An all-reduce as formulas. ``n`` ranks (>= 2), ``elements`` of the tensor (>= 1)."""

    name: str
    steps: Callable[[int], int]
    sends: Callable[[int], list[int]]  # messages sent by each rank
    sent: Callable[[int, int], list[int]]  # n, elements -> elements sent by each rank
    terms: Callable[[int, float], Terms]  # n, nbytes -> a, b, g
    schedule: Callable[[int], list[Transfer]] | None = None  # in the order of steps; for ``plan``
    adds_last: bool = False  # the additions wait until all messages have left


def chunk_sizes(elements: int, n: int) -> list[int]:
    """Elements of each of ``n`` chunks: the first ``elements`` mod ``n`` have one more."""
    whole, extra = divmod(elements, n)
    return [whole + (chunk < extra) for chunk in range(n)]


def lower_bound(n: int, nbytes: float) -> float:
    """Bytes that the busiest rank of any all-reduce must send: 2(n-1)/n·L (Patarasuk & Yuan)."""
    return 2 * (n - 1) / n * nbytes


def _folded(n: int) -> tuple[int, int]:
    """The largest power of two m <= n, and how many ranks fold into a neighbour first."""
    m = 1 << (n.bit_length() - 1)
    return m, n - m


def _fold(n: int, inner: Callable[[int, int], int], whole: int) -> list[int]:
    """What each rank sends if the v-th of the m that remain after folding sends ``inner(v, m)``.

    As in MPICH: of the first 2·extra ranks the even ones give all to the odd ones and get it back.
    """
    m, extra = _folded(n)
    first = [x for v in range(extra) for x in (whole, inner(v, m) + whole)]
    return first + [inner(v, m) for v in range(extra, m)]


def _ring_sent(n: int, elements: int) -> list[int]:
    c = chunk_sizes(elements, n)
    return [2 * elements - c[(r + 1) % n] - c[(r + 2) % n] for r in range(n)]


def _ring_schedule(n: int) -> list[Transfer]:
    last = n - 1  # the first step of the all-gather
    return [
        Transfer(
            step, "reduce_scatter" if step < last else "all_gather",
            r, (r + 1) % n, (r - step) % n, adds=step < last,
        )
        for step in range(2 * last)
        for r in range(n)
    ]  # fmt: skip


def _naive_schedule(n: int) -> list[Transfer]:
    up = [Transfer(r - 1, "reduce", r, 0, 0, adds=True) for r in range(1, n)]
    down = [Transfer(n - 2 + r, "broadcast", 0, r, 0, adds=False) for r in range(1, n)]
    return up + down


def _one_shot_schedule(n: int) -> list[Transfer]:
    return [
        Transfer(step, "exchange", r, (r + 1 + step) % n, 0, adds=True)
        for step in range(n - 1)
        for r in range(n)
    ]


def _tree_sends(n: int) -> list[int]:
    """Binomial tree with root 0: r sends up to its parent once, and down to each child.

    The children of r are the r + 2^k with 2^k below the lowest bit of r.
    """
    low = [n if r == 0 else r & -r for r in range(n)]
    return [(r > 0) + sum(r + 2**k < n and 2**k < low[r] for k in range(_lg(n))) for r in range(n)]


def _lg(n: int) -> int:
    """⌈lg n⌉."""
    return (n - 1).bit_length()


def _butterfly_terms(n: int, nbytes: float) -> Terms:
    m, extra = _folded(n)
    rounds, fold = log2(m), bool(extra)
    return Terms(rounds + 2 * fold, nbytes * (rounds + 2 * fold), nbytes * (rounds + fold))


def _rabenseifner_sent(n: int, elements: int) -> list[int]:
    """Halving gives away all chunks but one's own; doubling blocks of 1, 2, 4, ... chunks."""

    def inner(v: int, m: int) -> int:
        c = chunk_sizes(elements, m)
        blocks = [2**k for k in range(int(log2(m)))]
        return elements - c[v] + sum(sum(c[v // size * size :][:size]) for size in blocks)

    return _fold(n, inner, elements)


def _rabenseifner_terms(n: int, nbytes: float) -> Terms:
    m, extra = _folded(n)
    part, fold = (m - 1) / m * nbytes, bool(extra)
    return Terms(
        2 * log2(m) + 2 * fold, 2 * part + 2 * fold * nbytes, part + fold * nbytes
    )  # fold adds all, once


def hierarchical(levels: Sequence[int]) -> Algorithm:
    """Rings within rings: n = Π pᵢ ranks, ``levels`` from inside a host outwards, such as [4, 2].

    Level i reduce-scatters what those before it left, L/Π_{j<i} pⱼ, and gathers it on the way back.
    """
    if not levels or min(levels) < 1:
        raise ValueError(f"levels must be ranks a level, 1 or more, such as [4, 2]; got {levels!r}")
    n = prod(levels)

    def count(ranks: int) -> int:
        if ranks != n:
            raise ValueError(f"levels {list(levels)} make {n} ranks, not {ranks}")
        return 2 * sum(p - 1 for p in levels)

    return Algorithm(
        "hierarchical",
        steps=count,
        sends=lambda ranks: [count(ranks)] * ranks,
        sent=lambda _, elements: [
            sum(each) for each in zip(*level_elements(levels, elements), strict=True)
        ],
        terms=lambda ranks, L: Terms(count(ranks), lower_bound(n, L), lower_bound(n, L) / 2),
    )


def level_elements(levels: Sequence[int], elements: int) -> list[list[int]]:
    """Elements that each rank sends in ``hierarchical(levels)``: for each level a list over ranks.

    Rank r has place r mod p₀ at level 0, ⌊r/p₀⌋ mod p₁ at level 1, and so on.
    """
    n = prod(levels)
    mine, place = [elements] * n, list(range(n))  # what a rank still has to reduce; its coordinates
    table = []
    for p in levels:
        at = [c % p for c in place]
        table.append([_ring_sent(p, m)[i] if p > 1 else 0 for m, i in zip(mine, at, strict=True)])
        mine = [chunk_sizes(m, p)[(i + 1) % p] for m, i in zip(mine, at, strict=True)]
        place = [c // p for c in place]
    return table


ALGORITHMS: dict[str, Algorithm] = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm(
            "ring",
            steps=lambda n: 2 * (n - 1),
            sends=lambda n: [2 * (n - 1)] * n,
            sent=_ring_sent,
            terms=lambda n, L: Terms(2 * (n - 1), 2 * (n - 1) / n * L, (n - 1) / n * L),
            schedule=_ring_schedule,
        ),
        Algorithm(
            "naive",
            steps=lambda n: 2 * (n - 1),
            sends=lambda n: [n - 1] + [1] * (n - 1),
            sent=lambda n, elements: [(n - 1) * elements] + [elements] * (n - 1),
            terms=lambda n, L: Terms(2 * (n - 1), 2 * (n - 1) * L, (n - 1) * L),
            schedule=_naive_schedule,
        ),
        Algorithm(
            "one_shot",
            steps=lambda n: n - 1,
            sends=lambda n: [n - 1] * n,
            sent=lambda n, elements: [(n - 1) * elements] * n,
            terms=lambda n, L: Terms(n - 1, (n - 1) * L, (n - 1) * L),
            schedule=_one_shot_schedule,
            adds_last=True,
        ),
        Algorithm(
            "tree",
            steps=lambda n: 2 * _lg(n),
            sends=_tree_sends,
            sent=lambda n, elements: [messages * elements for messages in _tree_sends(n)],
            terms=lambda n, L: Terms(2 * _lg(n), 2 * _lg(n) * L, _lg(n) * L),
        ),
        Algorithm(
            "butterfly",
            steps=lambda n: int(_butterfly_terms(n, 1).messages),
            sends=lambda n: _fold(n, lambda _, m: int(log2(m)), 1),
            sent=lambda n, elements: _fold(n, lambda _, m: int(log2(m)) * elements, elements),
            terms=_butterfly_terms,
        ),
        Algorithm(
            "rabenseifner",
            steps=lambda n: int(_rabenseifner_terms(n, 1).messages),
            sends=lambda n: _fold(n, lambda _, m: 2 * int(log2(m)), 1),
            sent=_rabenseifner_sent,
            terms=_rabenseifner_terms,
        ),
    )
}


def find(algorithm: str | Algorithm) -> Algorithm:
    """The algorithm of this name. Raises ValueError, which lists the names that there are."""
    if isinstance(algorithm, Algorithm):
        return algorithm
    if algorithm not in ALGORITHMS:
        raise ValueError(
            f"theory knows no algorithm {algorithm!r}; it knows {', '.join(ALGORITHMS)}, "
            "and hierarchical([4, 2])"
        )
    return ALGORITHMS[algorithm]
