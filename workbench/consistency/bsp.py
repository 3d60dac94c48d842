"""Bulk synchronous parallel: no worker begins an iteration before all have ended the one before.

Paper  Valiant, "A Bridging Model for Parallel Computation", CACM 33(8), 1990.
Law    At every start of iteration c: c - min(clocks) = 0. One update per clock, of all gradients,
       so the trajectory is that of one process with the whole minibatch.
Price  Every clock lasts as long as its slowest worker.
"""

from __future__ import annotations

from workbench.training.parameter_servers.clocks import Clocks, Policy


class BSP(Policy):
    synchronous = True
    bound = 0

    def may_start(self, worker: int, iteration: int, clocks: Clocks) -> bool:
        return iteration <= clocks.slowest
