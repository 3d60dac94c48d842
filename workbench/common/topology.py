"""Ranks in hosts, and hosts in larger groups: how many of each, as levels from inside outwards.

Levels (4, 2) are two hosts of four ranks, (2, 2, 2) two racks of two hosts of two; ranks are
numbered host by host. Two ranks differ at level 0 inside a host, at level 1 between hosts, and so
on: the outermost level at which their places differ. No levels, (), say nothing of hosts.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import accumulate, groupby
from math import prod
from operator import mul

Levels = tuple[int, ...]


def level(levels: Sequence[int], a: int, b: int) -> int:
    """Return the outermost level at which two ranks differ; 0 in one host, or if not known."""
    widths = accumulate(levels, mul, initial=1)
    apart = [
        at
        for at, (width, p) in enumerate(zip(widths, levels, strict=False))
        if a // width % p != b // width % p
    ]
    return apart[-1] if apart else 0


def among(levels: Sequence[int], ranks: Sequence[int]) -> Levels:
    """Return the levels of a group of these ranks, numbered in this order.

    Uneven levels are left out: in a group with three ranks of one host and one of another, all
    ranks are at one level.
    """
    if not levels or prod(levels) <= max(ranks):
        return ()
    result, inside = list[int](), 1
    for width in accumulate(levels[:-1], mul):
        size = even_blocks([rank // width for rank in ranks])
        if size:
            result.append(size // inside)
            inside = size
    return (*result, len(ranks) // inside)


def of_hosts(hosts: Sequence[Hashable]) -> Levels:
    """Return the levels of ranks on these hosts, one host per rank: (4, 2).

    () where all are on one host, each has its own, or hosts have unequal numbers of ranks.
    """
    size = even_blocks(hosts)
    return (size, len(hosts) // size) if 1 < size < len(hosts) else ()


def of_hosts_in_turn(hosts: Sequence[Hashable]) -> Levels:
    """Return the levels of ranks that were dealt to their hosts in turn: rank r is on host r mod m
    of m, as Slurm's ``--distribution=cyclic`` and ``mpiexec --map-by node`` place it.

    () where they were not, all are on one host, or each has its own.
    """
    many = len({*hosts})
    size = len(hosts) // many
    dealt = [*hosts[:many]] * size == [*hosts]
    return (size, many) if dealt and 1 < many < len(hosts) else ()


def even_blocks(blocks: Sequence[Hashable]) -> int:
    """Return the length of each block of neighbors; 0 if lengths differ or blocks are split."""
    runs = [(block, len([*run])) for block, run in groupby(blocks)]
    sizes = {size for _, size in runs}
    return sizes.pop() if len(sizes) == 1 and len({block for block, _ in runs}) == len(runs) else 0


def resize(levels: Sequence[int], ranks: int) -> Levels:
    """Return the levels for another number of ranks; () if that is uneven.

    Inner levels are filled first; the outermost takes the rest.
    """
    result, rest = list[int](), ranks
    for p in levels[:-1]:
        size = min(p, rest)
        if rest % size:
            return ()
        result.append(size)
        rest //= size
    return (*result, rest)


def words(levels: Sequence[int]) -> str:
    """Return e.g. "2 hosts of 4 ranks"; "2 racks of 2 hosts of 2 ranks"; further out "groups"."""
    if not levels:
        return ""
    ranks = f"{levels[0]} rank{'s' * (levels[0] != 1)}"
    names = ["host", "rack"] + ["group"] * len(levels)
    outer = [f"{p} {name}{'s' * (p != 1)}" for p, name in zip(levels[1:], names, strict=False)]
    return " of ".join([*reversed(outer), ranks]) if outer else f"1 host of {ranks}"
