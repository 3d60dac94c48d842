"""Compare what "auto" takes with the best algorithm; predicted against measured, paced links.

By this user's own costs where there are some (``wb.calibrate()``), else by the shipped ones. Each
round times every algorithm once, so that what else the machine does meets all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tools.benchmarks.figures import Figure
from workbench.choosing.choose import candidates, choose, size
from workbench.choosing.costs import Links, load, sizes_between
from workbench.choosing.predict import predict
from workbench.studies.crossover.timing_pool import TimingPool

KB, MB = 1 << 10, 1 << 20
RANKS = (2, 4)
ROUNDS = 9
FEW = 5  # rounds where one takes long
WITHIN = 1.15
MISS = 0.2
PACED = {"1 ms, 100 Mbit/s": Links(1e-3, 8e-8), "0.2 ms, 1 Gbit/s": Links(2e-4, 8e-9)}
PREDICTED = ("ring", "tree")


def measure() -> list[Figure]:
    return [*_against_the_best(), *_predicted()]


def _against_the_best() -> Iterator[Figure]:
    costs = load()
    for n in RANKS:
        with TimingPool(n) as pool:
            for nbytes in sizes_between(KB, 64 * MB):
                many = (ROUNDS, math.inf) if nbytes <= MB else (FEW, 3.0)
                names = candidates("all_reduce", n)
                times = pool.race("all_reduce", names, nbytes, many[0], hopeless=many[1])
                chosen = choose("all_reduce", n, nbytes, costs)
                best = min(times, key=times.__getitem__)
                ratio = times[chosen] / times[best]
                detail = f"{chosen} {times[chosen] * 1e6:,.0f} µs, best {best} "
                detail += f"{times[best] * 1e6:,.0f} µs"
                yield Figure(f"auto, n={n}, {size(nbytes)}", ratio, WITHIN, "× best", False, detail)


def _predicted() -> Iterator[Figure]:
    """From 64 KB up, over links that are paced."""
    for n in RANKS:
        with TimingPool(n) as pool:
            for words, links in PACED.items():
                pool.pace(links)
                costs = load().over(links)
                for name in PREDICTED:
                    errors = []
                    for nbytes in sizes_between(64 * KB, 4 * MB):
                        seconds = pool.seconds("all_reduce", name, nbytes, calls=1, rounds=3)
                        errors.append(predict("all_reduce", name, n, nbytes, costs) / seconds - 1)
                    worst = max(errors, key=abs)
                    detail = "64 KB, 256 KB, 1 MB, 4 MB: " + ", ".join(f"{t:+.0%}" for t in errors)
                    yield Figure(f"{name}, n={n}, {words}", abs(worst), MISS, "off", False, detail)
