"""Any number of ranks for algorithms that want a power of two: some fold into a neighbor first.

m is the largest power of two in p. Of the first 2·(p-m) ranks each even one gives all it has to the
odd one after it, sits out, and gets the outcome in the end. The m that remain have places 0 .. m-1.

    p=6     rank    0   1   2   3   4   5
            place   ·   0   ·   1   2   3           0→1 and 2→3 first, 1→0 and 3→2 last
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple


class Folded(NamedTuple):
    """One rank's part in it."""

    p: int
    m: int
    place: int  # among the m; -1 for a rank that sits out
    neighbor: int  # the rank with which this one folds; -1 for none

    @property
    def first_step(self) -> int:
        """The first step after folding: 0 without folding."""
        return int(self.m < self.p)

    def rank(self, place: int) -> int:
        """Return the rank at this place."""
        extra = self.p - self.m
        return 2 * place + 1 if place < extra else place + extra


@cache
def fold(rank: int, p: int) -> Folded:
    m = 1 << (p.bit_length() - 1)
    extra = p - m
    if rank >= 2 * extra:
        return Folded(p, m, rank - extra, -1)
    return Folded(p, m, rank // 2, rank - 1) if rank % 2 else Folded(p, m, -1, rank + 1)
