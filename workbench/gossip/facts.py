"""What a page is told of who mixes with whom: ``run.peers`` of its header."""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np

from workbench.gossip.graphs import Graph


def peers(
    made: Graph,
    words: str,
    *,
    every: int = 1,
    synchronous: bool = True,
    rate: float | None = None,
    pairs: bool = False,
    stands: Iterable[int] | None = None,
) -> dict[str, str]:
    """Metadata of the run. ``rate``: what is left of the disagreement after one round of mixing, if
    theory says; one round is ``every`` iterations. ``pairs``: two ranks at a time take their mean.
    ``stands``: the ranks that ever stand still for a message, where not all do.
    """
    W = np.full((made.ranks, made.ranks), 0.5) if pairs else made.weights
    told = {
        "kind": "pairs" if pairs else made.kind,
        "edges": [[a, b, float(W[b, a])] for a, b in sorted(made.edges)],
        "every": every,
        "first": every - 1,
        "synchronous": synchronous,
        "stands": None if stands is None else sorted(stands),
        "rate": rate,
        "words": words,
    }
    return {"peers": json.dumps(told)}
