"""Ranks of which each waits for the next, and the last for the first: a deadlock's core."""

from __future__ import annotations

from collections.abc import Mapping


def circle(awaited: Mapping[int, int]) -> tuple[int, ...]:
    """Of the circles in ``awaited`` (rank -> the one that it waits for) that with the lowest rank,
    beginning with it; empty if every way ends at somebody who does not wait.
    """
    for first in sorted(awaited):
        path = [first]
        while (then := awaited.get(path[-1])) is not None and then not in path:
            path.append(then)
        if then == first:
            return tuple(path)
    return ()
