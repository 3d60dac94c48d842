"""The ranks of a process group, written among a trace's names: "ranks of group 2: 0-3,5".

A group is made once, and no row tells which ranks are in it; a name costs a few bytes, once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_NAME = re.compile(r"ranks of group (.+): ([0-9,-]+)", re.DOTALL)
_MOST_BYTES = 250  # of a name
_MOST_LISTED = 16  # ranks, in a sentence
MOST_RANKS = 1 << 16


def members_name(group: str, ranks: Iterable[int]) -> str:
    """Return the name that tells the ranks of ``group``; "" where they do not fit into one."""
    stretches: list[list[int]] = []
    for rank in ranks:
        if stretches and rank == stretches[-1][-1] + 1:
            stretches[-1][1:] = [rank]
        else:
            stretches.append([rank])
    text = f"ranks of group {group}: {','.join('-'.join(map(str, one)) for one in stretches)}"
    return text if len(text.encode()) <= _MOST_BYTES else ""


def group_words(ranks: Sequence[int]) -> str:
    """Return what a group prints as: "group of ranks 1, 2, 3: group rank 0 is global rank 1"."""
    names = [*map(str, ranks)]
    if len(names) > _MOST_LISTED:
        names[3:-1] = ["..."]
    words = f"group of rank{'s' * (len(ranks) != 1)} {', '.join(names)}"
    other = next(((at, rank) for at, rank in enumerate(ranks) if at != rank), None)
    return f"{words}: group rank {other[0]} is global rank {other[1]}" if other else words


def members_of(name: str) -> tuple[str, list[int]] | None:
    """Return the group and its ranks, of a name that tells them; None of any other."""
    if not (match := _NAME.fullmatch(name)):
        return None
    ranks: list[int] = []
    for stretch in match[2].split(","):
        first, _, last = stretch.partition("-")
        try:
            one, end = int(first), int(last or first)
        except ValueError:
            return None
        if end - one >= MOST_RANKS or len(ranks) > MOST_RANKS:
            return None
        ranks += range(one, end + 1)
    return match[1], ranks
