"""What no algorithm can be better than."""

from __future__ import annotations

from collections.abc import Callable

from workbench.formulas.shapes import lg


def lower_bound(n: int, nbytes: float, operation: str = "all_reduce") -> float:
    """Bytes that the busiest rank must send, whatever the algorithm; ``nbytes``: the whole tensor.

    All-reduce 2(n-1)/n·L (Patarasuk & Yuan, 2009). The root of a broadcast must give all, every
    other rank of a reduce too; a scatter's root all but its own part; in a gather everybody its
    part, L/n. Whatever every rank must receive is (n-1)/n·L elsewhere, which all send together.
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
    """Steps that any of them takes at least: who has heard of a rank can at best double a step."""
    return lg(n)
