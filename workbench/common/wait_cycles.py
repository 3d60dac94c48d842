"""Ranks of which each waits for the next, and the last for the first: a deadlock's core."""

from __future__ import annotations

from collections.abc import Mapping


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
