"""Outlier losses: gradients of minibatches whose loss is far from what it usually is are discarded.

A running mean m and standard deviation s of a learner's own losses: a loss above m + k s is an
outlier. Outliers count in the mean too, so that a loss which stays high is none for long.

Paper  Nair et al., "Massively Parallel Methods for Deep Reinforcement Learning", 2015, section 4.
"""

from __future__ import annotations

import math

SHARE = 0.01  # of the newest loss in the running mean
FEWEST = 50  # losses before the first that can be an outlier


class Outliers:
    """The losses of one learner. ``deviations``: k; 0: there are no outliers."""

    def __init__(self, deviations: float) -> None:
        self._deviations = deviations
        self._count, self._mean, self._variance = 0, 0.0, 0.0

    def is_one(self, loss: float) -> bool:
        """Take in the next loss; return whether it is an outlier by those before."""
        apart = loss - self._mean
        limit = self._deviations * math.sqrt(self._variance)
        outlier = bool(self._deviations) and self._count >= FEWEST and apart > limit
        self._count += 1
        share = max(SHARE, 1 / self._count)  # at first the plain mean
        self._mean += share * apart
        self._variance = (1 - share) * (self._variance + share * apart * apart)
        return outlier
