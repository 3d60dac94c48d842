"""Clocks of ranks that were recorded each by its own: set right by the messages between them.

No message ends before it began. Where two ranks' clocks say so, the receiver's times move later by
as little as makes it untrue, and with it every rank that received from it (a system of difference
constraints, by Bellman and Ford's relaxation).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def shifts(rows: Iterable[Mapping[str, Any]]) -> dict[int, int]:
    """Return by how many nanoseconds each rank's times are to move; {} where no message ends too
    early, or no shift could make all of them right.
    """
    begun, ended = dict[tuple[Any, ...], int](), dict[tuple[Any, ...], int]()
    for row in rows:
        here, peer, op = row["rank"], row.get("peer", -1), row.get("op", -1)
        if row["kind"] == "send":
            begun[row.get("group", ""), here, peer, op] = row["start_ns"]
        elif row["kind"] == "recv":
            ended[row.get("group", ""), peer, here, op] = row["end_ns"]
    least = dict[tuple[int, int], int]()  # sender, receiver -> later by this much at least
    for message in begun.keys() & ended.keys():
        _, sender, receiver, _ = message
        early = begun[message] - ended[message]
        least[sender, receiver] = max(least.get((sender, receiver), early), early)
    if max(least.values(), default=0) <= 0:
        return {}
    ranks = {rank for pair in least for rank in pair}
    result = dict.fromkeys(ranks, 0)
    for _ in ranks:
        before = dict(result)
        for (sender, receiver), early in least.items():
            result[receiver] = max(result[receiver], result[sender] + early)
        if result == before:
            return {rank: shift for rank, shift in result.items() if shift}
    return {}
