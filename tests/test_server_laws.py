"""The laws of the parameter server, over real processes, read from their events.

BSP is sequential training, however the parameters are cut over servers; a bound is kept at every
start and reached under jitter; under the same jitter whoever is bound more waits more; bytes are
what theory says, to the byte; a worker that is frozen or killed stops the others exactly as far as
their policy says. And each law fails on a table that was tampered with.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import workbench as wb
from tests.live import LONG, gone, lasting, of, over_in_the_end, until
from tests.pairwise import Case, full, pairwise
from tests.test_training_laws import LOSS_BOUND, PARAMETER_BOUND, name_of, rule, sequential
from workbench import laws, server_laws
from workbench import parameter_server_theory as theory
from workbench.batches import Minibatches, partition
from workbench.clocks import Clocks, policy
from workbench.placement import held, place

pytestmark = pytest.mark.timing  # how far workers lead, wait and miss is a matter of pace

LENET = 61_706  # elements of its parameters
SHARES = [0.667, 0.167, 0.166]
JITTER = (wb.Jitter(probability=0.15, factor=6),)


class Digits:
    """A task of one small layer, so that the server is the subject."""

    ELEMENTS = 650

    def model(self) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))

    def dataset(self, split: str) -> Any:
        random = np.random.default_rng(0)
        x = torch.tensor(random.normal(size=(437, 1, 8, 8)), dtype=torch.float32)
        return torch.utils.data.TensorDataset(x, x.flatten(1)[:, :10].argmax(1))

    def loss(self, model: torch.nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
        x = batch[0].to(next(model.parameters()).dtype)
        return torch.nn.functional.cross_entropy(model(x), batch[1])


def served(consistency: Any = "bsp", workers: int = 3, **fields: Any) -> wb.Experiment:
    """A small experiment with a parameter server; what is no field is an option."""
    given = {**fields, "consistency": consistency}
    own = {name: given.pop(name) for name in [*given] if name not in wb.Experiment.model_fields}
    base = {"task": Digits, "iterations": 40, "batch_size": 48, "lr": 0.05}
    return wb.Experiment(
        strategy="parameter_server", ranks=workers + own.get("servers", 1), options=own,
        **{**base, **given},
    )  # fmt: skip


def elements(exp: wb.Experiment) -> list[int]:
    count = LENET if exp.task == "lenet_digits" else Digits.ELEMENTS
    return [count] * exp.options.get("models", 1)


def bound(exp: wb.Experiment) -> int | None:
    options = {"mode": exp.options.get("dssp_mode", "strict"), **exp.options}
    return policy(exp.options["consistency"], options).bound


def lawful(run: wb.Run, *, complete: bool = True) -> pl.DataFrame:
    """The run's events, in which every law holds: those of all runs, and the server's."""
    exp, events = run.experiment, run.events
    assert laws.check_events(events, complete=complete) == []
    limit = bound(exp)
    found = server_laws.check_server(
        events, exp, elements=elements(exp), bound=limit, complete=complete
    )
    assert [str(one) for one in found] == []
    return events


def done(exp: wb.Experiment) -> tuple[wb.Run, wb.Result]:
    run = wb.run(exp)
    return run, run.wait(timeout=120)


def led(run: wb.Run) -> int:
    options = run.experiment.options
    return server_laws.leads(run.events, options.get("servers", 1), options.get("models", 1))[
        "lead"
    ].max()


def same(a: wb.Result, b: wb.Result) -> bool:
    """The same parameters, bit for bit."""
    return a.parameters.keys() == b.parameters.keys() and all(
        torch.equal(value, b.parameters[name]) for name, value in a.parameters.items()
    )


# -- BSP is sequential training, however it is cut --

FACTORS: dict[str, list[Any]] = {
    "workers": [1, 2, 3, 5],
    "servers": [1, 2, 3],
    "placement": ["even", "hash", "shares"],
    "batch_size": [16, 3],  # 3 leaves some of 5 workers without a sample
    "optimizer": ["sgd", "momentum", "adam"],
    "dtype": ["float32", "float64"],
}
SAMPLE = pairwise(FACTORS)
ITERATIONS = 20


def settled(case: Case) -> wb.Experiment:
    servers, placement = case["servers"], case["placement"]
    if placement == "shares":
        placement = [0.6, *[0.4 / (servers - 1)] * (servers - 1)] if servers > 1 else [1.0]
    return served(
        task="lenet_digits", workers=case["workers"], servers=servers, placement=placement,
        batch_size=case["batch_size"], dtype=case["dtype"], iterations=ITERATIONS,
        **rule(case["optimizer"], case["batch_size"]),
    )  # fmt: skip


def equals_sequential(case: Case) -> None:
    reference = sequential(case["optimizer"], case["dtype"], case["batch_size"], ITERATIONS)
    run, result = done(settled(case))
    difference = np.abs(np.subtract(result.losses, reference.losses)).max()
    assert difference <= LOSS_BOUND[case["dtype"]], f"losses differ by {difference:.2e}"
    for name, value in reference.parameters.items():
        furthest = (value - result.parameters[name]).abs().max().item()
        assert furthest <= PARAMETER_BOUND[case["dtype"]], f"{name} differs by {furthest:.2e}"
    lawful(run)


@pytest.mark.parametrize("case", SAMPLE, ids=name_of)
def test_bsp_equals_sequential(case: Case) -> None:
    equals_sequential(case)


@pytest.mark.full
@pytest.mark.parametrize("case", [c for c in full(FACTORS) if c not in SAMPLE], ids=name_of)
def test_bsp_equals_sequential_in_every_case(case: Case) -> None:
    equals_sequential(case)


@cache
def single() -> wb.Result:
    return done(served(task="lenet_digits", momentum=0.9))[1]


@pytest.mark.parametrize(
    "options",
    [
        {"servers": 3},
        {"servers": 3, "placement": SHARES},
        {"servers": 2, "placement": "hash"},
        {"consistency": "ssp", "staleness": 0},
        {"consistency": "ssp", "staleness": 0, "servers": 2, "faults": JITTER},
    ],
    ids=str,
)
def test_neither_shards_nor_ssp_0_change_bsp_by_a_bit(options: dict[str, Any]) -> None:
    run, result = done(served(task="lenet_digits", momentum=0.9, **options))
    assert same(result, single()) and result.losses == single().losses
    lawful(run)


@pytest.mark.parametrize("servers", [1, 2])
def test_two_models_on_the_same_servers_train_as_if_each_were_alone(servers: int) -> None:
    """Workers 0, 2 train one, workers 1, 3 the other, on the next seed."""
    run, both = done(served(workers=4, models=2, servers=servers, momentum=0.5))
    lawful(run)
    for number, prefix in enumerate(["", "model 1/"]):
        _, alone = done(served(workers=2, servers=servers, seed=number, momentum=0.5))
        for name, value in alone.parameters.items():
            assert torch.equal(value, both.parameters[prefix + name])
    assert not torch.equal(both.parameters["1.bias"], both.parameters["model 1/1.bias"])


# -- bounds --


@pytest.mark.parametrize(
    ("options", "reached"),
    [
        ({"consistency": "bsp"}, 0),
        ({"consistency": "ssp", "staleness": 1}, 1),
        ({"consistency": "ssp", "staleness": 3}, 3),
        ({"consistency": "ssp", "staleness": 2, "servers": 2}, 2),
    ],
    ids=str,
)
def test_the_bound_is_kept_and_reached_under_jitter(options: Any, reached: int) -> None:
    run, _ = done(served(pad_compute="3 ms", faults=JITTER, iterations=100, **options))
    lawful(run)
    assert led(run) == reached


@pytest.mark.parametrize("servers", [1, 2])
def test_strict_dssp_goes_beyond_its_lower_bound_and_never_beyond_its_upper(servers: int) -> None:
    run, _ = done(
        served(
            "dssp", staleness=1, staleness_max=4, pad_compute="3 ms", iterations=120,
            faults=(*JITTER, wb.Slow(rank=servers, factor=2)), servers=servers,
        )
    )  # fmt: skip
    events = lawful(run)
    slack = of(events, kind="metric", name="slack")
    assert slack.height > 0 and slack["value"].max() <= 3
    if servers == 1:
        assert 1 < led(run) <= 4


def test_asp_leads_by_as_much_as_a_slow_worker_lags() -> None:
    run, _ = done(served("asp", pad_compute="3 ms", faults=(wb.Slow(rank=3, factor=6),)))
    lawful(run)
    assert led(run) > 20


def one_ahead(worker: int, iteration: int, clocks: Clocks) -> bool:
    return iteration - clocks.slowest <= 1


def test_ones_own_policy_works_like_a_built_in_one() -> None:
    run, _ = done(served(one_ahead, pad_compute="3 ms", faults=JITTER, iterations=80))
    lawful(run)
    assert led(run) == 1
    assert server_laws.bound_kept(run.events, 1) == [] != server_laws.bound_kept(run.events, 0)


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


def test_a_policy_that_lets_nobody_go_on_ends_the_run_after_its_timeout() -> None:
    begin = time.monotonic()
    with pytest.raises(wb.RunTimeout, match=r"waits for rank 0|lets nobody start"):
        done(served(never, timeout="2 s"))
    assert time.monotonic() - begin < 20


# -- who is bound more waits more --


def blocked(run: wb.Run) -> float:
    """Share of the workers' time in which they wait for a grant."""
    events = run.events
    waits = of(events, kind="wait", group="control").filter(pl.col("rank") > 0)
    work = events.filter(pl.col("rank") > 0, pl.col("iteration") >= 0)
    time_of = work.group_by("rank").agg(
        (pl.col("end_ns").max() - pl.col("start_ns").min()).alias("ns")
    )
    return lasting(waits).sum() * 1e6 / time_of["ns"].sum()


def test_under_the_same_jitter_whoever_is_bound_more_waits_more() -> None:
    """Three workers, 15 % of iterations six times as long, the same ones in each run."""
    waiting, seconds = [], []
    for options in (
        {"consistency": "bsp"},
        {"consistency": "ssp", "staleness": 1},
        {"consistency": "ssp", "staleness": 4},
        {"consistency": "asp"},
    ):
        run, result = done(served(pad_compute="6 ms", faults=JITTER, iterations=100, **options))
        waiting.append(blocked(run))
        seconds.append(result.wall_seconds)
    assert waiting == sorted(waiting, reverse=True) and seconds[:3] == sorted(seconds[:3])[::-1]
    assert waiting[0] > waiting[2] + 0.1 > 0.1
    assert waiting[0] == pytest.approx(theory.bsp_waiting(3, 0.15, 6), abs=0.12)


def test_asp_of_equal_workers_is_as_stale_as_there_are_others() -> None:
    run, _ = done(served("asp", workers=4, pad_compute="12 ms"))
    applies = of(lawful(run), kind="apply").filter(pl.col("iteration") > 2)
    assert applies["value"].mean() == pytest.approx(theory.asp_staleness(4), abs=0.25)


@pytest.mark.parametrize("workers", [2, 4])
def test_at_a_slow_server_each_push_waits_for_those_of_all_others(workers: int) -> None:
    exp = served("asp", workers=workers, iterations=20, faults=(wb.Slow(rank=0, factor=100),))
    run, result = done(exp)
    events = lawful(run)
    pushes = workers * exp.iterations
    service_s = lasting(of(events, kind="apply")).sum() / 1e3 / pushes
    rate = pushes / result.wall_seconds
    most = theory.throughput_bound(workers, 0.0, service_s)
    assert 0.8 * most <= rate <= 1.02 * most
    waits = server_laws.queue_waits(events)
    assert waits.height == pushes
    assert waits["wait_ns"].mean() / 1e9 == pytest.approx((workers - 1) * service_s, rel=0.4)
    assert of(events, kind="metric", name="queue").height == pushes


# -- bytes --


@pytest.mark.parametrize("consistency", ["bsp", "asp"])
@pytest.mark.parametrize(
    "options",
    [{"servers": 1}, {"servers": 3}, {"servers": 3, "placement": SHARES}, {"placement": "hash"}],
    ids=str,
)
def test_bytes_are_two_for_each_worker_and_byte_of_a_servers_share(
    options: dict[str, Any], consistency: str
) -> None:
    exp = served(consistency, task="lenet_digits", iterations=6, **{"servers": 2, **options})
    run, result = done(exp)
    lawful(run)
    servers, placement = exp.options["servers"], exp.options.get("placement", "even")
    expected = theory.server_bytes(LENET, 3, servers, placement)
    for server, nbytes in enumerate(expected):
        assert result.bytes_sent[server] == nbytes // 2 * exp.iterations
    share = [held(ranges) for ranges in place(LENET, servers, placement)]
    for worker in range(servers, exp.ranks):
        assert result.bytes_sent[worker] == sum(share) * 4 * exp.iterations


# -- stale gradients --


def test_dropped_samples_are_counted_exactly() -> None:
    """ASP with one slow worker: what missed more than 2 updates is left out, and nothing else."""
    exp = served(
        "asp", stale_gradients="drop", drop_above=2, batch_size=50, iterations=30,
        pad_compute="5 ms", faults=(wb.Slow(rank=1, factor=6),),
    )  # fmt: skip
    run, _ = done(exp)
    events = lawful(run)
    dropped = of(events, kind="metric", name="dropped")
    assert 0 < dropped.height < 90
    batches = Minibatches(437, 50, exp.seed)
    for row in dropped.iter_rows(named=True):
        mine = partition(batches.ids(row["iteration"]), row["peer"] - 1, 3)
        assert row["value"] == len(mine)
    counted = server_laws.dropped_samples(events)
    assert counted["samples"].to_list() == [int(dropped["value"].sum())]
    pulled = of(events, kind="push").select("iteration", "peer", "rank", pulled="version")
    pulled = pulled.rename({"rank": "peer", "peer": "rank"})
    missed = dropped.join(pulled, on=["iteration", "peer", "rank"])
    assert missed.height == dropped.height and (missed["version"] - missed["pulled"]).min() > 2
    applies = of(events, kind="apply")
    assert applies["value"].max() <= 2
    assert applies.height + dropped.height == 3 * exp.iterations
    assert applies["version"].max() == applies.height


def test_what_is_left_out_leaves_no_trace_in_the_training_of_others() -> None:
    """The losses of a fast worker, all gradients of the slow one left out, are those without it."""
    losses = []
    for fault in (wb.Slow(rank=2, factor=20), wb.Kill(rank=2, at_iteration=0)):
        exp = served(
            "asp", workers=2, stale_gradients="drop", drop_above=0, iterations=12, faults=(fault,),
            pad_compute="4 ms", momentum=0.5,
        )  # fmt: skip
        run, _ = done(exp)
        mine = of(run.events, kind="metric", name="loss", rank=1).sort("iteration")
        losses.append(mine["value"].to_list())
        if fault.fault == "slow":
            dropped = of(lawful(run), kind="metric", name="dropped")
            assert {*dropped["peer"].to_list()} == {2} and 0 in dropped["iteration"]
    assert len(losses[0]) == 12 and losses[0] == losses[1]


# -- a worker that stops --


@contextlib.contextmanager
def endless(consistency: str, **options: Any) -> Iterator[wb.Run]:
    """A run that would go on for ever; over when the test is."""
    fields = {"iterations": LONG, "pad_compute": "2 ms", **options}
    with over_in_the_end(wb.run(served(consistency, **fields))) as run:
        last = run.experiment.ranks - 1
        until(lambda: run.done or clock(run, last) > 3, 60, "the workers train")
        assert not run.done, run.result.error
        yield run


def clock(run: wb.Run, worker: int) -> int:
    """The last iteration that it started."""
    started = of(run.events, kind="clock", rank=worker)["iteration"].max()
    return -1 if started is None else int(started)  # type: ignore[call-overload]


def pushed(run: wb.Run, worker: int) -> int:
    """Its iterations that the server has taken in."""
    return of(run.events, kind="apply", peer=worker).height


def stands_still(run: wb.Run, worker: int, seconds: float = 0.4) -> bool:
    before = clock(run, worker)
    time.sleep(seconds)
    return clock(run, worker) == before


@pytest.mark.parametrize(("consistency", "ahead"), [("ssp", 3), ("dssp", 15), ("bsp", 0)])
def test_a_frozen_worker_stops_the_others_exactly_at_the_bound(
    consistency: str, ahead: int
) -> None:
    with endless(consistency) as run:
        run.freeze(2)
        until(lambda: stands_still(run, 1), what="the others stand")
        stood = pushed(run, 2) if consistency != "bsp" else clock(run, 2)
        for worker in (1, 3):
            led = clock(run, worker) - stood
            assert led == ahead if consistency != "dssp" else 3 <= led <= ahead
        assert not run.done
        run.thaw(2)
        until(lambda: clock(run, 1) > stood + ahead + 20, what="they go on")
        run.stop()
        assert run.wait(timeout=20).ok
    lawful(run, complete=False)


def test_a_frozen_worker_stops_nobody_under_asp() -> None:
    with endless("asp") as run:
        run.freeze(2)
        until(lambda: stands_still(run, 2), what="it stands")
        at = clock(run, 2)
        until(lambda: min(clock(run, 1), clock(run, 3)) > at + 60, what="the others go on")
        assert clock(run, 2) == at
        run.thaw(2)
        until(lambda: clock(run, 2) > at + 10, what="it goes on")
        run.stop()
        assert run.wait(timeout=20).ok
    lawful(run, complete=False)


@pytest.mark.parametrize("consistency", ["asp", "ssp"])
def test_a_worker_that_somebody_else_stops_is_an_error_after_the_timeout(consistency: str) -> None:
    """Under ASP too, where the others first finish without it."""
    exp = served(consistency, timeout="2 s", iterations=60, pad_compute="5 ms")
    run = wb.run(exp)
    until(lambda: run.done or clock(run, 2) > 3, 60, "the workers train")
    os.kill(run.pids[2], signal.SIGSTOP)
    with pytest.raises(wb.RunTimeout, match=r"rank 2 .* is stopped \(SIGSTOP\)"):
        run.wait(timeout=30)
    assert gone(run.pids.values())


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("consistency", ["bsp", "ssp", "dssp", "asp"])
def test_a_worker_that_is_killed_is_waited_for_no_more(consistency: str, servers: int) -> None:
    with endless(consistency, servers=servers) as run:
        victim = servers + 1
        os.kill(run.pids[victim], signal.SIGKILL)
        begin = time.monotonic()
        at = clock(run, servers)
        until(lambda: clock(run, servers) > at + 30, what="the others go on")
        assert time.monotonic() - begin < 5
        assert not run.done
        run.stop()
        result = run.wait(timeout=20)
    assert result.ok and result.lost == [victim]
    told = of(run.events, kind="detect", name="lost", peer=victim)
    assert {*told["rank"].to_list()} >= {*range(servers)}
    lawful(run, complete=False)


def test_training_ends_well_without_a_worker_that_was_killed() -> None:
    exp = served("ssp", workers=3, iterations=60, faults=(wb.Kill(rank=2, at_iteration=10),))
    run, result = done(exp)
    assert result.ok and result.lost == [2]
    events = lawful(run, complete=False)
    assert of(events, kind="apply", peer=2)["iteration"].max() <= 9
    for worker in (1, 3):
        assert of(events, kind="apply", peer=worker).height == 60


def test_a_run_without_workers_left_is_an_error() -> None:
    with endless("asp", workers=2) as run:
        for worker in (1, 2):
            os.kill(run.pids[worker], signal.SIGKILL)
        with pytest.raises(wb.PeerLost):
            run.wait(timeout=10)


@pytest.mark.parametrize("consistency", ["bsp", "asp"])
@pytest.mark.parametrize("victim", [0, 1])
def test_a_server_that_is_killed_ends_the_run_with_its_name(consistency: str, victim: int) -> None:
    with endless(consistency, servers=2, workers=2) as run:
        os.kill(run.pids[victim], signal.SIGKILL)
        begin = time.monotonic()
        with pytest.raises(wb.PeerLost, match=f"rank {victim} .*was killed by SIGKILL") as caught:
            run.wait(timeout=10)
        assert time.monotonic() - begin < 2
        assert caught.value.rank == victim
        assert gone(run.pids.values())


# -- a law that cannot fail is none --


@cache
def honest() -> wb.Run:
    exp = served(
        "ssp", staleness=2, pad_compute="3 ms", faults=JITTER, stale_gradients="drop",
        drop_above=3, iterations=30,
    )  # fmt: skip
    run, _ = done(exp)
    return run


def tampered(change: Any, **rows: Any) -> list[str]:
    """The laws that do not hold when ``change`` is made to the middle one of these rows."""
    events = honest().events.with_row_index("row")
    chosen = of(events, **rows)["row"]
    changed = change(events, pl.col("row") == chosen[len(chosen) // 2]).drop("row")
    exp = honest().experiment
    found = server_laws.check_server(changed, exp, elements=[Digits.ELEMENTS], bound=2)
    return sorted({one.law for one in found})


def add(column: str, amount: int) -> Any:
    return lambda events, row: events.with_columns(
        pl.when(row).then(pl.col(column) + amount).otherwise(column).alias(column)
    )


def without(events: pl.DataFrame, row: pl.Expr) -> pl.DataFrame:
    return events.filter(~row)


def twice(events: pl.DataFrame, row: pl.Expr) -> pl.DataFrame:
    return pl.concat([events, events.filter(row)])


@pytest.mark.parametrize(
    ("law", "change", "rows"),
    [
        ("bound kept", add("start_ns", -300_000_000), {"kind": "send", "group": "control"}),
        ("applies never overlap", add("start_ns", -60_000_000), {"kind": "apply"}),
        ("every push counts once", without, {"kind": "apply"}),
        ("every push counts once", twice, {"kind": "apply"}),
        ("every push counts once", without, {"kind": "push"}),
        ("versions consecutive", add("version", 1), {"kind": "apply"}),
        ("staleness is told", add("value", 1), {"kind": "apply"}),
        ("own updates are seen", add("version", -20), {"kind": "pull"}),
        ("bytes exact", add("nbytes", 4), {"kind": "push"}),
        ("bytes exact", without, {"kind": "pull"}),
        ("bytes exact", add("nbytes", -4), {"kind": "send", "group": "default"}),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_each_law_fails_where_it_is_broken(law: str, change: Any, rows: dict[str, Any]) -> None:
    lawful(honest())
    assert law in tampered(change, **rows)
