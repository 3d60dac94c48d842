"""Times against sizes as a table: which is fastest where, and how far predictions miss."""

from __future__ import annotations

import math

import numpy as np
import polars as pl

SCHEMA = pl.Schema(
    {
        "algorithm": pl.String(),
        "ranks": pl.Int64(),
        "bytes": pl.Int64(),
        "predicted": pl.Float64(),
        "measured": pl.Float64(),
    }
)
FINE = 32  # sizes looked at between one and twice it, for where two lines cross


def fastest(table: pl.DataFrame, kind: str) -> list[tuple[str, int]]:
    """Return what ``Crossing.fastest`` does. Lines are straight between sizes, as drawn."""
    known = table.filter(pl.col(kind).is_not_null() & pl.col(kind).is_not_nan())
    lines = {
        part["algorithm"][0]: (np.log2(part["bytes"].to_numpy()), np.log2(part[kind].to_numpy()))
        for part in known.partition_by("algorithm", maintain_order=True)
    }
    if not lines:
        return []
    end = min(float(x[-1]) for x, _ in lines.values())
    start = min(float(x[0]) for x, _ in lines.values())
    xs = np.append(np.arange(start, end, 1 / FINE), end)
    each = {name: np.interp(xs, x, y) for name, (x, y) in lines.items()}
    result: list[tuple[str, int]] = []
    for at, x in enumerate(xs):
        name = min(each, key=lambda one: each[one][at])
        if result and result[-1][0] == name:
            result.pop()
        result.append((name, round(2**x)))
    return [*result[:-1], (result[-1][0], 0)]


def miss(table: pl.DataFrame, least: int = 0) -> float:
    """Return what ``Crossing.miss`` does; NaN if nothing is measured."""
    p = pl.col
    known = table.filter(p("measured").is_not_null() & p("predicted").is_not_nan())
    known = known.filter(p("bytes") >= least)
    if not known.height:
        return math.nan
    off = known["predicted"].to_numpy() / known["measured"].to_numpy() - 1
    return float(np.sqrt(np.mean(off**2)))
