"""A still picture of a run that recovered: the phases of each recovery, in milliseconds.

``svg_recovery.py`` draws it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import polars as pl

from workbench.analysis.recovery import PHASES, Recovered, measure

NEWEST = 6  # recoveries that are drawn


@dataclass(frozen=True)
class Waterfall:
    """``rows``: of each recovery its name and the times in ms at which its phases ended, None where
    one was not reached; ``left_out``: older ones; ``received``: of each whether a rank took over
    from another what is trained.
    """

    rows: tuple[tuple[str, tuple[float | None, ...]], ...]
    words: str
    left_out: int = 0
    received: tuple[bool, ...] = ()


def select(rows: pl.LazyFrame, run_facts: dict[str, Any]) -> Waterfall | None:
    """Return the picture's data; None if no rank was lost. ``run_facts``: the store's."""
    if not (recoveries := run_facts.get("recoveries")):
        return None
    measured = measure(rows, {"recoveries": json.dumps(recoveries)})
    newest = measured.each[-NEWEST:]
    lasted = [one.first_ms for one in measured if one.first_ms is not None]
    words = f"Goodput {measured.goodput:.0%}"
    if lasted:
        words += f"; the run went on within {max(lasted):,.0f} ms"
    return Waterfall(
        tuple(
            (_name(one), tuple(getattr(one, f"{phase}_ms") for phase in PHASES)) for one in newest
        ),
        f"{words}.",
        len(measured) - len(newest),
        tuple(one.bytes_received > 0 for one in newest),
    )


def _name(one: Recovered) -> str:
    ranks, what = (one.lost, "left" if one.planned else "lost")
    ranks, what = (ranks, what) if ranks else (one.joined, "joined")
    if not ranks:
        return f"no rank lost in iteration {one.failed_in + 1}"
    listed = ", ".join(map(str, ranks[:3])) + (" …" if len(ranks) > 3 else "")
    return f"rank{'s' * (len(ranks) > 1)} {listed} {what} in iteration {one.failed_in + 1}"
