"""A sum tree: draws a leaf with a probability in proportion to its mass, in log2(leaves) steps.

Each inner node holds the sum of its two children, so the root holds the total. To draw, take a
number below the total and walk down: left if it is less than the left child's sum, else right with
the left child's sum taken off. To change a leaf, change the nodes above it.

Paper  Schaul et al., "Prioritized Experience Replay", ICLR 2016, appendix B.2.1.
Walk   masses 1 2 3 4: nodes 10 | 3 7 | 1 2 3 4. Mass 5.5 goes right (5.5 - 3 = 2.5), then left
       (2.5 < 3): the third leaf.
"""

from __future__ import annotations

import numpy as np


class SumTree:
    """Masses of ``leaves`` leaves, all 0 at first."""

    def __init__(self, leaves: int) -> None:
        self.leaves = leaves
        self._depth = max(1, (leaves - 1).bit_length())
        self._first = 1 << self._depth  # the node of leaf 0; the root is node 1
        self._nodes = np.zeros(2 * self._first)

    @property
    def total(self) -> float:
        """The sum of all masses."""
        return float(self._nodes[1])

    def masses(self, leaves: np.ndarray) -> np.ndarray:
        """Return the masses of these leaves."""
        result: np.ndarray = self._nodes[self._first + leaves]
        return result

    def set(self, leaves: np.ndarray, masses: np.ndarray) -> None:
        """Set the masses of these leaves; of one that is named twice, the last."""
        nodes = self._first + np.asarray(leaves)
        self._nodes[nodes] = masses
        for _ in range(self._depth):
            nodes = np.unique(nodes // 2)
            self._nodes[nodes] = self._nodes[2 * nodes] + self._nodes[2 * nodes + 1]

    def find(self, masses: np.ndarray) -> np.ndarray:
        """Return the leaf at each of these masses, 0 or more and below the total."""
        left = np.array(masses, np.float64)
        nodes = np.ones(len(left), np.int64)
        for _ in range(self._depth):
            nodes *= 2
            below = self._nodes[nodes]
            # Rounding may leave a mass at the end of an empty half: stay where there is some.
            right = (left >= below) & (self._nodes[nodes + 1] > 0)
            left -= np.where(right, below, 0.0)
            nodes += right
        return nodes - self._first
