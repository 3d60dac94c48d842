"""What theory says of a parameter server: bytes, staleness, waiting, throughput, stability.

W workers, S servers, L bytes of parameters; a share is a server's part of L.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from workbench.parameter_servers.placement import Placement, held, place


def server_bytes(
    elements: int, workers: int, servers: int = 1, placement: Placement = "even", itemsize: int = 4
) -> tuple[int, ...]:
    """Bytes in and out of each server an iteration of all workers: 2·W·share·L, exactly.

    Each worker pushes a gradient and pulls parameters. W=3: one server 6L, even thirds 2L each,
    shares 2/3, 1/6, 1/6 let the first have 4L.
    """
    return tuple(
        2 * workers * held(ranges) * itemsize for ranges in place(elements, servers, placement)
    )


def busiest_bytes(
    elements: int, workers: int, servers: int = 1, placement: Placement = "even", itemsize: int = 4
) -> int:
    """``server_bytes`` of the server that has most: what decides when links are the limit."""
    return max(server_bytes(elements, workers, servers, placement, itemsize))


def ring_bytes(elements: int, ranks: int, itemsize: int = 4) -> float:
    """Bytes in and out of each rank of a ring all-reduce of the same: 4·(n-1)/n·L.

    It sends 2·(n-1)/n·L and receives as much; a server's ``server_bytes`` are both ways too.
    """
    return 4 * (ranks - 1) / ranks * elements * itemsize


def asp_staleness(workers: int) -> int:
    """Updates that a push is old under ASP, all equally fast: each other worker pushed once."""
    return workers - 1


def softsync(workers: int, n: int) -> tuple[int, float, int]:
    """n-softsync: pushes an update, mean staleness, the largest.

    Paper  Zhang et al., "Staleness-Aware Async-SGD for Distributed Deep Learning", IJCAI 2016.
    n = 1 waits for all (staleness 0 or 1), n = W is ASP: every push an update, staleness W - 1.
    """
    if not 1 <= n <= workers:
        raise ValueError(f"n = {n}: must be 1 to {workers}, the number of workers")
    return workers // n, n * (workers - 1) / workers, 2 * n


def bsp_waiting(workers: int, probability: float, factor: float) -> float:
    """Share of time that workers wait under BSP when iterations take 1, and sometimes ``factor``.

    A clock lasts as long as its slowest worker: 1 - E[one] / E[the longest of W].
    """
    one = 1 + probability * (factor - 1)
    longest = 1 + (1 - (1 - probability) ** workers) * (factor - 1)
    return 1 - one / longest


def throughput_bound(workers: int, compute_s: float, service_s: float) -> float:
    """Pushes a second that one server can at most take in: min(W / (Z + S), 1 / S).

    Z a worker's computing, S the server's work for one push and pull. Beyond Z/S + 1 workers the
    server is the limit, and more workers only make its queue longer.
    """
    return min(workers / (compute_s + service_s), 1 / service_s if service_s else math.inf)


def largest_rate(staleness: float, curvature: float = 1.0) -> float:
    """The learning rate at which descent with gradients of that staleness begins to diverge.

    x' = x - lr·curvature·(x of ``staleness`` updates ago) is stable below
    2·sin(pi / (2·(2·staleness + 1))) / curvature: 2 without delay, 1 with 1, about pi/2 / delay.
    Paper  Levin & May, "A Note on Difference-Delay Equations", Theor. Popul. Biol. 9, 1976.
    """
    return 2 * math.sin(math.pi / (2 * (2 * staleness + 1))) / curvature


def scaled_rate(lr: float, staleness: int) -> float:
    """``stale_gradients="scale"``: lr / staleness; a gradient that is not stale keeps lr."""
    return lr / max(1, staleness)


def delayed_descent(
    lr: float, staleness: int, updates: int, curvature: float = 1.0
) -> Sequence[float]:
    """|x| of the smallest model there is, curvature/2·x², when every gradient is that stale."""
    x = [1.0] * (staleness + 1)
    for _ in range(updates):
        x.append(x[-1] - lr * curvature * x[-1 - staleness])
    return [abs(one) for one in x[staleness:]]
