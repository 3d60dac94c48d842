"""Replay: the newest transitions, and which of them are learned from.

uniform      each with the same probability (Mnih et al., Nature 2015)
prioritised  transition i with P(i) = pᵢ^α / Σ pₖ^α, where pᵢ = |TD error| + a little; what is drawn
             more often counts less, by the importance weight wᵢ = (N P(i))^-β, divided by the
             largest one of the minibatch (Schaul et al., ICLR 2016)

The oldest transition goes when a new one has no room. A transition has a key, its number among all
that were ever inserted: a priority that comes back for a key that is gone changes nothing.
"""

from __future__ import annotations

import numpy as np

from workbench.training.reinforcement.sum_tree import SumTree

SEEN = 1200  # transitions whose priorities ``likelihood`` looks at
LITTLE = 1e-6  # added to each priority: what has no error is drawn now and then


def sampled_layout(layout: np.dtype) -> np.dtype:
    """Return the record of a transition that was drawn: with its key, and its weight."""
    return np.dtype([("transition", layout), ("key", "i8"), ("weight", "f8")])


PRIORITY = np.dtype([("key", "i8"), ("priority", "f8")])  # what a learner sends back of each


class Replay:
    """One replay memory, or one shard of it.

    ``prioritised``: the exponents α and β; None: uniform. ``seed``: of what is drawn.
    """

    def __init__(
        self,
        capacity: int,
        layout: np.dtype,
        seed: int | list[int],
        prioritised: tuple[float, float] | None = None,
    ) -> None:
        self.capacity, self.inserted = capacity, 0
        self._records = np.zeros(capacity, layout)
        self._sampled = sampled_layout(layout)
        self._random = np.random.default_rng(seed)
        self._exponents = prioritised
        self._tree = None if prioritised is None else SumTree(capacity)

    def __len__(self) -> int:
        return min(self.inserted, self.capacity)

    def add(self, records: np.ndarray) -> None:
        """Insert transitions, the oldest ones out. ``records``: no more than the capacity."""
        slots = (self.inserted + np.arange(len(records))) % self.capacity
        self._records[slots] = records
        self.inserted += len(records)
        if self._tree is not None:
            self._tree.set(slots, self._mass(records["priority"]))

    def sample(self, count: int) -> np.ndarray:
        """Draw ``count`` transitions, with repetition; their weights are not divided yet."""
        size = len(self)
        if self._tree is None or self._exponents is None:
            slots = self._random.integers(0, size, count)
            weights = np.ones(count)
        else:
            total = self._tree.total  # one draw from each of ``count`` equal parts of it
            slots = self._tree.find((np.arange(count) + self._random.random(count)) * total / count)
            probability = self._tree.masses(slots) / total
            weights = (size * probability) ** -self._exponents[1]
        result = np.zeros(count, self._sampled)
        result["transition"], result["weight"] = self._records[slots], weights
        newest = self.inserted - 1
        result["key"] = newest - (newest - slots) % self.capacity
        return result

    def update(self, priorities: np.ndarray) -> int:
        """Take over the priorities that a learner found (records of ``PRIORITY``). Returns how many
        were of transitions that are gone.
        """
        here = priorities["key"] >= self.inserted - self.capacity
        if self._tree is not None and here.any():
            known = priorities[here]
            self._tree.set(known["key"] % self.capacity, self._mass(known["priority"]))
        return int(len(priorities) - here.sum())

    def likelihood(self, parts: int) -> np.ndarray:
        """Return how much more often than the mean a transition is drawn, by its age: in so many
        equal parts from the newest to the oldest, from at most SEEN of them. Empty: all are alike.
        """
        size = len(self)
        if self._tree is None or size < parts:
            return np.zeros(0)
        ages = np.arange(0, size, -(-size // SEEN))
        masses = self._tree.masses((self.inserted - 1 - ages) % self.capacity)
        firsts = np.searchsorted(ages, np.arange(parts) * size / parts)
        means = np.add.reduceat(masses, firsts) / np.diff(firsts, append=len(ages))
        result: np.ndarray = means / masses.mean()
        return result

    def _mass(self, priorities: np.ndarray) -> np.ndarray:
        assert self._exponents is not None
        result: np.ndarray = (np.abs(priorities.astype(np.float64)) + LITTLE) ** self._exponents[0]
        return result
