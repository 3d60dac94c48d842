"""Dynamic SSP: the bound moves between ``staleness`` and ``staleness_max``, worker by worker.

Paper  Zhao et al., "Dynamic Stale Synchronous Parallel Distributed Training for Deep Learning",
       ICDCS 2019. arXiv 1908.11848
Idea   When the fastest worker has reached the lower bound and would wait, guess when it would wait
       least: continue its pushes and the slowest's by their last intervals, and let it run the
       number of extra iterations after which its next push falls closest to one of the slowest's.
Walk   The fastest pushes at 100 every 10 ms, the slowest at 95 every 25 ms, so next at 120, 145.
       0 extra would stop it at 100, 20 ms before 120; 2 extra bring it to 120 itself: grant 2.
Law    ``strict``: never more than ``staleness_max`` ahead. ``paper``: at most staleness_max -
       staleness extra at a time, but the controller may grant again when they are used up, as the
       paper's pseudo-code has it, and so nothing bounds the lead.
"""

from __future__ import annotations

from collections.abc import Sequence

from workbench.common.errors import SpecError
from workbench.training.parameter_servers.clocks import Clocks, Policy

MODES = ("strict", "paper")


class DSSP(Policy):
    def __init__(self, staleness: int = 3, staleness_max: int = 15, mode: str = "strict") -> None:
        if not 0 <= staleness <= staleness_max:
            raise SpecError.at(
                "staleness",
                f"staleness_max = {staleness_max}: the bound moves from the first up to the "
                "second, so 0 <= staleness <= staleness_max",
                staleness,
            )
        if mode not in MODES:
            why = f"must be {' or '.join(map(repr, MODES))}"
            raise SpecError.at("dssp_mode", why, mode, allowed=MODES)
        self.staleness, self.staleness_max, self.mode = staleness, staleness_max, mode
        self.lead, self.bound = staleness, staleness_max if mode == "strict" else None
        self._end: dict[int, int] = {}  # worker -> the iteration at which its grant is used up
        self._clock: dict[int, int] = {}  # worker -> its clock at its last push

    def may_start(self, worker: int, iteration: int, clocks: Clocks) -> bool:
        within = iteration - clocks.slowest <= self.staleness
        return within or iteration < self._end.get(worker, 0)

    def pushed(self, worker: int, clocks: Clocks) -> None:
        """Run the paper's Algorithm 1: consult the controller if the fastest worker would wait.

        A grant is used up before the next one; it is never withdrawn.
        """
        clock = self._clock[worker] = clocks.accepted[worker]
        granted = clock < self._end.get(worker, 0)
        lead = clock - clocks.slowest
        if granted or lead <= self.staleness or clock < clocks.fastest:
            return
        slowest = min(clocks.accepted, key=lambda one: clocks.accepted[one])
        most = self.staleness_max - self.staleness
        if self.mode == "strict":
            most = min(most, self.staleness_max - lead + 1)  # it begins with lead, lead + 1, ...
        extra = extra_iterations(clocks.pushes[worker], clocks.pushes[slowest], most)
        self._end[worker] = clock + extra

    @property
    def slack(self) -> dict[int, int]:
        left = {worker: end - self._clock[worker] for worker, end in self._end.items()}
        return {worker: count for worker, count in left.items() if count > 0}


def extra_iterations(fastest: Sequence[int], slowest: Sequence[int], most: int) -> int:
    """Return how many more iterations, 0 to ``most``, the fastest worker may do (Algorithm 2).

    Arguments: each worker's last two push times, ns. The fastest is expected to push at A + r·I
    after r more iterations, the slowest at B + (k+1)·J; the result is the smallest r that comes
    closest to any k. A worker that has not pushed twice has no interval yet: 0.
    """
    if len(fastest) < 2 or len(slowest) < 2:
        return 0
    last, every = max(fastest), max(fastest) - min(fastest)
    start, apart = max(slowest), max(max(slowest) - min(slowest), 1)

    def off(extra: int) -> int:
        then = last + extra * every
        pushes = max((then - start) // apart, 1)  # the slowest's last before `then`, or its next
        return min(abs(start + pushes * apart - then), abs(start + (pushes + 1) * apart - then))

    return min(range(max(most, 0) + 1), key=off)
