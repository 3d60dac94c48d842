"""An algorithm as formulas: its messages, step by step, and its cost in α, β and γ.

n ranks, L bytes; α seconds a message, β seconds a byte sent, γ seconds a byte added. Then
T = a·α + b·β + g·γ, where a counts the messages, b the bytes sent and g the bytes added along the
longest path through the ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple


@dataclass(frozen=True)
class Cost:
    """The α-β-γ model of a link and its ranks."""

    alpha_s: float  # seconds a message
    beta_s_per_byte: float  # seconds a byte sent
    gamma_s_per_byte: float = 0.0  # seconds a byte added


class Terms(NamedTuple):
    """The factors of α, β and γ on the longest path."""

    messages: float
    sent: float  # bytes
    added: float  # bytes

    def seconds(self, cost: Cost) -> float:
        return (
            self.messages * cost.alpha_s
            + self.sent * cost.beta_s_per_byte
            + self.added * cost.gamma_s_per_byte
        )


class Transfer(NamedTuple):
    """One chunk of a message: what has step, source and target in common is one message."""

    step: int
    phase: str
    source: int  # places: with a root, they are counted from it
    target: int
    chunk: int
    adds: bool = False  # the target adds what it receives; otherwise it replaces


Schedule = Callable[[int], list[Transfer]]  # n >= 2 -> in the order of steps


def one_chunk(n: int, elements: int) -> list[int]:
    """Return the sizes of the chunks: one, as the tensor travels whole."""
    return [elements]


def chunk_sizes(elements: int, n: int) -> list[int]:
    """Return the elements of each of ``n`` chunks; ``elements`` mod ``n`` chunks get one more.

    Those are the first ones.
    """
    whole, extra = divmod(elements, n)
    return [whole + (chunk < extra) for chunk in range(n)]


def in_parts(n: int, elements: int) -> list[int]:
    """Return the sizes of the chunks: one per rank."""
    return chunk_sizes(elements, n)


@dataclass(frozen=True)
class Algorithm:
    """An algorithm as formulas. ``n`` ranks (>= 2); ``elements`` of the operation's whole tensor
    (>= 1): of a gather what the root ends with, of an all-to-all what one rank gives.
    """

    name: str
    steps: Callable[[int], int]
    sends: Callable[[int], list[int]]  # messages sent by each place
    sent: Callable[[int, int], list[int]]  # n, elements -> elements sent by each place
    terms: Callable[[int, float], Terms]  # n, nbytes -> a, b, g
    schedule: Schedule | None = None  # for ``plan``
    cut: Callable[[int, int], list[int]] = one_chunk  # n, elements -> of each chunk in the schedule
    adds_last: bool = False  # the additions wait until all messages have left
    is_counted: bool = False  # message by message: takes its time of many ranks
    way: str = ""  # which of the ways it goes that the name leaves open: a collective row's phase


def counted(
    name: str,
    schedule: Schedule,
    terms: Callable[[int, float], Terms],
    cut: Callable[[int, int], list[int]] = one_chunk,
) -> Algorithm:
    """Return an algorithm whose steps, messages and elements are counted in its schedule."""
    once = cache(schedule)

    def sends(n: int) -> list[int]:
        messages = Counter(
            source for _, source, _ in {(t.step, t.source, t.target) for t in once(n)}
        )
        return [messages[place] for place in range(n)]

    def sent(n: int, elements: int) -> list[int]:
        return elements_sent(once(n), n, cut(n, elements))

    def steps(n: int) -> int:
        return len({t.step for t in once(n)})

    return Algorithm(name, steps, sends, sent, terms, once, cut, is_counted=True)


def elements_sent(transfers: Sequence[Transfer], n: int, sizes: Sequence[int]) -> list[int]:
    """Return the elements that each place sends if the chunks have these ``sizes``."""
    sent = [0] * n
    for t in transfers:
        sent[t.source] += sizes[t.chunk]
    return sent
