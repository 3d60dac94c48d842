"""The theory of a parameter server: bytes, staleness, waiting, throughput, stability.

W workers, S servers, L bytes of parameters; a share is a server's fraction of L.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from workbench.training.parameter_servers.placement import Placement, held, place


def server_bytes(
    elements: int, workers: int, servers: int = 1, placement: Placement = "even", itemsize: int = 4
) -> tuple[int, ...]:
    """Return the bytes in and out of each server per iteration of all workers: exactly 2·W·share·L.

    Each worker pushes a gradient and pulls parameters. For W=3: one server has 6L, even thirds have
    2L each, and with shares 2/3, 1/6, 1/6 the first has 4L.
    """
    return tuple(
        2 * workers * held(ranges) * itemsize for ranges in place(elements, servers, placement)
    )


def ring_bytes(elements: int, ranks: int, itemsize: int = 4) -> float:
    """Return the bytes in and out of each rank of a ring all-reduce of the same elements:
    4·(n-1)/n·L.

    A rank sends 2·(n-1)/n·L and receives as much; ``server_bytes`` counts both directions too.
    """
    return 4 * (ranks - 1) / ranks * elements * itemsize


def asp_staleness(workers: int) -> int:
    """Return the staleness of a push under ASP with equally fast workers: W - 1.

    Every other worker has pushed once in the meantime.
    """
    return workers - 1


def bsp_waiting(workers: int, probability: float, factor: float) -> float:
    """Return the share of time that workers wait under BSP; iterations take 1, and sometimes
    ``factor``.

    A clock lasts as long as its slowest worker: 1 - E[iteration] / E[the longest of W].
    """
    mean = 1 + probability * (factor - 1)
    longest = 1 + (1 - (1 - probability) ** workers) * (factor - 1)
    return 1 - mean / longest


def throughput_bound(workers: int, compute_s: float, service_s: float) -> float:
    """Return the most pushes per second that one server can accept: min(W / (Z + S), 1 / S).

    Z is a worker's compute time, S the server's time for one push and pull. Beyond Z/S + 1 workers
    the server is the limit: more workers only lengthen its queue.
    """
    return min(workers / (compute_s + service_s), 1 / service_s if service_s else math.inf)


def largest_rate(staleness: float, curvature: float = 1.0) -> float:
    """Return the learning rate above which descent with gradients of that staleness diverges.

    x' = x - lr·curvature·(x of ``staleness`` updates ago) is stable below
    2·sin(pi / (2·(2·staleness + 1))) / curvature: 2 without delay, 1 with 1, about pi/2 / delay.
    Paper  Levin & May, "A Note on Difference-Delay Equations", Theor. Popul. Biol. 9, 1976.
    """
    return 2 * math.sin(math.pi / (2 * (2 * staleness + 1))) / curvature


def delayed_descent(
    lr: float, staleness: int, updates: int, curvature: float = 1.0
) -> Sequence[float]:
    """Return |x| after each update of the smallest model, curvature/2·x², with gradients that
    stale.
    """
    x = [1.0] * (staleness + 1)
    for _ in range(updates):
        x.append(x[-1] - lr * curvature * x[-1 - staleness])
    return [abs(value) for value in x[staleness:]]


def regret_bound(
    updates: int, workers: int, staleness: int, diameter: float = 1.0, lipschitz: float = 1.0
) -> float:
    """Return the most that descent under SSP loses in ``updates``, summed, against the best x:
    4·F·L·sqrt(2·(staleness + 1)·workers·updates).

    For convex losses whose gradients are no longer than L, over x no further apart than sqrt(2)·F
    (D(x, x') = |x - x'|²/2 is at most F²), at the rate of ``ssp_rate``. Per update the loss falls
    as 1/sqrt(updates): the same power as without staleness, times sqrt(staleness + 1).
    Paper  Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter
           Server", NIPS 2013, theorem 1.
    """
    return 4 * diameter * lipschitz * math.sqrt(2 * (staleness + 1) * workers * updates)


def ssp_rate(
    update: int, workers: int, staleness: int, diameter: float = 1.0, lipschitz: float = 1.0
) -> float:
    """Return the learning rate of an update, counted from 1, under which ``regret_bound`` holds:
    F / (L·sqrt(2·(staleness + 1)·workers·update)).
    """
    return diameter / (lipschitz * math.sqrt(2 * (staleness + 1) * workers * update))
