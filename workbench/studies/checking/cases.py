"""One case of a check: the input and the expected result of every rank.

Inputs follow from the case alone, so that ranks and driver compute them without a message. Floats
are random. Integers identify the rank that they come from. In operations that add, each element of
rank r is ``base ** r``: the digits of a sum count how often each rank's contribution was added. In
operations that move data, every element is unique. In rendezvous mode the digits are in reverse
order: a missing contribution is missing in both modes, while rounding loses the last digits of
both.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.common.units import counted
from workbench.formulas import WITH_ROOT

Array = npt.NDArray[Any]
ADDING = ("all_reduce", "reduce", "reduce_scatter")
DTYPES = ("float32", "float64", "int64", "int32", "float16")
EAGER, RENDEZVOUS = "eager", "rendezvous"
OWNER = 1 << 40  # in operations that move data, element i of rank r is r·OWNER + i
MODES = {
    EAGER: "where a send may return before it is received",
    RENDEZVOUS: "where a send returns only when it is received",
}


@dataclass(frozen=True)
class Case:
    """One call of the operation on every rank.

    ``elements`` counts the whole tensor, or one rank's share of it in gather, scatter, all_gather,
    reduce_scatter and all_to_all.
    """

    operation: str
    ranks: int
    elements: int
    dtype: str = "float32"
    reduce: str = "SUM"
    root: int = -1
    uneven: bool = False  # all_to_all: the number of elements differs from pair to pair
    mode: str = EAGER

    def to_dict(self) -> dict[str, Any]:
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
        """Whether the inputs identify the rank that they come from."""
        return self.dtype == "int64" and self.reduce == "SUM" and self.ranks <= 20

    @property
    def base(self) -> int:
        """The base of the digits that count how often each rank's contribution was added."""
        return int(2 ** (62 // self.ranks))

    @property
    def whole(self) -> int:
        """Elements of the operation's whole tensor; the longest where the ranks' lengths differ."""
        if self.operation in ("all_reduce", "broadcast", "reduce"):
            return self.elements
        if self.uneven:
            return int(pair_lengths(self).sum(axis=1).max())
        return 0 if self.operation == "barrier" else self.elements * self.ranks


def plan(
    operation: str, ranks: int, sizes: tuple[int, ...], dtypes: tuple[str, ...], reduces: bool
) -> list[Case]:
    """Return the cases for this number of ranks, from small to large, with 0 elements last.

    Each case runs in both modes. ``reduces``: the function takes ``reduce``, so MAX is tried too.
    """
    first = Case(operation, ranks, 0)
    if operation == "barrier":
        return [first] * 3
    cases: list[Case] = []
    for number, elements in enumerate(sorted(sizes, key=lambda elements: (not elements, elements))):
        for dtype in dtypes:
            case = replace(first, elements=elements, dtype=dtype)
            if operation in WITH_ROOT:
                case = replace(case, root=number % ranks)
            if operation == "all_to_all":
                case = replace(case, uneven=number % 2 == 1)
            cases.append(case)
    if reduces and cases:
        cases.append(replace(cases[-1], reduce="MAX"))
    return cases


def default_sizes(ranks: int) -> tuple[int, ...]:
    """Return 0, 1, sizes near the number of ranks, and sizes that few numbers of ranks divide.

    The last one needs more slots than a mailbox has.
    """
    return tuple(sorted({0, 1, 2, max(ranks - 1, 0), ranks, ranks + 1, 500, 1000, 4097}))


def digits(case: Case) -> npt.NDArray[np.int64]:
    """Return the digit of a tagged sum that counts each rank's contribution."""
    places = np.arange(case.ranks)
    return places if case.mode == EAGER else places[::-1]


def summands(case: Case, values: Array) -> npt.NDArray[np.int64]:
    """Count how often each rank's contribution (column) is in each element (row) of a sum."""
    return np.asarray(values[:, None] // case.base ** digits(case) % case.base, np.int64)


def pair_lengths(case: Case) -> npt.NDArray[np.int64]:
    """Return the elements that all_to_all moves from each rank (row) to each rank (column)."""
    source, target = np.indices((case.ranks, case.ranks))
    if not case.uneven:
        return np.full_like(source, case.elements)
    return np.asarray((case.elements + source + 2 * target) % (case.elements + 2), np.int64)


def rank_input(case: Case, rank: int) -> Array | None:
    """Return the input of a rank; None if it contributes nothing."""
    if case.operation == "barrier" or (case.operation == "scatter" and rank != case.root):
        return None
    n = case.whole if case.operation in ("reduce_scatter", "scatter") else case.elements
    if case.operation == "all_to_all":
        n = int(pair_lengths(case)[rank].sum())
    dtype = np.dtype(case.dtype)
    if case.tagged:
        if case.adds:
            return np.full(n, case.base ** int(digits(case)[rank]), dtype)
        return np.asarray(rank * OWNER + np.arange(n), dtype)
    random = np.random.default_rng([rank, case.elements, case.ranks])
    if dtype.kind == "i":
        return random.integers(-1000, 1000, n).astype(dtype)
    return random.standard_normal(n).astype(dtype)


def output_length(case: Case, rank: int) -> int | None:
    """Return the length of a rank's output tensor; None if it works in place or has no output."""
    if case.operation in ("all_reduce", "broadcast", "reduce", "barrier"):
        return None
    if case.operation == "gather":
        return case.whole if rank == case.root else None
    if case.operation == "all_to_all":
        return int(pair_lengths(case)[:, rank].sum())
    return case.whole if case.operation == "all_gather" else case.elements


@lru_cache(maxsize=1)
def inputs(case: Case) -> list[Array]:
    """Return the inputs of all ranks that contribute, in the order of ranks."""
    all_inputs = [rank_input(case, rank) for rank in range(case.ranks)]
    return [x for x in all_inputs if x is not None]


def expected(case: Case, rank: int) -> Array | None:
    """Return the exact result of a rank; None if its content does not matter."""
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
            ends = np.cumsum(pair_lengths(case), axis=1)
            return np.concatenate(
                [
                    x[ends[s][rank] - pair_lengths(case)[s][rank] : ends[s][rank]]
                    for s, x in enumerate(xs)
                ]
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
