"""Calls of collectives: what each rank gives, and what it must end with.

What a rank gives is known to all, so that each can work out by itself what it must end with.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from tests.pairwise import full, pairwise
from workbench.collectives import OPERATIONS, algorithms

RANKS = tuple(range(1, 9))
SLOT = 1024  # bytes; most tensors take several
SIZES = ("0", "1", "2", "n - 1", "n", "n + 1", "1000", "1023", "4097")  # LAWS.md
DTYPES = ("float32", "float64", "int64", "bfloat16")
REDUCTIONS = ("SUM", "PRODUCT", "MAX", "MIN")
ROOTS = ("0", "1 % n", "n - 1")
UNIT = {"float32": 2.0**-24, "float64": 2.0**-53, "bfloat16": 2.0**-8}
REDUCING = ("all_reduce", "reduce", "reduce_scatter")
ROOTED = ("broadcast", "reduce", "gather", "scatter")
PARTED = ("gather", "scatter", "all_gather", "reduce_scatter")  # a size is that of a part
FILES = [(operation, name) for operation in OPERATIONS for name in algorithms(operation)]


class Case(NamedTuple):
    n: int
    elements: int  # of a part, where the operation has parts
    dtype: str
    reduce: str
    root: int

    def __str__(self) -> str:
        return (
            f"n={self.n} N={self.elements} {self.dtype} {self.reduce or 'no'} reduction, "
            f"root {self.root}"
        )


def cases(operation: str, every: bool = False) -> list[Case]:
    """The full product, or a sample in which every two values meet."""
    factors: dict[str, Any] = {"n": RANKS, "size": SIZES, "dtype": DTYPES}
    if operation == "barrier":
        factors = {"n": RANKS, "size": ("0",), "dtype": ("float32",)}
    if operation in REDUCING:
        factors["reduce"] = REDUCTIONS
    if operation in ROOTED:
        factors["root"] = ROOTS
    result = []
    for one in (full if every else pairwise)(factors):
        n = one["n"]
        elements, root = (eval(one.get(key, "-1"), {"n": n}) for key in ("size", "root"))
        result.append(Case(n, elements, one["dtype"], one.get("reduce", ""), root))
    return list(dict.fromkeys(result))


def large(operation: str, n: int) -> Case:
    """One of several slots."""
    return Case(
        n,
        0 if operation == "barrier" else 4097,
        "float32",
        "SUM" if operation in REDUCING else "",
        n - 1 if operation in ROOTED else -1,
    )


def gives(rank: int, elements: int, case: Case) -> torch.Tensor:
    """Return what a rank starts with."""
    random = np.random.default_rng([rank, elements, len(case.reduce)])
    if case.dtype == "int64":
        low, high = (1, 4) if case.reduce == "PRODUCT" else (-(2**40), 2**40)
        return torch.from_numpy(random.integers(low, high, elements))
    near_one = case.reduce == "PRODUCT"
    x = random.uniform(0.5, 1.5, elements) if near_one else random.normal(size=elements)
    return torch.from_numpy(x).to(getattr(torch, case.dtype))


def odd_numbers(rank: int, dtype: str) -> torch.Tensor:
    """Zeros of both signs, infinities and several NaN: equal to the eye, of different bits."""
    random = np.random.default_rng(rank)
    nan = np.uint32(0x7FC00000 + (rank + 1 << 16)).view(np.float32)  # of this rank's own
    chosen = random.choice(np.array([0.0, -0.0, np.inf, -np.inf, nan, -nan, 1], np.float32), 64)
    chosen[:32] = random.choice(np.array([0.0, -0.0], np.float32), 32)
    return torch.from_numpy(chosen).to(getattr(torch, dtype))


def combined(elements: int, case: Case) -> tuple[Any, Any]:
    """The exact outcome, and how far from it a right one may be (LAWS.md)."""
    exact = np.int64 if case.dtype == "int64" else np.longdouble
    inputs = [gives(r, elements, case) for r in range(case.n)]
    xs = np.stack([(x.double() if exact is np.longdouble else x).numpy() for x in inputs])
    xs = xs.astype(exact)
    outcome = {"SUM": xs.sum, "PRODUCT": xs.prod, "MAX": xs.max, "MIN": xs.min}[case.reduce](0)
    if case.dtype == "int64" or case.reduce in ("MAX", "MIN"):
        return outcome, 0.0
    size = np.abs(xs).sum(0) if case.reduce == "SUM" else 1.01 * np.abs(outcome)
    return outcome, (case.n - 1) * UNIT[case.dtype] * size


def shares(elements: int, n: int, me: int) -> tuple[list[int], list[int]]:
    """Return how many elements a rank gives to each, and gets from each: even if they divide,
    else rank r gives all that is over to rank (r + 1) mod n.
    """
    each, over = divmod(elements, n)
    table = [[each + over * (to == (r + 1) % n) for to in range(n)] for r in range(n)]
    return table[me], [row[me] for row in table]


def judge(operation: str, case: Case, me: int, result: torch.Tensor, what: str) -> None:
    """Assert that a rank ends with what it must end with."""
    n, N, root = case.n, case.elements, case.root
    match operation:
        case "all_reduce" | "reduce" | "reduce_scatter":
            if operation == "reduce" and me != root:
                return
            scattered = operation == "reduce_scatter"
            outcome, bound = combined(N * n if scattered else N, case)
            if scattered:
                outcome = outcome[me * N : (me + 1) * N]
                bound = bound[me * N : (me + 1) * N] if np.ndim(bound) else bound
            if case.dtype == "int64":
                assert (result.numpy() == outcome).all(), what
            else:
                error = np.abs(result.double().numpy().astype(np.longdouble) - outcome)
                assert (error <= bound).all(), f"{what}: off by {error.max()}"
        case "barrier":
            return
        case _:
            assert torch.equal(result, expected(operation, case, me)), what


def expected(operation: str, case: Case, me: int) -> torch.Tensor:
    n, N, root = case.n, case.elements, case.root
    match operation:
        case "broadcast":
            return gives(root, N, case)
        case "scatter":
            return gives(root, N * n, case)[me * N : (me + 1) * N]
        case "gather" if me != root:
            return torch.full((N * n,), 7, dtype=getattr(torch, case.dtype))  # untouched
        case "gather" | "all_gather":
            return torch.cat([gives(r, N, case) for r in range(n)])
    parts = []
    for r in range(n):
        sends, _ = shares(N, n, r)
        first = sum(sends[:me])
        parts.append(gives(r, N, case)[first : first + sends[me]])
    return torch.cat(parts)
