"""The losses that lost ranks had reported, for the checkpoints of the ranks that go on.

A lost rank's losses are in its rows alone, which only the driver reads. It puts them into the store
where the ranks meet; the rank that makes a checkpoint whole adds them to what its own file holds.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

KEY = "reported by lost ranks"
_PAUSE = 0.005  # seconds between two looks at the store
Report = Mapping[str, Any]  # "begun", "losses", "samples", "model": as a rank reports at its end


def publish(
    store: Any, generation: int, spared: Collection[int], reports: Sequence[Report]
) -> None:
    """Tell all ranks of a generation what lost ranks had reported. ``spared``: the ranks that this
    generation has lost and goes on without.
    """
    entry = {"generation": generation, "spared": sorted(spared), "reports": reports}
    store.set(KEY, json.dumps(entry))


def fetch(store: Any, generation: int, spared: Collection[int], seconds: float) -> list[Report]:
    """Return what lost ranks had reported, once it is known of the ``spared`` ones of this
    generation; after so many seconds, what is known by then.
    """
    deadline = time.monotonic() + seconds
    while True:
        entry = json.loads(store.get(KEY)) if store.check([KEY]) else {}
        known = entry.get("spared", ()) if entry.get("generation") == generation else ()
        if {*spared} <= {*known} or time.monotonic() > deadline:
            reports: list[Report] = entry.get("reports", [])
            return reports
        time.sleep(_PAUSE)
