"""The distance of two trainings: all parameters, in ulps of float32, and relative to training's
way.

A ulp is the distance from one float32 number to the next. It is taken at the value of the
sequential parameter, for float64 runs too, so that both have one scale. A value below 1/1024 of the
largest in its tensor counts as that: near zero float32 is finer than any sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
NEAR_ZERO = 1 / 1024  # of the largest value of a tensor


@dataclass(frozen=True)
class Distance:
    """The distance of one training's parameters from the sequential ones, after equal updates."""

    ulps_max: float
    ulps_median: float
    share: float  # |θ - θ_sequential| as a part of |θ_sequential - θ_initial|; NaN if that is 0
    values: int  # how many parameters were compared


def distance(
    parameters: Mapping[str, Any], reference: Mapping[str, Any], initial: Mapping[str, Any]
) -> Distance:
    """Return the distance over all tensors of ``initial`` (name -> tensor).

    Raises ValueError if names differ.
    """
    missing = [name for name in initial if name not in parameters]
    if missing:
        raise ValueError(f"its parameters lack {', '.join(missing)}")
    ulps, apart, way = [], 0.0, 0.0
    for name, before in initial.items():
        is_, should = (np.asarray(each[name], np.float64) for each in (parameters, reference))
        ulps.append((np.abs(is_ - should) / ulp(should)).ravel())
        apart += float(np.square(is_ - should).sum())
        way += float(np.square(should - np.asarray(before, np.float64)).sum())
    whole = np.concatenate(ulps) if ulps else np.zeros(1)
    share = (apart / way) ** 0.5 if way else float("nan")
    return Distance(float(whole.max()), float(np.median(whole)), share, whole.size)


def ulp(values: Numbers) -> Numbers:
    """Return the spacing of float32 at each value; see the module's text for values near zero."""
    size = np.abs(values)
    largest = size.max(initial=0.0)
    floor = max(float(largest) * NEAR_ZERO, float(np.finfo(np.float32).tiny))
    spacing: Numbers = np.spacing(np.maximum(size, floor).astype(np.float32)).astype(np.float64)
    return spacing


def apart(losses: Sequence[float], reference: Sequence[float]) -> Numbers:
    """Return |loss - sequential loss| of each iteration that both have done."""
    both = min(len(losses), len(reference))
    return np.abs(np.subtract(losses[:both], reference[:both], dtype=np.float64))
