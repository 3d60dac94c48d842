"""The placement of the flat parameters on the servers.

    "even"            S chunks of floor(L/S) or ceil(L/S) elements, in order
    [2/3, 1/6, 1/6]   chunks of these shares of L
    "hash"            blocks of 1,024 elements on a consistent-hash ring: each server has 64 points
                      on it; a block belongs to the first server at or after the block's own point

Paper  Karger et al., "Consistent Hashing and Random Trees", STOC 1997; for parameter servers Li et
       al., "Scaling Distributed Machine Learning with the Parameter Server", OSDI 2014.
Law    Every element has exactly one server. Under "hash" an additional server moves about 1/S of
       the elements, all of them to itself. Where servers are lost, ``living`` keep what they have
       and share out what the others had: by the ring under "hash", else by their own shares.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise

from workbench.common.errors import SpecError

BLOCK = 1024  # elements that stay together on the ring
POINTS = 64  # of each server on the ring; more points give more even shares
OFF_BY = 0.01  # shares such as 0.667, 0.167, 0.166 sum to 1 only nearly

Placement = str | Sequence[float]


def place(elements: int, servers: int, placement: Placement = "even") -> list[list[range]]:
    """Return for each server the ranges of the flat parameters that it holds: ascending, none
    empty.

    Raises SpecError if ``placement`` is not one of the three forms, or does not fit ``servers``.
    """
    if placement == "hash":
        return _hashed(elements, range(servers))
    if placement == "even":
        edges = [elements * server // servers for server in range(servers + 1)]
    else:
        shares = _checked(placement, servers)
        edges = [0, *(round(elements * share) for share in accumulate(shares))]
    return [[range(start, stop)] if stop > start else [] for start, stop in pairwise(edges)]


def place_living(
    elements: int, servers: int, placement: Placement, living: Sequence[int]
) -> list[list[range]]:
    """Return for each of the ``living`` servers, ascending, the ranges that it holds once the
    others are lost: those that it had, and its part of theirs.
    """
    if not living:
        return []
    if placement == "hash":
        return _hashed(elements, living)
    owned = place(elements, servers, placement)
    result = [list(owned[server]) for server in living]
    shares = [1.0] * servers if isinstance(placement, str) else _checked(placement, servers)
    whole = sum(shares[server] for server in living)
    parts = [shares[server] / whole if whole else 1 / len(living) for server in living]
    for lost in sorted(set(range(servers)) - set(living)):
        for ranges in owned[lost]:
            ends = [ranges.start + round(len(ranges) * share) for share in accumulate(parts)]
            for mine, edge in zip(
                result, pairwise([ranges.start, *ends[:-1], ranges.stop]), strict=True
            ):
                mine.append(range(*edge))
    return [_joined(ranges) for ranges in result]


def held(ranges: Sequence[range]) -> int:
    """Return the number of elements in ``ranges``."""
    return sum(len(positions) for positions in ranges)


def _checked(placement: Placement, servers: int) -> list[float]:
    """Return the shares, normalized to sum to 1; raise SpecError for wrong ones."""
    if isinstance(placement, str):
        raise SpecError.at(
            "placement",
            "must be 'even', 'hash', or a share for each server such as [0.667, 0.167, 0.166]",
            placement,
        )
    shares = [float(share) for share in placement]
    if len(shares) != servers:
        why = f"{len(shares)} shares for {servers} servers; give one each"
        raise SpecError.at("placement", why, shares)
    if min(shares) < 0 or abs(sum(shares) - 1) > OFF_BY:
        raise SpecError.at(
            "placement",
            f"shares must be 0 or more and sum to 1; these sum to {sum(shares):g}",
            shares,
        )
    return [share / sum(shares) for share in shares]


def _hashed(elements: int, servers: Sequence[int]) -> list[list[range]]:
    """Return the ranges of each server under consistent hashing, by the servers' numbers."""
    ring = sorted(
        (_point(f"server {server} point {number}"), at)
        for at, server in enumerate(servers)
        for number in range(POINTS)
    )
    points = [point for point, _ in ring]
    placed: list[list[range]] = [[] for _ in servers]
    for start in range(0, elements, BLOCK):
        after = bisect_left(points, _point(f"block {start // BLOCK}")) % len(ring)
        placed[ring[after][1]].append(range(start, min(start + BLOCK, elements)))
    return [_joined(ranges) for ranges in placed]


def _joined(ranges: Sequence[range]) -> list[range]:
    """Return the same elements as few ascending ranges."""
    result: list[range] = []
    for one in sorted(ranges, key=lambda positions: positions.start):
        if result and result[-1].stop == one.start:
            result[-1] = range(result[-1].start, one.stop)
        elif len(one):
            result.append(one)
    return result


def _point(text: str) -> int:
    """Return the point of ``text`` on the ring: the same in every process, unlike hash()."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def check_shares(shares: Sequence[float], servers: int) -> None:
    """Raise SpecError unless there is a share for each server, and they are 1 together."""
    if len(shares) != servers:
        why = f"gives {len(shares)} shares for servers = {servers}"
        raise SpecError.at("placement", why, list(shares))
    if min(shares) < 0 or abs(sum(shares) - 1) > 0.01:
        raise SpecError.at("placement", "shares are 0 or more, and 1 together", list(shares))
