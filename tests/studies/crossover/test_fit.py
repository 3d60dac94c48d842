"""A fit finds the machine that made the times, and says how far off it is."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.choosing.choose import candidates
from workbench.choosing.clock import Time
from workbench.choosing.costs import Machine
from workbench.choosing.predict import predict
from workbench.studies.crossover.calibrate import fit_machines
from workbench.studies.crossover.fit import Timed, burst, fit, smooth

TRUE = Machine(20e-6, 6e-6, 4e-10, 1.5e-10)
SIZES = (1024, 16384, 1 << 18, 1 << 21)
NAMES = ("ring", "naive", "one_shot", "tree")


def timed_bursts(n: int, cores: int, noise: float = 0.0) -> list[Timed]:
    chance = np.random.default_rng(0)
    result = []
    for name in NAMES:
        for nbytes in SIZES:
            one = Timed("all_reduce", name, n, nbytes, 2, 1.0)
            seconds = burst(one, TRUE, cores).seconds * float(np.exp(noise * chance.normal()))
            result.append(Timed("all_reduce", name, n, nbytes, 2, seconds))
    return result


@pytest.mark.parametrize(("n", "cores"), [(2, 8), (4, 8), (4, 2)])
def test_times_of_a_machine_give_that_machine(n: int, cores: int) -> None:
    machine, error = fit(timed_bursts(n, cores), cores)
    assert error < 0.02
    for name in candidates("all_reduce", n):  # those that were not timed too
        for nbytes in (4096, 1 << 19):
            one = Timed("all_reduce", name, n, nbytes, 1, 1.0)
            predicted, true = burst(one, machine, cores).seconds, burst(one, TRUE, cores).seconds
            assert predicted == pytest.approx(true, rel=0.06), (name, nbytes)


def test_noise_is_said_and_does_not_carry_away() -> None:
    machine, error = fit(timed_bursts(4, 8, noise=0.2), 8)
    assert 0.1 < error < 0.3
    one = Timed("all_reduce", "rabenseifner", 4, 1 << 18, 1, 1.0)
    assert burst(one, machine, 8).seconds == pytest.approx(burst(one, TRUE, 8).seconds, rel=0.35)


def test_own_factors_make_up_for_what_one_machine_cannot_say() -> None:
    points = timed_bursts(4, 2)
    odd = [
        Timed(**{**vars(p), "seconds": p.seconds * (3 if p.algorithm == "ring" else 1)})
        for p in points
    ]
    costs, errors = fit_machines(odd, {4: 5e-5}, on=2)
    assert errors[4] > 0.2
    assert costs.machine(4).wake_s == 5e-5
    for one in odd:  # what "auto" goes by is what was measured: the time of a call among others
        says = predict("all_reduce", one.algorithm, 4, one.nbytes, costs)
        assert says == pytest.approx(one.seconds, rel=0.05), (one.algorithm, one.nbytes)


def test_a_burst_is_told_by_the_call() -> None:
    one, many = (Timed("all_reduce", "ring", 4, 4096, calls, 1.0) for calls in (1, 4))
    single, among = burst(one, TRUE, 8), burst(many, TRUE, 8)
    assert isinstance(among, Time)
    assert 0.5 * single.seconds < among.seconds <= 1.001 * single.seconds


def test_a_line_passes_between_points_and_one_that_lies_apart_does_not_carry_it_away() -> None:
    sizes = [1 << k for k in range(10, 27, 2)]
    straight = [(size, 2.0 * (size / 1024) ** 0.1) for size in sizes]
    assert dict(smooth(straight)) == pytest.approx(dict(straight[::2]), rel=1e-3)
    apart = [(size, factor * (5 if size == 1 << 18 else 1)) for size, factor in straight]
    smoothed = dict(smooth(apart))
    assert smoothed[1 << 10] == pytest.approx(straight[0][1], rel=0.05)
    assert smoothed[1 << 26] == pytest.approx(straight[-1][1], rel=0.05)
    assert smooth([(0, 1.5)]) == ((1, 1.5),)  # a barrier moves nothing
    assert smooth([(1024, 2.0), (4096, 3.0)]) == ((1024, 2.0), (4096, 3.0))
