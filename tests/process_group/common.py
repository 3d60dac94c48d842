"""Helpers for tests of the process group: cases, references, bounds, small models.

Functions that begin with an underscore run on every rank, in processes of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

DTYPES = ("float32 float64 float16 bfloat16 uint8 int8 int16 int32 int64").split()
UNIT = {  # half the distance from 1 to the next number
    torch.float32: 2.0**-24,
    torch.float64: 2.0**-53,
    torch.float16: 2.0**-11,
    torch.bfloat16: 2.0**-8,
}
SLOT = 1024  # bytes; WORKBENCH_CHUNK in the tests that send several slots
OPS = ("SUM", "PRODUCT", "MAX", "MIN", "AVG")


def inputs(rank: int, elements: int, dtype: torch.dtype, op: str) -> torch.Tensor:
    """Return what a rank gives; every rank can make every other one's."""
    random = np.random.default_rng([rank, elements, len(op)])
    if dtype.is_floating_point:
        # Products stay in the range of float16.
        x = random.uniform(0.5, 1.5, elements) if op == "PRODUCT" else random.normal(size=elements)
        return torch.from_numpy(x).to(dtype)
    low, high = (1, 3) if op == "PRODUCT" else (0, 13)
    return torch.from_numpy(random.integers(low, high, elements)).to(dtype)


def reference(xs: list[torch.Tensor], op: str) -> tuple[np.ndarray, np.ndarray]:
    """The exact outcome and the sum of magnitudes, in integers or in long double."""
    wide = np.longdouble if xs[0].is_floating_point() else np.int64
    all_xs = np.stack(
        [x.double().numpy() if wide is np.longdouble else x.numpy() for x in xs]
    ).astype(wide)
    total, average = all_xs.sum(0), all_xs.sum(0) / len(xs)
    outcome = {
        "SUM": total,
        "AVG": average if wide is np.longdouble else np.trunc(average),
        "PRODUCT": all_xs.prod(0),
        "MAX": all_xs.max(0),
        "MIN": all_xs.min(0),
    }[op]
    return outcome, np.abs(all_xs).sum(0)


def bound(n: int, dtype: torch.dtype, op: str, outcome: np.ndarray, magnitudes: np.ndarray) -> Any:
    """LAWS.md for sums; n-1 roundings for a product; choices and integers are exact."""
    if not dtype.is_floating_point or op in ("MAX", "MIN"):
        return 0.0
    u = UNIT[dtype]
    if op == "PRODUCT":
        return 1.01 * (n - 1) * u * np.abs(outcome)
    law = (n - 1) * u * magnitudes
    return law if op == "SUM" else law / n + u * np.abs(outcome) * 1.01  # AVG rounds once more


def both(operation: Callable[[Any], Any]) -> None:
    """Do the same in our group and in a Gloo group; the outcomes must be equal, bit for bit."""
    ours, gloo = operation(None), operation(GLOO[0])
    for a, b in zip(ours, gloo, strict=True):
        if isinstance(a, torch.Tensor):
            a, b = (x.to_dense() if x.is_sparse else x for x in (a, b))
            assert a.dtype == b.dtype and torch.equal(a, b), (a, b)
        else:
            assert a == b


GLOO: list[Any] = []


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(12, 64),
        torch.nn.BatchNorm1d(64),
        torch.nn.Tanh(),
        torch.nn.Linear(64, 64),
        torch.nn.Tanh(),
        torch.nn.Linear(64, 4),
    )


class Branches(torch.nn.Module):
    """A parameter that some batches do not use."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = torch.nn.Linear(12, 4), torch.nn.Linear(12, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.a(x) if x[0, 0] > 0 else self.a(x) + self.b(x)


def batches(rank: int, count: int) -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(rank)
    return [torch.randn(6, 12, generator=random) for _ in range(count)]
