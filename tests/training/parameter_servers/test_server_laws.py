"""The laws of the parameter server, over real processes, read from their events.

BSP is sequential training, however the parameters are cut over servers; bytes are what theory says,
to the byte; what is dropped as stale is counted. And each law fails on a table that was tampered
with.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import workbench as wb
from tests.live import of
from tests.pairwise import Case, first, full, sampled
from tests.test_training_laws import LOSS_BOUND, PARAMETER_BOUND, name_of, rule, sequential
from tests.training.parameter_servers.served import (
    JITTER,
    LENET,
    SHARES,
    Digits,
    done,
    lawful,
    same,
    served,
)
from workbench.rank.batches import Minibatches, partition
from workbench.training.parameter_servers import laws as server_laws
from workbench.training.parameter_servers import theory
from workbench.training.parameter_servers.placement import held, place

# -- BSP is sequential training, however it is cut --

FACTORS: dict[str, list[Any]] = {
    "workers": [1, 2, 3, 5],
    "servers": [1, 2, 3],
    "placement": ["even", "hash", "shares"],
    "batch_size": [16, 3],  # 3 leaves some of 5 workers without a sample
    "optimizer": ["sgd", "momentum", "adam"],
    "dtype": ["float32", "float64"],
}
HARD = {"workers": 2, "servers": 2, "placement": "hash", "batch_size": 3, "optimizer": "momentum"}
ITERATIONS = 20


def settled(case: Case) -> wb.Experiment:
    servers, placement = case["servers"], case["placement"]
    if placement == "shares":
        placement = [0.6, *[0.4 / (servers - 1)] * (servers - 1)] if servers > 1 else [1.0]
    return served(
        task="lenet_digits",
        workers=case["workers"],
        servers=servers,
        placement=placement,
        batch_size=case["batch_size"],
        dtype=case["dtype"],
        iterations=ITERATIONS,
        **rule(case["optimizer"], case["batch_size"]),
    )


def equals_sequential(case: Case) -> None:
    reference = sequential(case["optimizer"], case["dtype"], case["batch_size"], ITERATIONS)
    run, result = done(settled(case))
    difference = np.abs(np.subtract(result.losses, reference.losses)).max()
    assert difference <= LOSS_BOUND[case["dtype"]], f"losses differ by {difference:.2e}"
    for name, value in reference.parameters.items():
        furthest = (value - result.parameters[name]).abs().max().item()
        assert furthest <= PARAMETER_BOUND[case["dtype"]], f"{name} differs by {furthest:.2e}"
    lawful(run)


@pytest.mark.parametrize("case", sampled(full(FACTORS), HARD), ids=name_of)
def test_bsp_equals_sequential(case: Case) -> None:
    equals_sequential(case)


@cache
def single() -> wb.Result:
    return done(served(task="lenet_digits", momentum=0.9, iterations=12))[1]


@pytest.mark.full
@pytest.mark.parametrize(
    "options",
    first(
        1,
        [
            {"servers": 3},
            {"servers": 3, "placement": SHARES},
            {"servers": 2, "placement": "hash"},
            {"consistency": "ssp", "staleness": 0},
            {"consistency": "ssp", "staleness": 0, "servers": 2, "faults": JITTER},
        ],
    ),
    ids=str,
)
def test_neither_shards_nor_ssp_0_change_bsp_by_a_bit(options: dict[str, Any]) -> None:
    run, result = done(served(task="lenet_digits", momentum=0.9, iterations=12, **options))
    assert same(result, single()) and result.losses == single().losses
    lawful(run)


@pytest.mark.full
@pytest.mark.parametrize("servers", first(1, [2, 1]))
def test_two_models_on_the_same_servers_train_as_if_each_were_alone(servers: int) -> None:
    """Workers 0, 2 train one, workers 1, 3 the other, on the next seed."""
    run, both = done(served(workers=4, models=2, servers=servers, momentum=0.5, iterations=16))
    lawful(run)
    for number, prefix in enumerate(["", "model 1/"]):
        fields = {"servers": servers, "seed": number, "momentum": 0.5, "iterations": 16}
        _, alone = done(served(workers=2, **fields))
        for name, value in alone.parameters.items():
            assert torch.equal(value, both.parameters[prefix + name])
    assert not torch.equal(both.parameters["1.bias"], both.parameters["model 1/1.bias"])


# -- bytes --


def test_parameters_are_read_in_place_where_no_link_is_emulated() -> None:
    exp = served(task="lenet_digits", dtype="float64", workers=2, iterations=4)
    run, result = done(exp)
    paced, other = done(exp.replace(network=wb.Network(latency="1 ms")))
    recovers, third = done(exp.replace(recovery="shrink"))
    assert same(result, other) and same(result, third)
    assert result.bytes_sent == other.bytes_sent
    for one, slots, phase in ((run, 1, "in place"), (paced, 2, ""), (recovers, 1, "in place")):
        events = lawful(one)
        sends = events.filter(
            pl.col("kind") == "send", pl.col("collective") == "p2p", pl.col("group") == "default"
        )
        assert sends["phase"].unique().to_list() == [phase]
        assert len(sends) == 2 * 2 * exp.iterations * slots


@pytest.mark.parametrize("consistency", first(1, ["bsp", "asp"]))
@pytest.mark.parametrize(
    "options",
    first(
        1,
        [
            {"servers": 3, "placement": SHARES},
            {"placement": "hash"},
            {"servers": 1},
            {"servers": 3},
        ],
    ),
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


@pytest.mark.alone
def test_dropped_samples_are_counted_exactly() -> None:
    """ASP with one slow worker: what missed more than 2 updates is left out, and nothing else."""
    exp = served(
        "asp",
        stale_gradients="drop",
        drop_above=2,
        batch_size=50,
        iterations=30,
        pad_compute="5 ms",
        faults=(wb.Slow(rank=1, factor=6),),
    )
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


@pytest.mark.alone
def test_what_is_left_out_leaves_no_trace_in_the_training_of_others() -> None:
    """The losses of a fast worker, all gradients of the slow one left out, are those without it."""
    losses = []
    for fault in (wb.Slow(rank=2, factor=20), wb.Kill(rank=2, at_iteration=0)):
        exp = served(
            "asp",
            workers=2,
            stale_gradients="drop",
            drop_above=0,
            iterations=12,
            faults=(fault,),
            pad_compute="4 ms",
            momentum=0.5,
        )
        run, _ = done(exp)
        mine = of(run.events, kind="metric", name="loss", rank=1).sort("iteration")
        losses.append(mine["value"].to_list())
        if fault.fault == "slow":
            dropped = of(lawful(run), kind="metric", name="dropped")
            assert {*dropped["peer"].to_list()} == {2} and 0 in dropped["iteration"]
    assert len(losses[0]) == 12 and losses[0] == losses[1]


# -- a law that cannot fail is none --


EARLY = 10_000_000_000  # ns: before the rows that come before it, also on busy cores


@cache
def honest() -> wb.Run:
    exp = served(
        "ssp",
        staleness=2,
        pad_compute="3 ms",
        faults=JITTER,
        stale_gradients="drop",
        drop_above=3,
        iterations=30,
    )
    run, _ = done(exp)
    return run


def tampered(change: Any, **rows: Any) -> list[str]:
    """The laws that do not hold when ``change`` is made to the middle one of these rows."""
    events = honest().events.with_row_index("row")
    chosen = of(events, **rows)["row"]
    changed = change(events, pl.col("row") == chosen[len(chosen) // 2]).drop("row")
    exp = honest().experiment
    violations = server_laws.check_server(changed, exp, elements=[Digits.ELEMENTS], bound=2)
    return sorted({one.law for one in violations})


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
        ("bound kept", add("start_ns", -EARLY), {"kind": "send", "group": "control"}),
        ("applies never overlap", add("start_ns", -EARLY), {"kind": "apply"}),
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


def test_messages_of_laws_count_iterations_from_1() -> None:
    events = honest().events.with_row_index("row")
    rows = of(events, kind="apply")
    row = rows.row(rows.height // 2, named=True)
    left = events.filter(pl.col("row") != row["row"]).drop("row")
    (violation,) = server_laws.every_push_counts_once(left)
    assert f"worker {row['peer']} pushed iteration {row['iteration'] + 1} to" in violation.words
