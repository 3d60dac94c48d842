"""A sample of cases in which every two values of different factors meet at least once.

Greedy, as in AETG (Cohen et al., "The AETG system", IEEE TSE 23(7), 1997), and always the same: the
order of the factors and of their values decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any

Case = dict[str, Any]
Pair = frozenset[tuple[str, int]]  # of (factor, number of the value)


def named(value: Any) -> str:
    """A value in a test's name: the same in every process."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))


def full(factors: Mapping[str, Sequence[Any]]) -> list[Case]:
    """Every combination."""
    return [dict(zip(factors, values, strict=True)) for values in product(*factors.values())]


def pairwise(factors: Mapping[str, Sequence[Any]]) -> list[Case]:
    """A few of them that cover all pairs."""
    missing = set(_all_pairs(factors))
    cases = []
    while missing:
        chosen: dict[str, int] = dict(min(missing, key=sorted))
        for factor, values in factors.items():
            if factor not in chosen:
                gain = [_covers({**chosen, factor: i}, missing) for i in range(len(values))]
                chosen[factor] = gain.index(max(gain))
        missing -= {frozenset(pair) for pair in combinations(chosen.items(), 2)}
        cases.append({factor: values[chosen[factor]] for factor, values in factors.items()})
    return cases


def _all_pairs(factors: Mapping[str, Sequence[Any]]) -> Iterator[Pair]:
    for a, b in combinations(factors, 2):
        for i, j in product(range(len(factors[a])), range(len(factors[b]))):
            yield frozenset({(a, i), (b, j)})


def _covers(chosen: dict[str, int], missing: set[Pair]) -> int:
    return sum(frozenset(pair) in missing for pair in combinations(chosen.items(), 2))
