"""The speed at which replicas agree, and the bytes that they send for it.

One round of mixing, X <- W X, leaves at most |λ₂| of the disagreement, the second largest modulus
of W's eigenvalues (W is normal in all of our graphs). For a ring with weights ⅓ that is
(1 + 2 cos(2π/n)) / 3, and for a complete graph 0: all agree at once.

Papers  Xiao & Boyd, Systems & Control Letters 53, 2004; Boyd et al., "Randomized gossip
        algorithms", IEEE Transactions on Information Theory 52, 2006 (pairs).
"""

from __future__ import annotations

import math

import numpy as np

from workbench.training.gossip.graphs import Graph, Matrix


def rate(W: Matrix) -> float:
    """Return |λ₂|: 0 where one round makes all equal, 1 where some never agree."""
    if len(W) < 2:
        return 0.0
    moduli = np.sort(np.abs(np.linalg.eigvals(W)))
    return float(min(1.0, moduli[-2])) if moduli[-2] > 1e-12 else 0.0


def expected_disagreement(W: Matrix, rounds: int) -> float:
    """Return the share of the disagreement left after ``rounds``, for replicas that began at
    random.

    The disagreement is the root of the summed squares of distances from the mean. The share is
    ‖Wᵗ - J‖ / √(n-1) in Frobenius' norm, J = 1/n everywhere.
    """
    n = len(W)
    if n < 2:
        return 0.0
    left = np.linalg.matrix_power(W, rounds) - 1 / n
    return float(np.linalg.norm(left) / math.sqrt(n - 1))


def pairs_rate(topology: Graph, active: list[int]) -> float:
    """Return an upper bound of the mean disagreement left after one averaging of each ``active``
    rank.

    Each averages with a random neighbor, one rank after the other.
    """
    n = topology.ranks
    mean = np.zeros((n, n))
    for rank in active:
        neighbors = topology.out_of(rank)
        for other in neighbors:
            apart = np.zeros(n)
            apart[rank], apart[other] = 1, -1
            share = 1 / (len(active) * len(neighbors))
            mean += share * (np.eye(n) - np.outer(apart, apart) / 2)
    # An averaging is a projection, so that the mean of its square is its mean.
    return math.sqrt(rate(mean)) ** len(active)


def bytes_a_rank(topology: Graph, nbytes: int, every: int = 1) -> list[float]:
    """Return the bytes that each rank sends per iteration: ``nbytes`` to each peer per round."""
    return [nbytes * len(topology.out_of(rank)) / every for rank in range(topology.ranks)]
