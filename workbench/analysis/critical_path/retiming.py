"""The same work with other links and other computing: when each moment would be.

Every arc keeps its length but those that a change names. A link's latency lengthens each message's
flight; its bandwidth, how long a message occupies the link, so that messages queue. Computing is
multiplied. All times are sums and maxima of lengths: slower is never faster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from workbench.analysis.critical_path.dependencies import Dependencies, Pace, Way
from workbench.analysis.critical_path.moments import Numbers

Paced = tuple[int, float]  # of a link: latency in ns, ns per byte


def lengths(
    graph: Dependencies,
    pace: Pace,
    links: Mapping[Way, Paced],
    compute: Mapping[int, float],
    *,
    at_end: bool = False,
) -> list[int]:
    """Return the length of each arc with these links, and these factors on ranks' computing.

    ``pace``: of the links as they were. ``at_end``: computing goes on longer at the end of each
    row, as wb.Slow has it, and not all along.
    """
    ns = list(graph.moments.ns)
    for way, (latency, per_byte) in links.items():
        before, before_per_byte = pace(*way)
        for arc in graph.latency.get(way, ()):
            ns[arc] = max(0, ns[arc] + latency - before)
        for arc, nbytes in graph.bandwidth.get(way, ()):
            ns[arc] = max(0, ns[arc] + round(nbytes * (per_byte - before_per_byte)))
    for rank, factor in compute.items():
        for row in graph.computes.get(rank, ()):
            if at_end:
                ns[row[-1]] += round((factor - 1) * sum(graph.moments.ns[arc] for arc in row))
            else:
                for arc in row:
                    ns[arc] = round(graph.moments.ns[arc] * factor)
    return ns


def iteration_ends(graph: Dependencies, times: Sequence[int] | Numbers) -> Numbers:
    """Return when each iteration ends, over all ranks, in the order of iterations: ns, a row per
    iteration, a column per case.
    """
    rows = [
        np.max([np.atleast_1d(times[moment]) for _, moment in ends], axis=0)
        for iteration, ends in sorted(graph.ends.items())
        if iteration >= 0
    ]
    return np.array(rows, np.float64)


def iteration_ms(ends: Numbers) -> Numbers:
    """Return the median time of an iteration, ms, one per case: from end to end."""
    return np.asarray(np.median(np.diff(ends, axis=0), axis=0) * 1e-6)
