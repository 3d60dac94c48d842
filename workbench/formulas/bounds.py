"""Lower bounds, which no algorithm can beat."""

from __future__ import annotations

from collections.abc import Callable

from workbench.formulas.shapes import lg


def lower_bound(n: int, nbytes: float, operation: str = "all_reduce") -> float:
    """Return the bytes that the busiest rank must send, whatever the algorithm.

    ``nbytes``: the whole tensor, L. All-reduce 2(n-1)/n·L (Patarasuk & Yuan, 2009). The root of a
    broadcast must send all, and so must every other rank of a reduce; the root of a scatter all but
    its own chunk; every rank of a gather its chunk, L/n. Elsewhere every rank must receive
    (n-1)/n·L, which all ranks together must send.
    """
    if n < 2:
        return 0.0
    return _SHARE[operation](n) * nbytes


_SHARE: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "broadcast": lambda n: 1.0,
    "reduce": lambda n: 1.0,
    "gather": lambda n: 1 / n,
    "scatter": lambda n: (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "barrier": lambda n: 0.0,
}


def fewest_steps(n: int) -> int:
    """Return the least number of steps: the ranks that know of one rank at best double per step."""
    return lg(n)
