"""α, overhead, β and γ of a machine from timed algorithms, and how well they tell the times.

What stands before each number depends on the path that takes longest, and that on the numbers: so
from a guess the walks are replayed, the numbers fitted to their paths, and again until it settles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workbench.choosing.clock import Time
from workbench.choosing.costs import Machine
from workbench.choosing.predict import function_of, time_of_walk
from workbench.theory.cost_model import non_negative

GUESS = Machine(10e-6, 5e-6, 3e-10, 1e-10)
TURNS = 8
LEAST = 0.01  # of a logarithm: nearer points are as good as on the line


@dataclass(frozen=True)
class Timed:
    """A measured burst: ``seconds`` a call, of the slowest rank."""

    operation: str
    algorithm: str
    n: int
    nbytes: int
    calls: int
    seconds: float


def burst(one: Timed, machine: Machine, cores: int) -> Time:
    """Return the model's prediction of a measured burst."""
    function = function_of(one.operation, one.algorithm)
    case = one.operation, function, one.n, one.nbytes, machine
    return time_of_walk(*case, cores=cores, calls=one.calls)


def fit(points: Sequence[Timed], cores: int) -> tuple[Machine, float]:
    """Return the machine that fits the points best, and its error.

    The error is the root mean square of the logarithms, so that small and large sizes count alike.
    """
    machine, best, least = GUESS, GUESS, math.inf
    seconds = np.array([one.seconds for one in points])
    for _ in range(TURNS):
        result = [burst(one, machine, cores) for one in points]
        logs = np.log(np.array([time.seconds for time in result]) / seconds)
        error = float(np.sqrt(np.mean(logs**2)))
        if error < least:
            best, least = machine, error
        A = np.array([time[1:] for time in result]) / seconds[:, None]
        x = non_negative(A, np.ones(len(points)), [*range(A.shape[1])])
        now = [
            machine.alpha_s,
            machine.overhead_s,
            machine.beta_s_per_byte,
            machine.gamma_s_per_byte,
        ]
        machine = Machine(*(float(a + b) / 2 for a, b in zip(now, x, strict=True)))
    return best, least


def smooth(points: Sequence[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """Return factors by size, at every other size: a line in logarithms that follows the points.

    It follows the majority: a busy machine may disturb single points. Papers: least absolute
    deviations
    by reweighting, Schlossmacher, JASA 68, 1973.
    """
    points = sorted((max(1, nbytes), factor) for nbytes, factor in points)
    x, y = (np.log(np.array(each)) for each in zip(*points, strict=True))
    knots = x[::2] if len(x) % 2 else np.append(x[::2], x[-1])
    hats = np.array([np.interp(x, knots, one) for one in np.eye(len(knots))]).T
    weights = np.ones(len(x))
    for _ in range(TURNS):
        root = np.sqrt(weights)
        at = np.linalg.lstsq(hats * root[:, None], y * root, rcond=None)[0]
        weights = 1 / np.maximum(np.abs(hats @ at - y), LEAST)
    return tuple(
        (round(float(np.exp(k))), round(float(np.exp(v)), 4))
        for k, v in zip(knots, at, strict=True)
    )
