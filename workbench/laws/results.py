"""Laws of results: replicas, and how exact a sum is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from workbench.laws.violation import Violation


def replicas_identical(digests: Mapping[int, str]) -> list[Violation]:
    """Check that all replicas are equal, bit for bit. ``digests``: ``result.digests``."""
    common = max(sorted(set(digests.values())), key=list(digests.values()).count, default="")
    return [
        Violation(
            "replicas identical",
            f"rank {rank}'s parameters have digest {digest[:12]}, most ranks' have {common[:12]}",
            rank=rank,
        )
        for rank, digest in sorted(digests.items())
        if digest != common
    ]


def sum_error(result: Any, inputs: Sequence[Any]) -> float:
    """Return the worst |error| of an elementwise sum of n ``inputs`` as a share of (n-1)·u·Σ|xᵢ|.

    The ``result`` is within the bound if it is at most 1. u is half the distance from 1 to the next
    number: 2⁻²⁴ for float32, 2⁻⁵³ for float64, whose reference is a long double (float64 for the
    others). Integers must be exact: 0 or inf. Raises ValueError unless all are arrays or CPU
    tensors of one shape and dtype.
    """
    got, xs = np.asarray(result), [np.asarray(x) for x in inputs]
    if not xs or any(x.shape != got.shape or x.dtype != got.dtype for x in xs):
        shapes = ", ".join(f"{x.dtype}{list(x.shape)}" for x in xs) or "nothing"
        raise ValueError(f"a sum of {shapes} cannot be {got.dtype}{list(got.shape)}")
    if not np.issubdtype(got.dtype, np.floating):
        return 0.0 if np.array_equal(got, np.sum(xs, axis=0, dtype=got.dtype)) else float("inf")
    wide = np.longdouble if got.dtype == np.float64 else np.float64
    parts = np.stack([x.astype(wide) for x in xs])
    with np.errstate(invalid="ignore", over="ignore"):
        exact = parts.sum(axis=0)
        error = np.abs(got.astype(wide) - exact)
        bound = (len(xs) - 1) * wide(np.finfo(got.dtype).eps / 2) * np.abs(parts).sum(axis=0)
    same = (got == exact) | (np.isnan(got) & np.isnan(exact))
    usable = ~same & (bound > 0) & np.isfinite(bound) & np.isfinite(error)
    ratio = np.where(same, 0.0, np.inf)
    ratio[usable] = error[usable] / bound[usable]
    return float(ratio.max(initial=0.0))
