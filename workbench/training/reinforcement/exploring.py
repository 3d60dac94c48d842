"""Exploration: with which probability ε an actor takes a random action instead of the best one.

    anneal   from ``first`` to ``last`` over so many frames, then ``last`` (Mnih et al. 2015)
    ladder   a constant for each actor, εᵢ = ε^(1 + 7 i / (N - 1)) for actor i of N: the first one
             explores most, the last hardly (Horgan et al. 2018)

Walk   N = 8, ε = 0.4: .4 .16 .064 .0256 .0102 .0041 .0016 .0007
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Exploration:
    """ε as a function of an actor's frames."""

    first: float
    last: float
    frames: int = 0  # over which it goes from the first to the last; 0: it is the last at once

    def at(self, frame: int) -> float:
        """Return ε at an actor's frame, counted from 0."""
        if frame >= self.frames:
            return self.last
        return self.first + (self.last - self.first) * frame / self.frames


def ladder(epsilon: float, exponent: float, actor: int, actors: int) -> float:
    """Return the ε of an actor, counted from 0. A single actor has ``epsilon`` itself."""
    return float(epsilon ** (1 + exponent * actor / max(actors - 1, 1)))
