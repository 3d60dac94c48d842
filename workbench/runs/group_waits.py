"""Waits in the groups of an attached job that runs, from the status of its lanes.

A stack says that a rank is in an all_reduce, and not of which group. The trace folder of an
attached job says both, and the ranks of each group: a member that is not in the call is waited for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from workbench.recording.events import now
from workbench.runs.running_job import RankProcess
from workbench.store.event_store import Store
from workbench.store.trace_follower import Follower

LONG_NS = 500_000_000  # a rank that has been in the same for so long waits


@dataclass(frozen=True)
class GroupWait:
    """A rank that waits in a call of the group of these ``ranks`` for ``peers``."""

    rank: int
    peers: tuple[int, ...]
    ranks: tuple[int, ...]


def group_waits(processes: Sequence[RankProcess]) -> dict[int, GroupWait]:
    """Return the waits of these ranks, by rank; none of a job that records nothing here."""
    folders = {process.trace for process in processes}
    if len(folders) != 1 or not (folder := Path(*folders)).is_absolute():
        return {}
    store = Store()
    follower = Follower(store, folder)
    try:
        follower.poll()
        groups = {name: tuple(of) for name, of in json.loads(store.metadata["groups"]).items()}
        pids = {process.rank: process.pid for process in processes}
        ours = [rank for rank, one in follower.ranks.items() if one.source.pid == pids.get(rank)]
        everyone = tuple(range(max((one.ranks for one in processes), default=0)))
        stands = pl.col("since_ns") < now() - LONG_NS
        rows = store.now.filter(pl.col("rank").is_in(ours), stands)
        return waits_in(rows, groups, everyone)
    finally:
        follower.stop()


def waits_in(
    lanes: pl.DataFrame, groups: Mapping[str, tuple[int, ...]], everyone: tuple[int, ...]
) -> dict[int, GroupWait]:
    """Return the waits by what ``lanes`` are in (``Store.now``).

    Of a group that ``groups`` do not have all ranks are members: ``everyone``.
    """
    texts = [pl.col(name).cast(pl.String) for name in ("kind", "group", "collective")]
    rows = lanes.select("rank", "peer", "op", *texts).filter(
        pl.col("kind").is_in(["wait", "collective"]), pl.col("op") >= 0
    )
    inside: dict[tuple[str, int], set[int]] = {}
    for rank, _, op, _, group, _ in rows.iter_rows():
        inside.setdefault((group, op), set()).add(rank)
    waits = {}
    for rank, peer, op, kind, group, _ in rows.iter_rows():
        members = groups.get(group, everyone)
        absent = tuple(one for one in members if one not in inside[group, op])
        peers = absent or ((peer,) if kind == "wait" and peer >= 0 else ())
        if peers:
            waits[rank] = GroupWait(rank, peers, members)
    return waits


def wait_words(waits: Mapping[int, GroupWait]) -> list[str]:
    """Return in a sentence which rank waits for which in which group, and whether in a circle."""
    if not waits:
        return []
    circle = _circle(waits)
    if not circle:
        return [
            f"Rank {one.rank} waits for rank{'s' * (len(one.peers) > 1)} "
            f"{', '.join(map(str, one.peers))} in a call of {[*one.ranks]}."
            for one in sorted(waits.values(), key=lambda one: one.rank)
        ]
    following = [*circle[1:], circle[0]]
    hops = [
        f"{rank} waits for {peer} in {[*waits[rank].ranks]}"
        for rank, peer in zip(circle, following, strict=True)
    ]
    return [f"Rank {', rank '.join(hops)}: a circle, and none of them can go on."]


def _circle(waits: Mapping[int, GroupWait]) -> list[int]:
    """Return ranks of which each waits for the next and the last for the first; [] if none do."""
    for first in sorted(waits):
        paths = [[first]]
        while paths:
            path = paths.pop()
            for peer in waits[path[-1]].peers:
                if peer == first:
                    return path
                if peer in waits and peer not in path:
                    paths.append([*path, peer])
    return []
