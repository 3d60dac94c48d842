"""How far workers of a parameter server may lead, and do; one that is bound more waits more."""

from __future__ import annotations

import time
from typing import Any

import polars as pl
import pytest

import workbench as wb
from tests.live import crowding, lasting, of
from tests.pairwise import first
from tests.training.parameter_servers.served import JITTER, done, lawful, led, served
from workbench.training.parameter_servers import laws as server_laws
from workbench.training.parameter_servers import theory
from workbench.training.parameter_servers.clocks import Clocks

# -- bounds --


@pytest.mark.alone
@pytest.mark.parametrize(
    ("options", "reached"),
    first(
        2,
        [
            ({"consistency": "ssp", "staleness": 1}, 1),
            ({"consistency": "ssp", "staleness": 2, "servers": 2}, 2),
            ({"consistency": "bsp"}, 0),
            ({"consistency": "ssp", "staleness": 3}, 3),
        ],
    ),
    ids=str,
)
def test_the_bound_is_kept_and_reached_under_jitter(options: Any, reached: int) -> None:
    run, _ = done(served(pad_compute="3 ms", faults=JITTER, iterations=100, **options))
    lawful(run)
    assert led(run) == reached


@pytest.mark.alone
@pytest.mark.parametrize("servers", [1, 2])
def test_strict_dssp_goes_beyond_its_lower_bound_and_never_beyond_its_upper(servers: int) -> None:
    run, _ = done(
        served(
            "dssp",
            staleness=1,
            staleness_max=4,
            pad_compute="3 ms",
            iterations=120,
            faults=(*JITTER, wb.Slow(rank=servers, factor=2)),
            servers=servers,
        )
    )
    events = lawful(run)
    slack = of(events, kind="metric", name="slack")
    assert slack.height > 0 and slack["value"].max() <= 3
    if servers == 1:
        assert 1 < led(run) <= 4


@pytest.mark.alone
def test_asp_leads_by_as_much_as_a_slow_worker_lags() -> None:
    run, _ = done(served("asp", pad_compute="3 ms", faults=(wb.Slow(rank=3, factor=6),)))
    lawful(run)
    assert led(run) > 20


def one_ahead(worker: int, iteration: int, clocks: Clocks) -> bool:
    return iteration - clocks.slowest <= 1


@pytest.mark.alone
def test_ones_own_policy_works_like_a_built_in_one() -> None:
    run, _ = done(served(one_ahead, pad_compute="3 ms", faults=JITTER, iterations=80))
    lawful(run)
    assert led(run) == 1
    assert server_laws.bound_kept(run.events, 1) == [] != server_laws.bound_kept(run.events, 0)


@pytest.mark.alone
def test_a_policy_of_a_class_gets_the_options_that_it_names() -> None:
    class Own:
        def __init__(self, staleness: int) -> None:
            self.bound = self.most = staleness

        def may_start(self, worker: int, iteration: int, clocks: Clocks) -> bool:
            return iteration - clocks.slowest <= self.most

    run, _ = done(served(Own, staleness=2, pad_compute="3 ms", faults=JITTER, iterations=80))
    assert server_laws.bound_kept(run.events, 2) == [] and led(run) == 2


def mistaken(worker: int, iteration: int, clocks: Clocks) -> bool:
    return iteration <= clocks.slow  # type: ignore[attr-defined,no-any-return]


def test_a_mistake_in_ones_own_policy_ends_the_run_with_its_traceback() -> None:
    with pytest.raises(wb.RankError, match="no attribute 'slow'") as caught:
        done(served(mistaken))
    assert caught.value.rank == 0 and "return iteration <= clocks.slow" in str(caught.value)


def never(worker: int, iteration: int, clocks: Clocks) -> bool:
    return iteration == 0


@pytest.mark.full
def test_a_policy_that_lets_no_worker_go_on_ends_the_run_after_its_timeout() -> None:
    begin = time.monotonic()
    with pytest.raises(wb.RunTimeout, match=r"waits for rank 0|lets no worker start"):
        done(served(never, timeout="6 s"))  # by then all have joined, on busy cores too
    assert time.monotonic() - begin < 25 * crowding()


# -- a worker that is bound more waits more --


def blocked(run: wb.Run) -> float:
    """Share of the workers' time in which they wait for a grant."""
    events = run.events
    waits = of(events, kind="wait", group="control").filter(pl.col("rank") > 0)
    work = events.filter(pl.col("rank") > 0, pl.col("iteration") >= 0)
    time_of = work.group_by("rank").agg(
        (pl.col("end_ns").max() - pl.col("start_ns").min()).alias("ns")
    )
    return lasting(waits).sum() * 1e6 / time_of["ns"].sum()


@pytest.mark.alone
def test_under_the_same_jitter_a_worker_that_is_bound_more_waits_more() -> None:
    """Three workers, 15 % of iterations six times as long, the same ones in each run."""
    waiting = []
    for options in (
        {"consistency": "bsp"},
        {"consistency": "ssp", "staleness": 1},
        {"consistency": "ssp", "staleness": 4},
        {"consistency": "asp"},
    ):
        run, _ = done(served(pad_compute="15 ms", faults=JITTER, iterations=50, **options))
        waiting.append(blocked(run))
    assert waiting == sorted(waiting, reverse=True)
    assert waiting[0] > waiting[2] + 0.1 > 0.1
    assert waiting[0] == pytest.approx(theory.bsp_waiting(3, 0.15, 6), abs=0.12)


@pytest.mark.alone
def test_asp_of_equal_workers_is_as_stale_as_there_are_others() -> None:
    run, _ = done(served("asp", workers=4, pad_compute="40 ms"))
    applies = of(lawful(run), kind="apply").filter(pl.col("iteration") > 2)
    assert applies["value"].mean() == pytest.approx(theory.asp_staleness(4), abs=0.25)


@pytest.mark.alone
@pytest.mark.parametrize("workers", [2, 4])
def test_at_a_slow_server_each_push_waits_for_those_of_all_others(workers: int) -> None:
    exp = served("asp", workers=workers, iterations=20, faults=(wb.Slow(rank=0, factor=300),))
    run, _ = done(exp)
    events = lawful(run)
    pushes = workers * exp.iterations
    applies = of(events, kind="apply").sort("start_ns")
    service_s = lasting(applies).median() / 1e3
    rate = 1e9 / applies["start_ns"].diff().median()  # at most times: cores may be busy
    most = theory.throughput_bound(workers, 0.0, service_s)
    assert 0.8 * most <= rate <= 1.02 * most
    waits = server_laws.queue_waits(events)
    assert waits.height == pushes
    assert waits["wait_ns"].median() / 1e9 == pytest.approx((workers - 1) * service_s, rel=0.4)
    assert of(events, kind="metric", name="queue").height == pushes
