"""Asynchronous parallel: no worker waits for another.

Paper  Dean et al., "Large Scale Distributed Deep Networks" (DistBelief), NIPS 2012.
Law    Each push is one update at its arrival. With W equally fast workers it is W-1 updates old.
Price  No bound on how old the parameters are that a slow worker's gradient was computed on.
"""

from __future__ import annotations

from workbench.training.parameter_servers.clocks import Clocks, Policy


class ASP(Policy):
    waits = False

    def may_start(self, worker: int, iteration: int, clocks: Clocks) -> bool:
        return True
