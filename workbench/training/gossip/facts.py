"""The facts about mixing that a page shows: ``run.peers`` of the header."""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np

from workbench.training.gossip.graphs import Graph

MISSED = ("left out", "overwritten", "too late")  # rows of messages that no mean has


def peers(
    topology: Graph,
    words: str,
    *,
    every: int = 1,
    synchronous: bool = True,
    rate: float | None = None,
    pairs: bool = False,
    stands: Iterable[int] | None = None,
) -> dict[str, str]:
    """Return metadata of the run.

    ``rate``: the share of the disagreement left after one round of mixing, if theory gives it; one
    round is ``every`` iterations. ``pairs``: two ranks at a time take their mean. ``stands``: the
    ranks that ever block on a message, where not all do.
    """
    W = np.full((topology.ranks, topology.ranks), 0.5) if pairs else topology.weights
    facts = {
        "kind": "pairs" if pairs else topology.kind,
        "edges": [[a, b, float(W[b, a])] for a, b in sorted(topology.edges)],
        "every": every,
        "first": every - 1,
        "synchronous": synchronous,
        "stands": None if stands is None else sorted(stands),
        "rate": rate,
        "words": words,
    }
    return {"peers": json.dumps(facts)}
