"""The clock of another host, as the driver estimates it from two-way exchanges.

    driver: sent ── ping ──> agent: arrived, left ── pong ──> driver: answered

The agent's clock is ahead by the mean of ``arrived - sent`` and ``left - answered``, wrong by half
of the time on the way at most; so the exchange with the shortest one says most. Exchanges go on for
as long as the rank runs, in the stream that its records take. From the best of each period follows
how fast the clock drifts.

The estimate is a line with knots. What has been converted once stays where it is: a new estimate
is approached within SLEW_NS, so that times never jump, and never run backwards.

Source  F. Cristian, "Probabilistic clock synchronization", Distributed Computing 3, 1989;
        D. Mills, RFC 5905 (NTP), section 10: the sample of the shortest round trip.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

PERIOD_NS = 250_000_000  # of which the best exchange is kept
KEPT = 240  # periods from which drift is estimated
SLEW_NS = 250_000_000  # within which a new estimate is approached
ENOUGH_NS = 1_000_000_000  # between the first and the last exchange that tell of drift
STEEPEST = 1e-3  # drift: quartz is within 1e-4, a hypervisor's clock at worst within this
UNKNOWN = 2e-4  # what drift may be wrong by where exchanges do not tell yet


@dataclass(frozen=True, slots=True)
class Exchange:
    """A ping and its pong. ``there``: by the agent's clock; ``ahead``: of the driver's; both in
    nanoseconds, as ``bound``, by which ``ahead`` may be wrong.
    """

    there: int
    ahead: int
    bound: int


class HostClock:
    """The clock of an agent's host. One thread adds exchanges, any may ask."""

    def __init__(self) -> None:
        self._best: deque[Exchange] = deque(maxlen=KEPT)  # one per period, the newest last
        self._knots: list[tuple[int, int]] = []  # there, ahead
        self._drift = 0.0  # nanoseconds per nanosecond
        self._bound = 0
        self._used = False  # a time has been converted
        self.exchanges = 0
        self._lock = threading.Lock()

    def add(self, sent: int, arrived: int, left: int, answered: int) -> None:
        """Add an exchange. ``arrived`` and ``left`` are by the agent's clock."""
        on_the_way = (answered - sent) - (left - arrived)
        if on_the_way < 0 or left < arrived:
            return
        there = left
        fresh = Exchange(there, (arrived - sent + left - answered) // 2, (on_the_way + 1) // 2)
        with self._lock:
            self.exchanges += 1
            best = self._best[-1] if self._best else None
            if best is None or there // PERIOD_NS != best.there // PERIOD_NS:
                self._best.append(fresh)
                self._estimate(there)
            elif fresh.bound < best.bound:
                self._best[-1] = fresh
                if not self._used:
                    self._estimate(there)

    def ahead(self, there: int) -> int:
        """Return by how much the agent's clock, when it said ``there``, was ahead of the driver's,
        in nanoseconds; 0 before the first exchange.
        """
        with self._lock:
            self._used = True
            return self._ahead(there)

    def here(self, moments: Any) -> Any:
        """Return moments of the agent's clock (int, or an array of int64) by the driver's."""
        if isinstance(moments, int):
            return moments - self.ahead(moments)
        with self._lock:
            self._used = True
            if not self._knots or not len(moments):
                return moments
            drift = self._drift
            # A run of hours has many knots, and rows are of the last of them.
            first = max(0, self._after(int(moments.min())) - 1)
            there, ahead = (np.array(column) for column in zip(*self._knots[first:], strict=True))
        values = moments.astype(np.int64)
        late = np.maximum(values - there[-1], 0) * drift
        # Relative to the first knot, as np.interp computes in float64.
        between = np.interp(values - there[0], there - there[0], ahead - ahead[0])
        return values - (ahead[0] + np.rint(between + late).astype(np.int64))

    def facts(self) -> dict[str, Any]:
        """Return what is known of it, as plain values: nanoseconds, and drift per million. With
        ``knots``, times of the agent's clock can be had again.
        """
        with self._lock:
            return {
                "ahead_ns": self._knots[-1][1] if self._knots else 0,
                "bound_ns": self._bound,
                "drift_ppm": round(self._drift * 1e6, 3),
                "exchanges": self.exchanges,
                "knots": [list(knot) for knot in self._knots],
            }

    def _after(self, there: int) -> int:
        """Return the index of the first knot that is later."""
        return bisect_right(self._knots, there, key=lambda knot: knot[0])

    def _ahead(self, there: int) -> int:
        knots = self._knots
        if not knots:
            return 0
        after = self._after(there)
        if after == len(knots):
            return knots[-1][1] + round((there - knots[-1][0]) * self._drift)
        if after == 0:
            return knots[0][1]
        (left, low), (right, high) = knots[after - 1], knots[after]
        return low + round((high - low) * (there - left) / (right - left))

    def _estimate(self, now: int) -> None:
        """Take the best line through the exchanges, from ``now`` by the agent's clock on."""
        drift, doubt = self._slope()
        level = min(self._best, key=lambda one: one.bound + doubt * (now - one.there))
        self._bound = round(level.bound + doubt * (now + SLEW_NS - level.there))
        if not self._used:
            self._knots, self._drift = [(level.there, level.ahead)], drift
            return
        present, goal = self._ahead(now), now + SLEW_NS
        while self._knots and self._knots[-1][0] >= now:
            self._knots.pop()
        self._knots += [(now, present), (goal, level.ahead + round((goal - level.there) * drift))]
        self._drift = drift

    def _slope(self) -> tuple[float, float]:
        """Return the drift by the exchanges, by least squares weighted by their bounds, and what it
        may be wrong by.
        """
        best = list(self._best)
        third = -(-len(best) // 3)
        early, late = (min(part, key=_bound_of) for part in (best[:third], best[-third:]))
        doubt = (early.bound + late.bound) / max(late.there - early.there, 1)
        if doubt >= UNKNOWN or best[-1].there - best[0].there < ENOUGH_NS:
            return 0.0, UNKNOWN
        x = np.array([one.there - best[0].there for one in best], float)
        y = np.array([one.ahead - best[0].ahead for one in best], float)
        weight = 1.0 / np.maximum([one.bound for one in best], 1.0)
        slope = float(np.polyfit(x, y, 1, w=weight)[0])
        return float(np.clip(slope, -STEEPEST, STEEPEST)), doubt


def _bound_of(one: Exchange) -> int:
    return one.bound
