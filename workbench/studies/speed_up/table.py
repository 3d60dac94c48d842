"""The findings of a study as a table: pure, from measured runs and measured ceilings.

seconds       of an iteration: the median over repeats; the first iteration, which warms up,
              is left out
rank_seconds  the same, all ranks added up: what the job costs
speed_up      samples per second, compared with the fewest ranks of the same line
ideal         as many times as there are more ranks
efficiency    speed_up / ideal
serial        the share of the work that does not get shorter, if that alone is to blame
              (Karp & Flatt, "Measuring Parallel Processor Performance", CACM 33(5), 1990)
amdahl        the speed-up if that share stays what it is at the second number of ranks
              (Amdahl, AFIPS 1967); of weak scaling none
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

SCHEMA = pl.Schema(
    {
        "series": pl.String(),
        "ranks": pl.Int64(),
        "threads": pl.Int64(),
        "batch_size": pl.Int64(),
        "repeats": pl.Int64(),
        "seconds": pl.Float64(),
        "rank_seconds": pl.Float64(),
        "samples_per_s": pl.Float64(),
        "speed_up": pl.Float64(),
        "speed_up_least": pl.Float64(),
        "speed_up_most": pl.Float64(),
        "ideal": pl.Float64(),
        "efficiency": pl.Float64(),
        "serial": pl.Float64(),
        "amdahl": pl.Float64(),
        "exposed_ms": pl.Float64(),
        "exposed_share": pl.Float64(),
        "wait_share": pl.Float64(),
        "core_wait_share": pl.Float64(),
        "compute_ceiling": pl.Float64(),
        "memory_ceiling": pl.Float64(),
    }
)


@dataclass(frozen=True)
class Measured:
    """One run that came to its end."""

    series: str
    ranks: int
    threads: int
    batch_size: int
    seconds: float  # of an iteration
    exposed_ms: float | None
    exposed_share: float | None
    wait_share: float | None  # of a step: for another rank
    core_wait_share: float | None  # of the ranks' time: ready to run, without a core


def table_of(
    runs: Sequence[Measured], ceilings: Mapping[str, Mapping[int, float]], *, weak: bool = False
) -> pl.DataFrame:
    """Return a row per series and number of ranks, with the columns above."""
    rows = []
    for series in dict.fromkeys(run.series for run in runs):
        of_series = [run for run in runs if run.series == series]
        counts = sorted({run.ranks for run in of_series})
        groups = {count: [run for run in of_series if run.ranks == count] for count in counts}
        base = counts[0]
        rates = {n: [run.batch_size / run.seconds for run in each] for n, each in groups.items()}
        alone = float(np.median(rates[base]))
        speed = {n: float(np.median(each)) / alone for n, each in rates.items()}
        shares = {n: serial(speed[n], n / base) for n in counts[1:]}
        fixed = shares[counts[1]] if len(counts) > 1 and not weak else None
        for count in counts:
            each, times = groups[count], count / base
            seconds = float(np.median([run.seconds for run in each]))
            rows.append(
                {
                    "series": series,
                    "ranks": count,
                    "threads": each[0].threads,
                    "batch_size": each[0].batch_size,
                    "repeats": len(each),
                    "seconds": seconds,
                    "rank_seconds": seconds * count,
                    "samples_per_s": float(np.median(rates[count])),
                    "speed_up": speed[count],
                    "speed_up_least": min(rates[count]) / alone,
                    "speed_up_most": max(rates[count]) / alone,
                    "ideal": times,
                    "efficiency": speed[count] / times,
                    "serial": shares.get(count),
                    "amdahl": None if fixed is None else amdahl(fixed, times),
                    "exposed_ms": _median(run.exposed_ms for run in each),
                    "exposed_share": _median(run.exposed_share for run in each),
                    "wait_share": _median(run.wait_share for run in each),
                    "core_wait_share": _median(run.core_wait_share for run in each),
                    "compute_ceiling": _ceiling(ceilings, "compute", base, count),
                    "memory_ceiling": _ceiling(ceilings, "copy", base, count),
                }
            )
    return pl.DataFrame(rows, schema=SCHEMA)


def serial(speed_up: float, times: float) -> float:
    """Return Karp and Flatt's serial fraction, with ``times`` as many ranks.

    It is below 0 if the speed-up is superlinear.
    """
    return (1 / speed_up - 1 / times) / (1 - 1 / times)


def amdahl(share: float, times: float) -> float:
    """Return the speed-up with ``times`` as many ranks if ``share`` of the work is serial."""
    share = min(max(share, 0.0), 1.0)
    return 1 / (share + (1 - share) / times)


def _median(values: Any) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def _ceiling(
    ceilings: Mapping[str, Mapping[int, float]], kind: str, base: int, count: int
) -> float | None:
    by_ranks = ceilings.get(kind, {})
    return by_ranks[count] / by_ranks[base] if base in by_ranks and count in by_ranks else None
