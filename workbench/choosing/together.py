"""One rank of a group computes the choice of "auto", and the others take it over.

Every rank would come to the same choice by itself (choose.py), but for many ranks that takes one
second, and all of them share the cores. So the first rank that needs a size announces in the
group's store that it computes the choice, and then the result. No rank depends on it: one that has
waited too long computes it too.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from workbench.choosing.choose import choose, key_of
from workbench.choosing.costs import Costs

FROM = 12  # ranks; of fewer, asking the store takes as long as finding out
PATIENCE = 60.0  # seconds


def choose_together(
    operation: str,
    n: int,
    nbytes: int,
    costs: Costs,
    *,
    store: Any,
    rank: int,
    works: Callable[[int], bool],
) -> str:
    """Return the choice of ``choose``, the same on all ranks.

    ``store``: the group's; ``works``: whether that rank of it is alive.
    """
    key = key_of(operation, n, nbytes)
    if n < FROM or key in costs.known:
        return choose(operation, n, nbytes, costs)
    place = "/".join(map(str, key))
    with contextlib.suppress(RuntimeError, NotImplementedError):  # a store that cannot, or has gone
        first = int(store.compare_set(f"{place}/by", "", str(rank)))
        if first == rank:
            chosen = choose(operation, n, nbytes, costs)
            store.set(place, chosen)
        elif result := _await(store, place, lambda: works(first)):
            costs.known[key] = result
    return choose(operation, n, nbytes, costs)


def _await(store: Any, place: str, works: Callable[[], bool]) -> str:
    """Wait for what another rank found; return "" if that does not come."""
    deadline, pause = time.monotonic() + PATIENCE, 1e-3
    while not store.check([place]):
        if time.monotonic() > deadline or not works():
            return ""
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    return str(store.get(place).decode())
