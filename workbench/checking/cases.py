"""One case of a check: what goes in on every rank, and what must come out.

Inputs follow from the case alone, so that ranks and driver know them without a message. Floats are
random. Integers say whose they are: where parts are added, rank r's are all ``base ** r``, so that
the digits of a sum are how many times each rank's part is in; where they are handed on, each is a
number of its own.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.formulas import WITH_ROOT
from workbench.units import counted

Array = npt.NDArray[Any]
ADDING = ("all_reduce", "reduce", "reduce_scatter")
DTYPES = ("float32", "float64", "int64", "int32", "float16")
EAGER, RENDEZVOUS = "eager", "rendezvous"
OWNER = 1 << 40  # what rank r hands on as its i-th element: r·OWNER + i
MODES = {
    EAGER: "where a send may return before it is received",
    RENDEZVOUS: "where a send returns only when it is received",
}


@dataclass(frozen=True)
class Case:
    """``elements``: of the whole tensor; of one rank's part where parts are put together or taken
    apart (gather, scatter, all_gather, reduce_scatter, all_to_all)."""

    operation: str
    ranks: int
    elements: int
    dtype: str = "float32"
    reduce: str = "SUM"
    root: int = -1
    uneven: bool = False  # all_to_all: each pair has a number of elements of its own
    mode: str = EAGER

    def told(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def words(self) -> str:
        """ "4 ranks, 1,000 float32, root 0"."""
        parts = [counted(self.ranks, "rank")]
        if self.operation != "barrier":
            parts.append(f"{self.elements:,} {self.dtype}")
        if self.reduce != "SUM":
            parts.append(self.reduce)
        if self.root >= 0:
            parts.append(f"root {self.root}")
        if self.uneven:
            parts.append("uneven")
        return ", ".join(parts)

    @property
    def adds(self) -> bool:
        return self.operation in ADDING

    @property
    def tagged(self) -> bool:
        """Do the inputs say whose they are?"""
        return self.dtype == "int64" and self.reduce == "SUM" and self.ranks <= 20

    @property
    def base(self) -> int:
        """Of the digits that count how often each rank's part is in."""
        return int(2 ** (62 // self.ranks))

    @property
    def whole(self) -> int:
        """Elements of the operation's whole tensor; where ranks have several, of the longest."""
        if self.operation in ("all_reduce", "broadcast", "reduce"):
            return self.elements
        if self.uneven:
            return int(pairs(self).sum(axis=1).max())
        return 0 if self.operation == "barrier" else self.elements * self.ranks


def plan(
    operation: str, ranks: int, sizes: tuple[int, ...], dtypes: tuple[str, ...], reduces: bool
) -> list[Case]:
    """The cases for so many ranks, the smallest first, nothing last; each is run in both modes.

    ``reduces``: the function is told how to combine, so that MAX is asked too.
    """
    first = Case(operation, ranks, 0)
    if operation == "barrier":
        return [first] * 3
    found: list[Case] = []
    for number, elements in enumerate(sorted(sizes, key=lambda elements: (not elements, elements))):
        for dtype in dtypes:
            case = replace(first, elements=elements, dtype=dtype)
            if operation in WITH_ROOT:
                case = replace(case, root=number % ranks)
            if operation == "all_to_all":
                case = replace(case, uneven=number % 2 == 1)
            found.append(case)
    if reduces and found:
        found.append(replace(found[-1], reduce="MAX"))
    return found


def default_sizes(ranks: int) -> tuple[int, ...]:
    """None, one, about as many as there are ranks, and some that no number of ranks divides; the
    last takes more slots than a mailbox has."""
    return tuple(sorted({0, 1, 2, max(ranks - 1, 0), ranks, ranks + 1, 500, 1000, 4097}))


def pairs(case: Case) -> npt.NDArray[np.int64]:
    """all_to_all: elements from each rank (row) to each (column)."""
    source, target = np.indices((case.ranks, case.ranks))
    if not case.uneven:
        return np.full_like(source, case.elements)
    return np.asarray((case.elements + source + 2 * target) % (case.elements + 2), np.int64)


def given(case: Case, rank: int) -> Array | None:
    """What goes in on a rank; None where it has nothing to give."""
    if case.operation == "barrier" or (case.operation == "scatter" and rank != case.root):
        return None
    n = case.whole if case.operation in ("reduce_scatter", "scatter") else case.elements
    if case.operation == "all_to_all":
        n = int(pairs(case)[rank].sum())
    dtype = np.dtype(case.dtype)
    if case.tagged:
        if case.adds:
            return np.full(n, case.base**rank, dtype)
        return np.asarray(rank * OWNER + np.arange(n), dtype)
    random = np.random.default_rng([rank, case.elements, case.ranks])
    if dtype.kind == "i":
        return random.integers(-1000, 1000, n).astype(dtype)
    return random.standard_normal(n).astype(dtype)


def room(case: Case, rank: int) -> int | None:
    """Elements of what is filled on a rank; None where that is what went in, or nothing is."""
    if case.operation in ("all_reduce", "broadcast", "reduce", "barrier"):
        return None
    if case.operation == "gather":
        return case.whole if rank == case.root else None
    if case.operation == "all_to_all":
        return int(pairs(case)[:, rank].sum())
    return case.whole if case.operation == "all_gather" else case.elements


@lru_cache(maxsize=1)
def inputs(case: Case) -> list[Array]:
    """What goes in on all ranks that have something to give, in their order."""
    every = [given(case, rank) for rank in range(case.ranks)]
    return [x for x in every if x is not None]


def expected(case: Case, rank: int) -> Array | None:
    """What a rank must hold at the end, but for rounding; None where it does not matter."""
    xs = inputs(case)
    match case.operation:
        case "all_reduce":
            return _combined(case)
        case "reduce":
            return _combined(case) if rank == case.root else xs[rank]
        case "reduce_scatter":
            return _part(_combined(case), case, rank)
        case "broadcast":
            return xs[case.root]
        case "gather":
            return np.concatenate(xs) if rank == case.root else None
        case "all_gather":
            return np.concatenate(xs)
        case "scatter":
            return _part(xs[0], case, rank)
        case "all_to_all":
            ends = np.cumsum(pairs(case), axis=1)
            return np.concatenate(
                [x[ends[s][rank] - pairs(case)[s][rank] : ends[s][rank]] for s, x in enumerate(xs)]
            )
    return None


def _part(x: Array, case: Case, rank: int) -> Array:
    return x[rank * case.elements : (rank + 1) * case.elements]


@lru_cache(maxsize=1)
def _combined(case: Case) -> Array:
    xs = inputs(case)
    if case.reduce == "MAX":
        return np.asarray(np.max(xs, axis=0))
    wide = np.longdouble if case.dtype.startswith("float") else np.dtype(case.dtype)
    return np.asarray(np.sum(xs, axis=0, dtype=wide)).astype(case.dtype)
