"""All-reduce as rings within rings: n = Π pᵢ ranks, from inside a host outwards.

The tensor is cut into n chunks. Level i reduce-scatters among the pᵢ ranks that differ in place i
alone what the levels before it left, L/Π_{j<i} pⱼ, a block of chunks; the all-gathers go back in
the opposite order. Rank r has place r mod p₀ at level 0, ⌊r/p₀⌋ mod p₁ at level 1, and so on: hosts
have blocks of ranks. Where ranks were dealt to hosts in turn, places are counted from the outermost
level: of two levels, rank r is on host r mod p₁, and has place ⌊r/p₁⌋ there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import isqrt, prod
from operator import mul
from typing import NamedTuple

from workbench.formulas.all_reduce import RING
from workbench.formulas.model import Algorithm, Transfer, chunk_sizes, in_parts


def levels(n: int) -> list[int]:
    """Return the most even two factors of ``n``, the larger first: [4, 2] for 8; [7] for 7.

    The first is the number of ranks inside a host.
    """
    small = next(p for p in range(isqrt(n), 0, -1) if n % p == 0)
    return [n // small, small] if small > 1 else [n]


def levels_told(levels: Sequence[int], in_turn: bool = False) -> str:
    """Return the text for levels in a record: "levels 4,2", or "levels 4,2 in turn"."""
    return f"levels {','.join(map(str, levels))}{' in turn' if in_turn else ''}"


def levels_read(text: str) -> tuple[list[int], bool]:
    """Parse the text of ``levels_told``; return no levels for any other text."""
    match = re.fullmatch(r"levels (\d{1,4}(?:,\d{1,4})*)( in turn)?", text)
    return ([int(p) for p in match[1].split(",")], bool(match[2])) if match else ([], False)


def strides(levels: Sequence[int], in_turn: bool = False) -> list[int]:
    """Return how far apart neighbors in each level's rings are.

    [1, 4] for [4, 2]; [2, 1] where ranks were dealt to the hosts in turn.
    """
    if in_turn:
        return strides(levels[::-1])[::-1]
    return [*accumulate(levels[:-1], mul, initial=1)]


class Turn(NamedTuple):
    """One rank's work at one level: its ring, its place there, and the blocks that go round."""

    ranks: list[int]  # of the ring, in order of place
    place: int
    blocks: list[range]  # chunks of each place's block

    @property
    def right(self) -> int:
        return self.ranks[(self.place + 1) % len(self.ranks)]


def turns(levels: Sequence[int], rank: int, in_turn: bool = False) -> Iterator[Turn]:
    """Yield a rank's rings, from inside outwards.

    As ``ring`` does, a ring leaves the rank the block of the place after its own.
    """
    mine = range(prod(levels))
    for p, stride in zip(levels, strides(levels, in_turn), strict=True):
        place, width = rank // stride % p, len(mine) // p
        blocks = [mine[i * width : (i + 1) * width] for i in range(p)]
        yield Turn([rank + (i - place) * stride for i in range(p)], place, blocks)
        mine = blocks[(place + 1) % p]


def hierarchical(levels: Sequence[int], in_turn: bool = False) -> Algorithm:
    """Return the algorithm of rings within rings; ``levels`` go outwards, such as [4, 2].

    ``in_turn``: ranks were dealt to the hosts in turn.
    """
    if not levels or min(levels) < 1:
        raise ValueError(f"levels must be ranks a level, 1 or more, such as [4, 2]; got {levels!r}")
    n = prod(levels)

    def count(ranks: int) -> int:
        if ranks != n:
            raise ValueError(f"levels {list(levels)} make {n} ranks, not {ranks}")
        return 2 * sum(p - 1 for p in levels)

    def schedule(ranks: int) -> list[Transfer]:
        count(ranks)
        return _schedule(levels, in_turn)

    return Algorithm(
        "hierarchical",
        steps=count,
        sends=lambda ranks: [count(ranks)] * ranks,
        sent=lambda _, elements: [
            sum(each) for each in zip(*level_elements(levels, elements, in_turn), strict=True)
        ],
        terms=lambda ranks, L: RING.terms(n, L)._replace(messages=count(ranks)),
        schedule=schedule,
        cut=in_parts,
        way=levels_told(levels, in_turn),
    )


def level_elements(levels: Sequence[int], elements: int, in_turn: bool = False) -> list[list[int]]:
    """Return the elements that each rank sends per level of ``hierarchical(levels, in_turn)``."""
    n, ways = prod(levels), [*zip(levels, strides(levels, in_turn), strict=True)]
    before = [0, *accumulate(chunk_sizes(elements, n))]  # a block's are a difference of two
    table = [[0] * n for _ in levels]
    for rank in range(n):
        first, width = 0, n  # of the block of chunks that the levels before have left to it
        for level, (p, stride) in enumerate(ways):
            place, end, width = rank // stride % p, first + width, width // p
            kept = [first + (place + i) % p * width for i in (1, 2)]
            if p > 1:
                table[level][rank] = 2 * (before[end] - before[first]) - sum(
                    before[start + width] - before[start] for start in kept
                )
            first = kept[0]
    return table


def _schedule(levels: Sequence[int], in_turn: bool = False) -> list[Transfer]:
    n, result = prod(levels), list[Transfer]()
    every = sum(p - 1 for p in levels)
    for rank in range(n):
        start = 0
        for turn in turns(levels, rank, in_turn):
            p = len(turn.ranks)
            back = 2 * every - start - (p - 1)  # where this level's all-gather starts
            for i in range(p - 1):
                up, down = turn.blocks[(turn.place - i) % p], turn.blocks[(turn.place + 1 - i) % p]
                result += (
                    Transfer(start + i, "reduce_scatter", rank, turn.right, c, adds=True)
                    for c in up
                )
                result += (Transfer(back + i, "all_gather", rank, turn.right, c) for c in down)
            start += p - 1
    return sorted(result, key=lambda t: (t.step, t.source, t.chunk))


HIERARCHICAL = Algorithm(
    "hierarchical",
    steps=lambda n: hierarchical(levels(n)).steps(n),
    sends=lambda n: hierarchical(levels(n)).sends(n),
    sent=lambda n, elements: hierarchical(levels(n)).sent(n, elements),
    terms=lambda n, L: hierarchical(levels(n)).terms(n, L),
    schedule=lambda n: _schedule(levels(n)),
    cut=in_parts,
)
