"""Which server holds which elements of the flat parameters.

    "even"            S pieces of floor(L/S) or ceil(L/S) elements, in order
    [2/3, 1/6, 1/6]   pieces of these shares of L
    "hash"            blocks of 1,024 elements on a consistent-hash ring: each server stands on it
                      at 64 points, a block belongs to the first server at or after its own point

Paper  Karger et al., "Consistent Hashing and Random Trees", STOC 1997; for parameter servers Li et
       al., "Scaling Distributed Machine Learning with the Parameter Server", OSDI 2014.
Law    Every element has exactly one server. Under "hash" one server more moves about 1/S of them,
       all of them to the new one.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise

from workbench.errors import SpecError

BLOCK = 1024  # elements that stay together on the ring
POINTS = 64  # of each server on the ring: more are more even
OFF_BY = 0.01  # shares such as 0.667, 0.167, 0.166 sum to 1 only nearly

Placement = str | Sequence[float]


def place(elements: int, servers: int, placement: Placement = "even") -> list[list[range]]:
    """For each server the ranges of the flat parameters that it holds; ascending, none empty.

    Raises SpecError if ``placement`` is none of the three, or not for so many servers.
    """
    if placement == "hash":
        return _hashed(elements, servers)
    if placement == "even":
        edges = [elements * server // servers for server in range(servers + 1)]
    else:
        shares = _checked(placement, servers)
        edges = [0, *(round(elements * part) for part in accumulate(shares))]
    return [[range(start, stop)] if stop > start else [] for start, stop in pairwise(edges)]


def held(ranges: Sequence[range]) -> int:
    """Elements of these ranges."""
    return sum(len(one) for one in ranges)


def _checked(placement: Placement, servers: int) -> list[float]:
    """The shares, made to sum to 1."""
    if isinstance(placement, str):
        raise SpecError(
            f"placement = {placement!r}: must be 'even', 'hash', or a share for each server such "
            "as [0.667, 0.167, 0.166]"
        )
    shares = [float(share) for share in placement]
    if len(shares) != servers:
        raise SpecError(
            f"placement = {shares}: {len(shares)} shares for {servers} servers; give one each"
        )
    if min(shares) < 0 or abs(sum(shares) - 1) > OFF_BY:
        raise SpecError(
            f"placement = {shares}: shares must be 0 or more and sum to 1; these sum to "
            f"{sum(shares):g}"
        )
    return [share / sum(shares) for share in shares]


def _hashed(elements: int, servers: int) -> list[list[range]]:
    ring = sorted(
        (_point(f"server {server} point {number}"), server)
        for server in range(servers)
        for number in range(POINTS)
    )
    points = [point for point, _ in ring]
    found: list[list[range]] = [[] for _ in range(servers)]
    for start in range(0, elements, BLOCK):
        after = bisect_left(points, _point(f"block {start // BLOCK}")) % len(ring)
        mine, stop = found[ring[after][1]], min(start + BLOCK, elements)
        if mine and mine[-1].stop == start:
            mine[-1] = range(mine[-1].start, stop)
        else:
            mine.append(range(start, stop))
    return found


def _point(text: str) -> int:
    """Where on the ring: the same in every process, unlike hash()."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
