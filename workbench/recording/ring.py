"""The reader of a lane's ring of records, beside the writer that may lap it (events.py).

What it reads may be written at the same moment, so nothing counts before it is known to be whole:
store/collector.py says how.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from workbench.shared_memory.ordering import fence

_Records = npt.NDArray[np.void]  # of events.ROW or events.CONTEXT
FARTHEST = 2**62  # a number beyond it is not one: so many are never written
_T = TypeVar("_T", bound=np.generic)


class Ring:
    """The reader of one lane's rows, or contexts. ``position`` is the index of the next record."""

    def __init__(self, memory: memoryview, at: int, records: int, dtype: np.dtype[np.void]) -> None:
        self._records: _Records = np.frombuffer(memory, dtype, records, at)
        self._seq: npt.NDArray[np.int64] = self._records["seq"]
        self.size, self.position = records, 0

    def has(self, more: int) -> bool:
        """Return whether ``more`` records, or any number beyond that, wait to be read."""
        return bool(self._seq[(self.position + more) % self.size] > self.position)

    def read(self) -> tuple[_Records, int]:
        """Copy the records published since the last call; return them with the number that were
        lost.
        """
        first = begin = self.position
        if self._seq[begin % self.size] == begin + 1:
            stop = begin + self._published(begin)
        else:
            stop = self._lapped(begin)
            first = max(begin, stop - self.size)
        if stop == begin:
            return self._records[:0], 0
        fence()
        copy = cut(self._records, first, stop)
        numbers = np.arange(first, stop + 1)
        fence()
        behind = cut(self._seq, first - 1, stop - 1)  # read after the copying
        whole = (copy["seq"] == numbers[1:]) & (behind == numbers[:-1])
        if not whole.all():
            copy = copy[whole]
        self.position = stop
        return copy, stop - begin - len(copy)

    def _published(self, begin: int) -> int:
        """Count the records from ``begin`` on that are there (one is): written in order."""
        seq, size, least, beyond = self._seq, self.size, 1, self.size + 1
        while beyond - least > 1:
            middle = (least + beyond) // 2
            if seq[(begin + middle - 1) % size] == begin + middle:
                least = middle
            else:
                beyond = middle
        return least

    def _lapped(self, begin: int) -> int:
        """Return the index after the newest record where another one is at the place of ``begin``;
        else ``begin``.
        """
        first, behind = self._seq[begin % self.size], self._seq[(begin - 1) % self.size]
        if first == begin + 1 - self.size or (first == 0 and behind == begin):
            return begin
        seq = self._seq.copy()
        # A number counts if it is in its place and follows the one before: stray bytes do neither.
        in_place = (seq - 1) % self.size == np.arange(self.size)
        real = (seq > begin + 1) & (seq < FARTHEST) & in_place & (np.roll(seq, 1) == seq - 1)
        return int(seq[real].max()) if real.any() else begin


def cut(ring: npt.NDArray[_T], first: int, stop: int) -> npt.NDArray[_T]:
    """Copy the ring's records ``first`` .. ``stop - 1``, one lap of them at most."""
    size = len(ring)
    at = first % size
    end = at + stop - first
    return ring[at:end].copy() if end <= size else np.concatenate([ring[at:], ring[: end - size]])
