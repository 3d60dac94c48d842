"""How far two trainings are apart: all parameters, in units of float32's spacing and as a share of
the way that training went.

A ulp is the distance of a float32 number to the next one. It is taken at the value of the
sequential parameter, also of float64 runs, so that both stand on one scale; a value below a 1024th
of the largest of its tensor counts as that: next to zero float32 has numbers finer than any sum.
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
    """Of one training's parameters from the sequential ones, after the same updates."""

    ulps_max: float
    ulps_median: float
    share: float  # |θ - θ_sequential| as a part of |θ_sequential - θ_initial|; NaN if that is 0
    values: int  # how many parameters were compared


def distance(
    found: Mapping[str, Any], reference: Mapping[str, Any], initial: Mapping[str, Any]
) -> Distance:
    """Over all tensors of ``initial`` (name -> tensor). Raises ValueError where names differ."""
    missing = [name for name in initial if name not in found]
    if missing:
        raise ValueError(f"its parameters lack {', '.join(missing)}")
    ulps, apart, way = [], 0.0, 0.0
    for name, before in initial.items():
        is_, should = (np.asarray(each[name], np.float64) for each in (found, reference))
        ulps.append((np.abs(is_ - should) / ulp(should)).ravel())
        apart += float(np.square(is_ - should).sum())
        way += float(np.square(should - np.asarray(before, np.float64)).sum())
    whole = np.concatenate(ulps) if ulps else np.zeros(1)
    share = (apart / way) ** 0.5 if way else float("nan")
    return Distance(float(whole.max()), float(np.median(whole)), share, whole.size)


def ulp(values: Numbers) -> Numbers:
    """The spacing of float32 at each value; see above for those next to zero."""
    size = np.abs(values)
    largest = size.max(initial=0.0)
    floor = max(float(largest) * NEAR_ZERO, float(np.finfo(np.float32).tiny))
    spacing: Numbers = np.spacing(np.maximum(size, floor).astype(np.float32)).astype(np.float64)
    return spacing


def apart(losses: Sequence[float], reference: Sequence[float]) -> Numbers:
    """|loss - sequential loss| of each iteration that both came to."""
    both = min(len(losses), len(reference))
    return np.abs(np.subtract(losses[:both], reference[:both], dtype=np.float64))
