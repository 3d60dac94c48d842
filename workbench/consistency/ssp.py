"""Stale synchronous parallel: the fastest worker leads the slowest by at most ``staleness`` clocks.

Paper  Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter
       Server", NIPS 2013.
       Its workers read a cache of bounded age, and so pull less often. Here every worker pulls all
       parameters in each iteration: SSP saves waiting, and no bytes.
Law    At every start of iteration c: c - min(clocks) <= staleness. 0 is bulk synchronous.
Walk   staleness 1, clocks 2 and 1: the first may begin iteration 2 (2 - 1 <= 1) and, done with it,
       waits before iteration 3 until the second's next push.
"""

from __future__ import annotations

from workbench.common.errors import SpecError
from workbench.training.parameter_servers.clocks import Clocks, Policy


class SSP(Policy):
    def __init__(self, staleness: int = 3) -> None:
        if staleness < 0:
            raise SpecError.at("staleness", "must be 0 (synchronous) or more clocks", staleness)
        self.staleness = self.bound = staleness  # more: less waiting, older parameters
        self.synchronous = staleness == 0

    def may_start(self, worker: int, iteration: int, clocks: Clocks) -> bool:
        return iteration - clocks.slowest <= self.staleness
