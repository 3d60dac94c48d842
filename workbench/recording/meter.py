"""The overhead meter: what a record costs, timed in place on a sample of the records of this run.

Every 251st row of a lane is written between two readings of the clock, through the lane's own
``write``: whatever makes writing slower shows. The compiled writer is timed inside, from its first
instruction to its last, by the same code as all other rows; the interpreter's call before it is not
in it. The times are added up in the lane's page, by their octave, where the driver, or a reader of
a trace folder, sees them while the run goes on.

    lane's page + METER_AT:  ns spent beside rows | octave: how many, sum in ns | ...

Beside rows: on making the log longer, and on what is computed only to be recorded, as a task's
metrics of a minibatch are.

The two readings take the time of one, which every record needs anyway for its own start or end: so
the figure compares with ``events.cost_of_a_record``. 251 is prime, so that the sample does not fall
into step with an algorithm's rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

EVERY = 251  # rows between two that are timed
FIRST = 32  # rows of a lane before its first one: until then memory and caches are cold
OCTAVES = 40  # up to 2^40 ns, 18 minutes
METER_AT = 1024  # in a lane's page
METER_BYTES = (1 + 2 * OCTAVES) * 8
ENOUGH = 8  # samples; fewer say too little
SET_ASIDE = 100  # of so many samples the slowest one is left out


class Meter:
    """The rank's side: one lane's times. ``page`` is that lane's page."""

    def __init__(self, page: memoryview) -> None:
        self._words = page[METER_AT : METER_AT + METER_BYTES].cast("q")

    def timed(self, ns: int) -> None:
        """Note how long a row took."""
        at = 1 + 2 * min(ns.bit_length(), OCTAVES - 1)
        self._words[at + 1] += ns
        self._words[at] += 1

    def took(self, ns: int) -> None:
        """Note what recording took beside rows."""
        self._words[0] += ns


@dataclass(frozen=True)
class Samples:
    """Times of rows, of any number of lanes: how many an octave, and their sums in ns."""

    counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(OCTAVES, np.int64))
    sums: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(OCTAVES, np.int64))
    beside_ns: int = 0

    def __add__(self, other: Samples) -> Samples:
        return Samples(
            self.counts + other.counts, self.sums + other.sums, self.beside_ns + other.beside_ns
        )

    def __len__(self) -> int:
        return int(self.counts.sum())

    def mean_ns(self) -> float | None:
        """Return the mean of one row, in ns; None from fewer than ENOUGH samples.

        The slowest hundredth, one sample at least, is left out: a thread that the scheduler put
        aside in the middle of a record was not busy recording.
        """
        count = len(self)
        if count < ENOUGH:
            return None
        counts, sums = self.counts.astype(float), self.sums.astype(float)
        aside = float(-(-count // SET_ASIDE))
        for octave in range(OCTAVES - 1, -1, -1):
            if counts[octave] and aside:
                part = min(aside, counts[octave])
                sums[octave] *= 1 - part / counts[octave]
                counts[octave] -= part
                aside -= part
        return float(sums.sum() / counts.sum())


def read(page: memoryview) -> Samples:
    """Read what a lane's page says at this moment."""
    words = np.frombuffer(page, np.int64, METER_BYTES // 8, METER_AT).copy()
    return Samples(words[1::2].copy(), words[2::2].copy(), int(words[0]))
