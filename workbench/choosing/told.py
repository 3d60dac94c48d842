"""What a crossing says, in sentences."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from workbench.choosing.choose import in_words

if TYPE_CHECKING:
    from workbench.choosing.crossing import Crossing

LARGE = 64 << 10  # bytes: below, what the system does to a waiting process counts most


def sentences(crossing: Crossing) -> list[str]:
    """Where, what was fastest, what was predicted, and how well."""
    links = "paced links" if crossing.costs.links.paced else "this machine's own links"
    told = [f"{crossing.operation} on {crossing.ranks} ranks over {links}."]
    for kind in ("measured", "predicted"):
        if found := crossing.fastest(kind):
            told.append(f"Fastest, {kind}: {in_words(found)}.")
    if not math.isnan(all_sizes := crossing.miss()):
        large = crossing.miss(LARGE)
        more = "" if math.isnan(large) else f", from 64 KB up {large:.0%}"
        told.append(
            f"Predictions miss the measured times by {all_sizes:.0%} (root mean square){more}."
        )
    told.append(f"Costs {crossing.costs.source}: {crossing.costs.machine(crossing.ranks).words}.")
    return told
