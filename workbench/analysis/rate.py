"""The rate of events per second, and the time that recording one takes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

BUCKET_NS = 100_000_000  # events are counted in tenths of a second


class Rate:
    """Events by tenths of a second, and what one record cost then."""

    def __init__(self) -> None:
        self.first_ns = self.last_ns = 0
        self._counts = np.zeros(0, np.int64)
        self._base = 0  # the bucket of the first count
        self._costs: list[tuple[int, float]] = []

    def count(self, ends_ns: npt.NDArray[np.int64]) -> None:
        """Count events that ended then."""
        if not len(ends_ns):
            return
        first, last = int(ends_ns.min()), int(ends_ns.max())
        if not len(self._counts):
            self.first_ns, self._base = first, first // BUCKET_NS
        self.first_ns, self.last_ns = min(first, self.first_ns), max(last, self.last_ns)
        low, high = first // BUCKET_NS, last // BUCKET_NS
        self._make_room(low, high)
        if low == high:
            self._counts[low - self._base] += len(ends_ns)
        else:
            result = np.bincount(ends_ns // BUCKET_NS - low)
            self._counts[low - self._base :][: len(result)] += result

    def _make_room(self, low: int, high: int) -> None:
        if low < self._base:
            self._counts = np.concatenate([np.zeros(self._base - low, np.int64), self._counts])
            self._base = low
        missing = high - self._base + 1 - len(self._counts)
        if missing > 0:
            self._counts = np.concatenate([self._counts, np.zeros(missing, np.int64)])

    def costs(self, record_ns: float) -> None:
        """Set the cost of one record from now on."""
        self._costs.append((self.last_ns // BUCKET_NS, record_ns))

    def table(self, over: bool) -> pl.DataFrame:
        """Return at_ns (a bucket's middle), events_per_s, record_ns, without unfinished buckets."""
        buckets = np.arange(len(self._counts)) + self._base
        start = np.maximum(buckets * BUCKET_NS, self.first_ns)
        end = np.minimum((buckets + 1) * BUCKET_NS, self.last_ns)
        covered = np.maximum(end - start, 0)
        whole = covered >= BUCKET_NS // 5
        if not over and len(whole):
            whole[-1] = False
        cost = np.full(len(buckets), np.nan)
        if self._costs:
            at, values = np.array(self._costs).T
            cost = values[np.maximum(np.searchsorted(at, buckets, "right") - 1, 0)]
        return pl.DataFrame(
            {
                "at_ns": (start[whole] + end[whole]) // 2,
                "events_per_s": self._counts[whole] / (covered[whole] * 1e-9),
                "record_ns": pl.Series(cost[whole], dtype=pl.Float64).fill_nan(None),
            }
        )
