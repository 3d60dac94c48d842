"""The words by which a rank names another one that is late: see runs/quorum.py.

LATE    the moment in ms | 10 bits of the generation | 10 bits: the rank that is late
LAG     40 bits: bytes of such a collective | 13 bits: messages of that rank | 10 bits: the rank
"""

from __future__ import annotations

import time
from typing import NamedTuple


def late_word(rank: int, generation: int) -> int:
    """Return the word that says that ``rank`` is late in a generation, now."""
    return (time.monotonic_ns() // 1_000_000) << 20 | (generation & 1023) << 10 | rank


def late_of(word: int, generation: int, seconds: float) -> int | None:
    """Return which rank is late by that word; None: no rank in this generation, or it was said
    longer than ``seconds`` ago.
    """
    old = time.monotonic_ns() // 1_000_000 - (word >> 20) > seconds * 1000
    return None if not word or old or (word >> 10 & 1023) != generation & 1023 else word & 1023


class Lag(NamedTuple):
    """A rank that is late: how many of its messages of a collective were waited for by then, and
    the bytes that one rank sends in such a collective.
    """

    rank: int
    messages: int
    nbytes: int


def lag_word(lag: Lag) -> int:
    """Return the word that says so."""
    return min(lag.nbytes, (1 << 40) - 1) << 23 | min(lag.messages, 8191) << 10 | lag.rank


def lag_of(word: int) -> Lag | None:
    """Return what the word says; None where it is 0."""
    return Lag(word & 1023, word >> 10 & 8191, word >> 23) if word else None
