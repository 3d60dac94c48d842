"""Wrong elements of a rank's result: the first stretch, and what its values say of the cause."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.studies.checking.cases import Array, Case, rank_input, summands


@dataclass(frozen=True)
class Wrong:
    """The first wrong stretch of what a rank holds."""

    rank: int
    first: int
    last: int
    words: str  # the fault, as text
    lacks: tuple[int, ...] = ()  # ranks whose contribution is missing
    extra: tuple[tuple[int, int], ...] = ()  # rank, and how often its contribution was added
    rounded: str = ""  # the fault, as text, if rounding explains it


def first_wrong(case: Case, rank: int, got: Array, want: Array) -> Wrong:
    """Return the first run of elements that are wrong in the same way."""
    different = np.flatnonzero(got != want)
    if case.dtype.startswith("float") and case.adds:  # rounding errors are not faults
        different = np.flatnonzero(
            ~np.isclose(got, want, rtol=1e-2 if "16" in case.dtype else 1e-4)
        )
    first = int(different[0]) if len(different) else 0
    same = 1
    alike: Array = np.zeros((len(got), 1))
    if case.tagged:
        alike = summands(case, got) if case.adds else (got - want)[:, None]
    while (
        same < len(different)
        and different[same] == first + same
        and np.array_equal(alike[first + same], alike[first])
    ):
        same += 1
    last = first + same - 1
    value, right = got[first], want[first]
    name, one = _elements(first, last, len(got), case), first == last
    if case.tagged and case.adds:
        digits = [int(count) for count in alike[first]]
        missing = tuple(r for r, count in enumerate(digits) if count == 0)
        extra = tuple((r, count) for r, count in enumerate(digits) if count > 1)
        if missing or extra:
            rounded = _rounded(first, value, right) if _rounds(case, got, want) else ""
            words = f"{name} {_contribution_text(missing, extra, one)}"
            return Wrong(rank, first, last, words, missing, extra, rounded)
    if not case.adds and (held := _places(case, value)):
        due = _places(case, right)
        if not case.tagged:  # the rest of the run may be wrong in another way
            name, one = _elements(first, first, len(got), case), True
        return Wrong(rank, first, last, f"{name} {_misplacement(held, due, one)}")
    return Wrong(rank, first, last, f"element {first} is {value:g}, expected {right:g}")


def _rounds(case: Case, got: Array, want: Array) -> bool:
    """Return whether the error is as small as float32 rounding, or a small missing summand."""
    apart = np.abs(got.astype(np.float64) - want) / np.abs(want.astype(np.float64))
    return bool(np.max(apart) <= case.ranks * 2.0**-23)


def _rounded(first: int, value: Any, right: Any) -> str:
    return (
        f"element {first} is {int(value)}, expected {int(right)}: all contributions are in, but "
        "the last digits are lost, as in float32 sums. Add integers as integers"
    )


def _places(case: Case, value: Any) -> list[tuple[int, int]]:
    """Return the rank and index of each input element with this value."""
    all_inputs = [(rank, rank_input(case, rank)) for rank in range(case.ranks)]
    return [
        (rank, int(index))
        for rank, x in all_inputs
        if x is not None
        for index in np.flatnonzero(x == value)
    ]


def _misplacement(held: list[tuple[int, int]], due: list[tuple[int, int]], one: bool) -> str:
    """Return e.g. "hold rank 0's part where rank 1's belongs"; for one rank, name its elements."""
    s = "s" if one else ""
    owners, right = {rank for rank, _ in held}, {rank for rank, _ in due}
    if len(owners) == 1 and len(right) == 1 and owners != right:
        return f"hold{s} rank {held[0][0]}'s part where rank {due[0][0]}'s belongs"
    return (
        f"hold{s} rank {held[0][0]}'s element {held[0][1]} where rank {due[0][0]}'s element "
        f"{due[0][1]} belongs"
    )


def _elements(first: int, last: int, count: int, case: Case) -> str:
    """Return e.g. "elements 250 to 499 of 1,000 (chunk 1 of 4)"."""
    if first == last:
        name = f"element {first} of {count:,}"
    else:
        name = f"elements {first} to {last} of {count:,}"
    p = case.ranks
    if count >= p > 1:
        whole, extra = divmod(count, p)
        ends = [i * whole + min(i, extra) for i in range(p + 1)]
        if first in ends[:-1] and last + 1 in ends and last > first:
            a, b = ends.index(first), ends.index(last + 1) - 1
            name += f" (chunk {a} of {p})" if a == b else f" (chunks {a} to {b} of {p})"
    return name


def _contribution_text(
    missing: tuple[int, ...], extra: tuple[tuple[int, int], ...], one: bool
) -> str:
    words, s = [], "s" if one else ""
    if missing:
        words.append(
            f"lack{s} the part of rank{'s' * (len(missing) > 1)} {', '.join(map(str, missing))}"
        )
    if extra:
        words.append(
            f"hold{s} " + ", ".join(f"rank {rank}'s part {count} times" for rank, count in extra)
        )
    return " and ".join(words)
