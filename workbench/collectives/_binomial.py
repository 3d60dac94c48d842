"""The binomial tree over places 0 .. p-1 that trees of several operations climb and descend.

Place 0 is the root. Round k of the way up (0, 1, ...): each place whose lowest set bit is 2^k gives
what it has to the place without that bit, and is done. The way down has the rounds in reverse.

    p=8     round 0     1→0  3→2  5→4  7→6
            round 1     2→0       6→4
            round 2     4→0

So place v hangs on v - 2^k, and the places v + 1 .. v + 2^k - 1, as far as they exist, below it.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple


class Node(NamedTuple):
    """One place of the tree."""

    round: int  # in which it gives to its parent; the root: the number of rounds
    parent: int  # -1 for the root
    children: tuple[tuple[int, int], ...]  # (round, place), in the order of the rounds
    end: int  # places from its own up to here, exclusive, are in its part of the tree


def rounds(p: int) -> int:
    """Return ⌈lg p⌉, the height of the tree."""
    return (p - 1).bit_length()


@cache
def node(place: int, p: int) -> Node:
    k = (place & -place).bit_length() - 1 if place else rounds(p)
    parent = place - (1 << k) if place else -1
    children = tuple((j, place + (1 << j)) for j in range(k) if place + (1 << j) < p)
    return Node(k, parent, children, min(place + (1 << k), p))
