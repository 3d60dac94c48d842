"""Wait: a rank that is frozen, or cut off by links, is waited for up to ``timeout``; then it is
evicted, and the others go on without it, as in ``shrink``.

One that is thawed, or whose link comes back, within that time goes on as if nothing had happened.
The time counts also where the user freezes a rank or cuts a link, so that both can be tried. Of a
partition the larger part goes on.

Source  Chandra & Toueg, "Unreliable Failure Detectors for Reliable Distributed Systems", JACM
        43(2), 1996: no observer can tell a slow process from a dead one; a timeout is a guess, so a
        rank that is given up wrongly must not come back (it is killed before the others go on).
"""

from __future__ import annotations

from workbench.experiment.team import Failure, Team

FROM_MEMORY = "any"
EVICTS_UNREACHABLE = True


def recover(failure: Failure) -> Team | None:
    """Return the survivors; None where no rank survived."""
    return failure.shrink() if failure.survivors else None
