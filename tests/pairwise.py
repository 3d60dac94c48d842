"""Samples of a product of factors: every two values meet at least once, or every value occurs.

``make test-all`` takes the first sample, or the whole product; ``make test`` the second one of it.
Greedy, as in AETG (Cohen et al., "The AETG system", IEEE TSE 23(7), 1997), and always the same: the
order of the factors and of their values decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any

import pytest

Case = dict[str, Any]
ParameterSet = type(pytest.param())
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


def every_value(cases: Sequence[Case]) -> list[Case]:
    """Return a few of these cases in which every value occurs that occurs in any of them.

    Among those that bring as many new values, the one that brings the most new pairs.
    """
    values = [frozenset((name, repr(value)) for name, value in case.items()) for case in cases]
    pairs = [frozenset(combinations(sorted(each), 2)) for each in values]
    missing, apart, chosen = set[tuple[str, str]]().union(*values), set().union(*pairs), []
    while missing:
        gain = [(len(a & missing), len(b & apart)) for a, b in zip(values, pairs, strict=True)]
        best = gain.index(max(gain))
        missing, apart = missing - values[best], apart - pairs[best]
        chosen.append(cases[best])
    return chosen


def sampled(cases: Sequence[Case], *like: Case) -> list[Any]:
    """Return the cases as a test's parameters: ``make test`` runs those of `every_value`, or the
    first case that has the values of each of ``like``: chosen to be hard, for few tell much.
    """
    chosen = [_first_like(cases, values) for values in like] or every_value(cases)
    return [
        case if case in chosen else pytest.param(case, marks=pytest.mark.full) for case in cases
    ]


def _first_like(cases: Sequence[Case], values: Case) -> Case:
    match = next((case for case in cases if values.items() <= case.items()), None)
    assert match is not None, f"no case has {values}"
    return match


def first(count: int, cases: Iterable[Any]) -> list[Any]:
    """Return the cases as a test's parameters: ``make test`` runs the first of them only."""
    every = [case if isinstance(case, ParameterSet) else _param(case) for case in cases]
    rest = [pytest.param(*case.values, marks=[*case.marks, pytest.mark.full]) for case in every]
    return [case if i < count else rest[i] for i, case in enumerate(every)]


def _param(case: Any) -> Any:
    return pytest.param(*case) if isinstance(case, tuple) else pytest.param(case)


def _all_pairs(factors: Mapping[str, Sequence[Any]]) -> Iterator[Pair]:
    for a, b in combinations(factors, 2):
        for i, j in product(range(len(factors[a])), range(len(factors[b]))):
            yield frozenset({(a, i), (b, j)})


def _covers(chosen: dict[str, int], missing: set[Pair]) -> int:
    return sum(frozenset(pair) in missing for pair in combinations(chosen.items(), 2))
