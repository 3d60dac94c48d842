"""The collectives' algorithms as formulas: steps, messages, bytes, and what stands before α, β, γ.

``OPERATIONS[operation][name]`` is an ``Algorithm``, named as its file
``collectives/<operation>_<name>.py``; ``ALGORITHMS`` are those of all-reduce. ``expected`` says
what every rank must hold at the end.
"""

from __future__ import annotations

from math import prod

from workbench.common.names import nearest
from workbench.formulas import all_reduce, peers, rooted
from workbench.formulas.bounds import lower_bound
from workbench.formulas.hierarchical import (
    HIERARCHICAL,
    hierarchical,
    level_elements,
    levels,
    levels_read,
)
from workbench.formulas.holding import WITH_ROOT, chunk_numbers, expected, sends_something
from workbench.formulas.model import Algorithm, Cost, Terms, Transfer, chunk_sizes
from workbench.formulas.rabenseifner import RABENSEIFNER

__all__ = [
    "ALGORITHMS",
    "OPERATIONS",
    "WITH_ROOT",
    "Algorithm",
    "Cost",
    "Terms",
    "Transfer",
    "chunk_numbers",
    "chunk_sizes",
    "expected",
    "find",
    "hierarchical",
    "level_elements",
    "levels",
    "lower_bound",
    "sends_something",
]


def _named(*algorithms: Algorithm) -> dict[str, Algorithm]:
    return {algorithm.name: algorithm for algorithm in algorithms}


ALGORITHMS: dict[str, Algorithm] = _named(
    all_reduce.RING,
    all_reduce.NAIVE,
    all_reduce.ONE_SHOT,
    all_reduce.ALL_TO_ALL,
    all_reduce.TREE,
    all_reduce.BUTTERFLY,
    RABENSEIFNER,
    HIERARCHICAL,
)
OPERATIONS: dict[str, dict[str, Algorithm]] = {
    "all_reduce": ALGORITHMS,
    "broadcast": _named(*rooted.BROADCAST),
    "reduce": _named(*rooted.REDUCE),
    "gather": _named(*rooted.GATHER),
    "scatter": _named(*rooted.SCATTER),
    "all_gather": _named(*peers.ALL_GATHER),
    "reduce_scatter": _named(*peers.REDUCE_SCATTER),
    "all_to_all": _named(*peers.ALL_TO_ALL),
    "barrier": _named(*peers.BARRIER),
}


def find(
    algorithm: str | Algorithm, operation: str = "all_reduce", way: str = "", n: int = 0
) -> Algorithm:
    """Return the algorithm of this name.

    ``way``: the variant that the record of ``n`` ranks names. Raises ValueError, which lists the
    known names.
    """
    if isinstance(algorithm, Algorithm):
        return algorithm
    if operation not in OPERATIONS:
        raise ValueError(
            f"theory knows no operation {operation!r}{nearest(operation, OPERATIONS)}; "
            f"it knows {', '.join(OPERATIONS)}"
        )
    known = OPERATIONS[operation]
    if algorithm not in known:
        more = ", and hierarchical([4, 2])" if operation == "all_reduce" else ""
        raise ValueError(
            f"theory knows no algorithm {algorithm!r} of {operation}{nearest(algorithm, known)}; "
            f"it knows {', '.join(known)}{more}"
        )
    levels, in_turn = levels_read(way)
    if known[algorithm] is HIERARCHICAL and levels and prod(levels) == n:
        return hierarchical(levels, in_turn)
    return known[algorithm]
