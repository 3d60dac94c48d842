"""The interval between checkpoints, if failures come at random: the cost of one, and the best.

    C    cost      seconds that training waits for one checkpoint
    M    mtbf      mean time between failures, in seconds; times between them are exponential
    R    restart   seconds from a failure until the lost work begins to be done again
    τ    interval  seconds of training between two checkpoints, without C

Too often: C is paid in every τ. Too rarely: a failure throws away τ/2 on average. Both are equal at
τ = √(2CM): with C = 1 s and M = 5000 s every 100 s, and both cost 1%.

Source  Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974,
        doi:10.1145/361147.361115; Daly, "A higher order estimate of the optimum checkpoint interval
        for restart dumps", FGCS 22(3), 2006, doi:10.1016/j.future.2004.11.016
"""

from __future__ import annotations

import math


def young(cost: float, mtbf: float) -> float:
    """Return Young's interval in seconds, √(2CM): the optimum of ``first_order``."""
    return math.sqrt(2 * cost * mtbf)


def daly(cost: float, mtbf: float) -> float:
    """Return Daly's interval in seconds, near the optimum of ``exact`` also where C is not a small
    part of M (his equation 37): √(2CM)·(1 + √(C/2M)/3 + (C/2M)/9) - C if C < 2M, else M.
    """
    if cost >= 2 * mtbf:
        return mtbf
    part = cost / (2 * mtbf)
    return young(cost, mtbf) * (1 + math.sqrt(part) / 3 + part / 9) - cost


def first_order(interval: float, cost: float, mtbf: float, restart: float = 0.0) -> float:
    """Return seconds per second of training that counts, 1 + C/τ + (τ/2 + R)/M: failures are rare,
    and none comes while lost work is done again.
    """
    return 1 + cost / interval + (interval / 2 + restart) / mtbf


def exact(interval: float, cost: float, mtbf: float, restart: float = 0.0) -> float:
    """Return seconds per second of training that counts, M·e^(R/M)·(e^((τ+C)/M) - 1)/τ: failures
    come at any moment, while a checkpoint is written and during recovery too (Daly's equation 13).

    Infinite where no float is large enough.
    """
    try:
        return mtbf / interval * math.exp(restart / mtbf) * math.expm1((interval + cost) / mtbf)
    except OverflowError:
        return math.inf
