"""Ranks of which each waits for the next, and the last for the first: a deadlock's core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def circle(awaited: Mapping[int, int]) -> tuple[int, ...]:
    """Return the cycle in ``awaited`` (rank -> the rank that it waits for) with the lowest rank.

    It begins with that rank. It is empty if every chain ends at a rank that does not wait.
    """
    for first in sorted(awaited):
        path = [first]
        while (then := awaited.get(path[-1])) is not None and then not in path:
            path.append(then)
        if then == first:
            return tuple(path)
    return ()


def circle_words(around: Sequence[int]) -> str:
    """Return a circle in words: "rank 0 waits for rank 1, which waits for rank 0"."""
    others = ", which waits for ".join(f"rank {rank}" for rank in [*around[1:], around[0]])
    return f"rank {around[0]} waits for {others}"
