"""The laws of consistency policies, in simulations of many kinds of workers, without processes.

The bound holds at every start and is reached under jitter; staleness 0 is BSP; in the same jitter
the policies wait in the order in which they bind.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from workbench.consistency.dssp import DSSP, extra_iterations
from workbench.training.parameter_servers import theory
from workbench.training.parameter_servers.clocks import Clocks, Policy, UsersOwn, policy
from workbench.training.parameter_servers.simulation import IterationNs, Simulated, simulate
from workbench.user_code import source

MS = 1_000_000
OPTIONS = {"staleness": 3, "staleness_max": 15, "mode": "strict"}
LONG = 20_000 * MS  # about 1,260 iterations of each worker under ASP


def jittery(
    mean_ns: int, probability: float, factor: float, seed: int = 0, spread: float = 0.1
) -> IterationNs:
    """Return iterations of about ``mean_ns`` (uniform within ``spread``), some ``factor`` times as
    long.

    Drawn from (seed, worker, iteration) alone, so every policy gets the same iterations.
    """

    def iteration_ns(worker: int, iteration: int) -> int:
        """Return the compute time of one iteration."""
        chance = np.random.default_rng([seed, worker, iteration])
        slow = factor if chance.random() < probability else 1.0
        return max(1, round(mean_ns * slow * chance.uniform(1 - spread, 1 + spread)))

    return iteration_ns


JITTER = jittery(10 * MS, 0.1, 6)


def run(name: Any, until_ns: int = LONG, workers: int = 4, **options: Any) -> Simulated:
    return simulate(policy(name, {**OPTIONS, **options}), JITTER, workers, until_ns)


def table(*clocks: int, pushes: dict[int, tuple[int, ...]] | None = None) -> Clocks:
    return Clocks(dict(enumerate(clocks)), pushes or dict.fromkeys(range(len(clocks)), ()))


@st.composite
def workers(draw: Any) -> tuple[int, Callable[[int, int], int]]:
    """Some workers: constant, slower by and by, or as chance has it."""
    count = draw(st.integers(1, 6))
    means = draw(st.lists(st.integers(1, 30), min_size=count, max_size=count))
    wild = draw(st.integers(0, 40))
    seed = draw(st.integers(0, 10**6))

    def iteration_ns(worker: int, iteration: int) -> int:
        chance = random.Random(f"{seed} {worker} {iteration}")
        return means[worker] + chance.randint(0, wild)

    return count, iteration_ns


# -- bounds --


@given(workers(), st.integers(0, 5))
def test_ssp_never_lets_lead_by_more_than_its_staleness(of: Any, staleness: int) -> None:
    count, iteration_ns = of
    rule = policy("ssp", {"staleness": staleness})
    simulation = simulate(rule, iteration_ns, count, 2_000)
    assert max(start.lead for start in simulation.starts) <= staleness == rule.bound


@given(workers(), st.integers(0, 4), st.integers(0, 12))
def test_strict_dssp_never_lets_lead_by_more_than_its_maximum(
    of: Any, staleness: int, more: int
) -> None:
    count, iteration_ns = of
    rule = DSSP(staleness, staleness + more)
    simulation = simulate(rule, iteration_ns, count, 2_000)
    assert max(start.lead for start in simulation.starts) <= staleness + more == rule.bound


def test_the_papers_dssp_exceeds_its_maximum_and_says_that_it_has_no_bound() -> None:
    """A worker stalls: the grants are renewed as often as they are used up."""

    def iteration_ns(worker: int, iteration: int) -> int:
        return 300 if worker == 2 and iteration > 5 else 10

    def furthest(rule: Policy) -> int:
        return max(start.lead for start in simulate(rule, iteration_ns, 3, 4_000).starts)

    paper = DSSP(1, 4, "paper")
    assert furthest(paper) > 20 and furthest(DSSP(1, 4)) == 4
    assert paper.bound is None


@given(workers())
def test_bsp_never_lets_lead_and_no_gradient_is_stale(of: Any) -> None:
    count, iteration_ns = of
    simulation = simulate(policy("bsp"), iteration_ns, count, 2_000)
    assert {start.lead for start in simulation.starts} == {0}
    assert set(simulation.staleness) <= {0}


@given(workers())
def test_asp_lets_no_worker_wait(of: Any) -> None:
    count, iteration_ns = of
    simulation = simulate(policy("asp"), iteration_ns, count, 2_000)
    assert simulation.waiting == 0


@given(workers())
def test_staleness_0_is_bsp(of: Any) -> None:
    count, iteration_ns = of
    rule = policy("ssp", {"staleness": 0})
    assert rule.synchronous and not policy("ssp").synchronous
    assert simulate(rule, iteration_ns, count, 2_000) == simulate(
        policy("bsp"), iteration_ns, count, 2_000
    )


@given(workers())
def test_the_slowest_is_never_waited_for_in_vain(of: Any) -> None:
    """No worker stands forever: at the end of a long time every worker has gone on."""
    count, iteration_ns = of
    for name in source.available("consistency"):
        simulation = simulate(policy(name, OPTIONS), iteration_ns, count, 3_000)
        assert min(simulation.clocks.values()) >= 3_000 // (30 + 40) - 1


@pytest.mark.parametrize("staleness", [1, 3, 15])
def test_the_bound_is_reached_under_jitter(staleness: int) -> None:
    assert max(start.lead for start in run("ssp", staleness=staleness).starts) == staleness


# -- what binding costs --


def test_under_the_same_jitter_the_policies_wait_in_the_order_in_which_they_bind() -> None:
    """10 % of iterations last six times as long, 4 workers."""
    simulations = [
        run("bsp"),
        run("ssp", staleness=1),
        run("ssp"),
        run("dssp"),
        run("ssp", staleness=15),
        run("asp"),
    ]
    done = [one.iterations for one in simulations]
    assert done[0] < done[1] < done[2] <= done[3] <= done[4] <= done[5]
    waiting = [one.waiting for one in simulations]
    assert waiting == pytest.approx([0.46, 0.32, 0.19, 0.16, 0.07, 0], abs=0.04)
    share = [one / done[-1] for one in done]
    assert share == pytest.approx([0.55, 0.68, 0.81, 0.84, 0.93, 1], abs=0.04)


def test_with_constant_speeds_ssp_has_the_throughput_of_bsp() -> None:
    def iteration_ns(worker: int, iteration: int) -> int:
        return 10 + 5 * worker

    slow, fast = (simulate(policy(name), iteration_ns, 3, 20_000) for name in ("bsp", "ssp"))
    assert min(fast.clocks.values()) == min(slow.clocks.values()) == 1_000
    assert fast.iterations - slow.iterations <= 2 * (3 + 1)  # a head start, once


def test_bsp_waits_as_long_as_the_longest_of_its_iterations_says() -> None:
    exact = jittery(10 * MS, 0.1, 6, spread=0.0)
    for count in (2, 4, 8):
        simulation = simulate(policy("bsp"), exact, count, LONG)
        assert simulation.waiting == pytest.approx(theory.bsp_waiting(count, 0.1, 6), abs=0.02)


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_asp_of_equal_workers_is_as_stale_as_there_are_others(count: int) -> None:
    simulation = simulate(policy("asp"), lambda worker, _: 1_000 + worker, count, 100_000)
    late = simulation.staleness[count * 3 : count * 50]
    assert set(late) == {theory.asp_staleness(count)}


def test_a_simulation_is_the_same_each_time() -> None:
    assert run("dssp") == run("dssp")


# -- DSSP's controller --


def test_the_controller_grants_what_ends_closest_to_a_push_of_the_slowest() -> None:
    # the slowest pushes at 120, 145, 170; the fastest could stop at 100, 110, 120, ...
    assert extra_iterations((90, 100), (70, 95), 12) == 2
    assert extra_iterations((90, 100), (70, 95), 1) == 1
    assert extra_iterations((90, 100), (70, 95), 0) == 0
    assert extra_iterations((70, 100), (70, 99), 5) == 1  # at 130, with 128; none would wait 28


@given(
    st.tuples(st.integers(0, 100), st.integers(1, 50)),
    st.tuples(st.integers(0, 100), st.integers(1, 50)),
    st.integers(0, 15),
)
def test_no_other_grant_would_wait_less(fast: Any, slow: Any, most: int) -> None:
    """Against the paper's own form, all of both simulated pushes."""
    last, every = fast[0] + 100, fast[1]
    start, apart = slow[0] + 50, slow[1]
    simulated_s = [start + (k + 1) * apart for k in range(1_000)]
    simulated_p = [last + r * every for r in range(most + 1)]
    waits = [min(abs(s - p) for s in simulated_s) for p in simulated_p]
    extra = extra_iterations((last - every, last), (start - apart, start), most)
    assert 0 <= extra <= most and extra == waits.index(min(waits))


def test_without_an_interval_of_both_nothing_is_granted() -> None:
    assert extra_iterations((), (1, 2), 5) == extra_iterations((3,), (1, 2), 5) == 0
    assert extra_iterations((1, 2), (3,), 5) == 0


def test_a_grant_is_given_to_the_fastest_alone_and_used_up() -> None:
    rule = DSSP(1, 5)
    pushes: dict[int, tuple[int, ...]] = {0: (90, 100), 1: (90, 100), 2: (70, 95)}
    clocks = table(5, 4, 2, pushes=pushes)
    rule.pushed(1, clocks)
    assert rule.slack == {} and not rule.may_start(1, 4, clocks)
    rule.pushed(0, clocks)
    assert rule.slack == {0: 2}
    assert [rule.may_start(0, c, clocks) for c in (5, 6, 7)] == [True, True, False]
    rule.pushed(0, table(6, 4, 2, pushes=pushes))
    assert rule.slack == {0: 1}


def test_a_worker_that_was_lost_is_waited_for_no_more() -> None:
    for name in ("bsp", "ssp"):
        rule = policy(name)
        assert not rule.may_start(0, 6, table(6, 1, 6))
        assert rule.may_start(0, 6, Clocks({0: 6, 2: 6}, {}))


# -- options, and policies of one's own --


def test_a_policy_gets_the_options_that_it_names() -> None:
    rule = policy("dssp", {"staleness": 2, "staleness_max": 7, "mode": "paper"})
    assert isinstance(rule, DSSP)
    assert (rule.staleness, rule.staleness_max, rule.mode) == (2, 7, "paper")
    assert policy("ssp", {"staleness": 2, "staleness_max": 7, "mode": "paper"}).bound == 2
    assert policy("bsp", OPTIONS).bound == 0 and policy("asp", OPTIONS).bound is None
    assert policy("dssp", OPTIONS).bound == 15


def generous(worker: int, iteration: int, clocks: Clocks) -> bool:
    return iteration - clocks.slowest <= 2


class Generous:
    """Only what must be there."""

    def __init__(self, staleness: int = 0) -> None:
        self.most = staleness
        self.heard: list[int] = []

    def may_start(self, worker: int, iteration: int, clocks: Clocks) -> bool:
        return iteration - clocks.slowest <= self.most

    def pushed(self, worker: int, clocks: Clocks) -> None:
        self.heard.append(worker)


class Inherits(Policy):
    bound = 2

    def may_start(self, worker: int, iteration: int, clocks: Clocks) -> bool:
        return iteration - clocks.slowest <= 2


def test_ones_own_policy_works_like_a_built_in_one(tmp_path: Path) -> None:
    expected = simulate(policy("ssp", {"staleness": 2}), JITTER, 4, LONG // 10)
    file = tmp_path / "mine.py"
    file.write_text(
        "def mine(worker, iteration, clocks):\n    return iteration < clocks.slowest + 3\n"
    )
    options = {"staleness": 2}
    for own in (
        generous,
        Generous,
        Inherits,
        Generous(2),
        source.capture(generous),
        source.capture(Generous),
        f"{file}:mine",
    ):
        rule = policy(own, options)
        assert simulate(rule, JITTER, 4, LONG // 10) == expected
        assert not rule.synchronous and rule.slack == {}


def test_ones_own_controller_hears_of_pushes() -> None:
    own = Generous(1)
    simulation = simulate(policy(own), JITTER, 2, LONG // 100)
    assert len(own.heard) == simulation.iterations


class Needy:
    def __init__(self, patience: int) -> None: ...

    def may_start(self, worker: int, iteration: int, clocks: Clocks) -> bool:
        return True


class Deaf:
    def may_start(self, worker: int, iteration: int, clocks: Clocks) -> bool:
        return True

    def pushed(self) -> None: ...


def too_few(worker: int) -> bool:
    return True


@pytest.mark.parametrize(
    ("value", "options", "words"),
    [
        ("bps", {}, "did you mean 'bsp'"),
        (3, {}, "not a policy.*asp, bsp, dssp, ssp"),
        (Needy, {}, "Needy needs patience"),
        (Deaf, {}, "Deaf: pushed takes.*called with"),
        (too_few, {}, r"too_few: may_start takes \(worker: .*called with"),
        ("ssp", {"staleness": -1}, "staleness = -1"),
        ("dssp", {"staleness": 3, "staleness_max": 2}, "staleness_max = 2"),
        ("dssp", {"mode": "loose"}, "dssp_mode = 'loose'.*'strict' or 'paper'"),
    ],
)
def test_what_is_not_a_policy_is_refused_in_words(value: Any, options: Any, words: str) -> None:
    with pytest.raises(wb.SpecError, match=words):
        policy(value, options)


def test_a_users_object_is_wrapped_and_ours_is_not() -> None:
    assert isinstance(policy(generous), UsersOwn)
    assert type(policy(Inherits)) is Inherits


# -- theory --


def test_a_servers_bytes_are_twice_its_share_for_each_worker() -> None:
    elements, nbytes = 6_000, 24_000
    assert theory.server_bytes(elements, 3) == (6 * nbytes,)
    assert theory.server_bytes(elements, 3, 3) == (2 * nbytes,) * 3
    assert max(theory.server_bytes(elements, 3, 3, [2 / 3, 1 / 6, 1 / 6])) == 4 * nbytes
    assert sum(theory.server_bytes(44_426, 5, 3, "hash")) == 2 * 5 * 44_426 * 4
    assert theory.ring_bytes(elements, 3) == pytest.approx(8 / 3 * nbytes)


@pytest.mark.parametrize("staleness", [0, 1, 2, 5, 15])
def test_descent_with_stale_gradients_diverges_beyond_the_largest_rate(staleness: int) -> None:
    limit = theory.largest_rate(staleness, curvature=3.0)
    below, above = (
        max(theory.delayed_descent(limit * factor, staleness, 4_000, 3.0)[-100:])
        for factor in (0.98, 1.02)
    )
    assert below < 0.1 and above > 10


@pytest.mark.parametrize(("workers", "staleness"), [(1, 0), (4, 0), (4, 3), (8, 9)])
def test_descent_under_ssp_stays_below_its_regret_bound(workers: int, staleness: int) -> None:
    """On |x - a| for drawn a, with gradients as old as they may be, for many seeds."""
    updates, old = 2_000, (2 * staleness + 1) * (workers - 1)  # the most that a read may lack
    for seed in range(20):
        draw = np.random.default_rng(seed)
        targets = draw.uniform(-0.5, 0.5, updates)
        xs, x = [0.5], 0.5
        for at, target in enumerate(targets, 1):
            seen = xs[max(0, len(xs) - 1 - old)]
            rate = theory.ssp_rate(at, workers, staleness)
            x = float(np.clip(x - rate * np.sign(seen - target), -0.5, 0.5))
            xs.append(x)
        best = np.abs(np.median(targets) - targets).sum()
        regret = np.abs(np.array(xs[:-1]) - targets).sum() - best
        assert regret <= theory.regret_bound(updates, workers, staleness)
    growth = [theory.regret_bound(n, workers, staleness) / n for n in (100, 400)]
    assert growth[0] == pytest.approx(2 * growth[1]), "per update it falls as 1/sqrt(n)"
    more = theory.regret_bound(100, workers, 4 * staleness + 3)
    assert more == pytest.approx(2 * theory.regret_bound(100, workers, staleness))


def test_more_workers_than_a_server_can_serve_are_not_faster() -> None:
    assert theory.throughput_bound(2, 0.009, 0.001) == pytest.approx(200)
    assert theory.throughput_bound(10, 0.009, 0.001) == pytest.approx(1_000)
    assert theory.throughput_bound(50, 0.009, 0.001) == pytest.approx(1_000)
