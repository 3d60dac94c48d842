"""Names in messages: all that there are, and those that may have been meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# What others call the fields of an experiment: no spelling is near enough to guess these by.
ELSEWHERE = {
    "world_size": "ranks",
    "workers": "ranks",
    "num_workers": "ranks",
    "nproc_per_node": "ranks",
    "epochs": "iterations",
    "steps": "iterations",
    "learning_rate": "lr",
    "algorithm": "all_reduce",
}


def nearest(word: str, names: Iterable[str]) -> str:
    """Return " (did you mean 'ring'?)" or "", for messages about unknown names."""
    by_lower = {name.lower(): name for name in names}
    close = difflib.get_close_matches(word.lower(), by_lower, n=2, cutoff=0.6)
    if (same := ELSEWHERE.get(word.lower())) in by_lower:
        close = [same]
    return f" (did you mean {' or '.join(repr(by_lower[one]) for one in close)}?)" if close else ""


def named_ranks(ranks: Iterable[int]) -> str:
    """Return "rank 2", or "ranks 0, 1 and 3"."""
    numbers = [*map(str, ranks)]
    return f"rank{'s' * (len(numbers) > 1)} {enumerated(numbers)}"


def enumerated(names: Iterable[str]) -> str:
    """Return "a", "a and b", or "a, b and c"."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
