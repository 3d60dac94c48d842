"""The findings of a crossing, in sentences."""

from __future__ import annotations

import math

import polars as pl

from workbench.choosing.choose import in_words
from workbench.choosing.costs import Costs
from workbench.studies.crossover.table import fastest, miss

LARGE = 64 << 10  # bytes: below, what the system does to a waiting process counts most


def sentences(table: pl.DataFrame, operation: str, ranks: int, costs: Costs) -> list[str]:
    """Describe the links, the fastest measured and predicted algorithms, and the error.

    ``table``: of a crossover.
    """
    links = "paced links" if costs.links.paced else "this machine's own links"
    lines = [f"{operation} on {ranks} ranks over {links}."]
    for kind in ("measured", "predicted"):
        if result := fastest(table, kind):
            lines.append(f"Fastest, {kind}: {in_words(result)}.")
    if not math.isnan(all_sizes := miss(table)):
        large = miss(table, LARGE)
        more = "" if math.isnan(large) else f", from 64 KiB up {large:.0%}"
        lines.append(
            f"Predictions miss the measured times by {all_sizes:.0%} (root mean square){more}."
        )
    lines.append(f"Costs {costs.source}: {costs.machine(ranks).words}.")
    return lines
