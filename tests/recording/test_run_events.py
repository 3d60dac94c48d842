"""The event table of real runs: complete, true to theory, and able to name what is missing."""

from __future__ import annotations

import gc
import json
from functools import cache

import polars as pl
import pytest
import torch.distributed as dist

import workbench as wb
from tests.live import lasting, lenet, of, trained, until
from tests.pairwise import Case, first, full, sampled
from workbench import laws
from workbench.rank.batches import partition
from workbench.rank.job import Job
from workbench.rank.metrics import METRICS_EVERY
from workbench.recording.events import COLUMNS, KINDS, LANES
from workbench.theory import cost_model

ITERATIONS = 4
GRADIENTS = [150, 6, 2_400, 16, 48_000, 120, 10_080, 84, 840, 10]  # elements of LeNet's, 61,706
FACTORS = {
    "ranks": [1, 2, 3, 4, 5, 6, 7, 8],
    "all_reduce": ["ring", "naive", "one_shot"],
    "dtype": ["float32", "float64"],
    "strategy": ["data_parallel", "ddp"],
    "chunk_bytes": [262_144, 4_096],  # the second cuts chunks into several slots
}
HARD = [
    {"ranks": 3, "all_reduce": "ring", "strategy": "data_parallel", "chunk_bytes": 4_096},
    {"ranks": 2, "all_reduce": "naive", "strategy": "ddp", "dtype": "float64"},
]
SMALL = {"ranks": 3, "all_reduce": "ring", "dtype": "float32", "strategy": "data_parallel"}


@cache
def finished(**fields: object) -> wb.Run:
    run = wb.run(lenet(iterations=ITERATIONS, **fields))
    run.wait(timeout=90)
    assert run.dropped == 0
    return run


def name_of(case: Case) -> str:
    return "-".join(str(value) for value in case.values())


def every_law_holds(case: Case) -> None:
    run = finished(**case)
    assert laws.check_events(run.events) == []
    assert laws.replicas_identical(run.result.digests) == []
    sent = bytes_by_rank(run.events)
    assert sent == run.result.bytes_sent
    if case["strategy"] == "data_parallel":
        assert sent == in_theory(case["all_reduce"], case["ranks"], case["dtype"])


def bytes_by_rank(events: pl.DataFrame) -> dict[int, int]:
    rows = of(trained(events), kind="send").group_by("rank").agg(pl.col("nbytes").sum())
    ranks = events.filter(pl.col("rank") >= 0)["rank"].unique()
    return dict.fromkeys(sorted(ranks), 0) | dict(rows.sort("rank").iter_rows())


def in_theory(algorithm: str, ranks: int, dtype: str) -> dict[int, int]:
    """Bytes that each rank sends in training: one all-reduce for each of LeNet's ten gradients."""
    itemsize = 4 if dtype == "float32" else 8
    each = [cost_model.bytes_sent(algorithm, ranks, n * itemsize, itemsize) for n in GRADIENTS]
    return {rank: ITERATIONS * sum(sent[rank] for sent in each) for rank in range(ranks)}


@pytest.mark.parametrize("case", sampled(full(FACTORS), *HARD), ids=name_of)
def test_every_law_holds(case: Case) -> None:
    every_law_holds(case)


def test_the_ring_takes_2n_minus_2_steps_in_two_phases() -> None:
    sends = of(trained(finished(**SMALL).events), kind="send")
    for (rank, _), one in sends.group_by("rank", "op"):
        one = one.sort("seq")
        assert one["step"].to_list() == [0, 1, 2, 3]
        assert one["phase"].cast(str).to_list() == ["reduce_scatter"] * 2 + ["all_gather"] * 2
        assert one["chunk"].to_list() == [(rank - step) % 3 for step in range(4)]
        assert set(one["peer"]) == {(rank + 1) % 3}


@pytest.mark.parametrize("latency", first(1, ["2 ms", "0 ms"]))
def test_auto_takes_what_is_told_to_be_fastest_and_says_so(latency: str) -> None:
    network = wb.Network(latency=latency)
    run = finished.__wrapped__(**{**SMALL, "all_reduce": "auto", "network": network})
    outer = of(trained(run.events), kind="collective")
    assert set(outer["nbytes"]) >= {192_000, 40_320, 9_600}
    for nbytes, algorithm in set(outer.select("nbytes", "algorithm").rows()):
        assert algorithm == wb.why("all_reduce", nbytes, SMALL["ranks"], network).chosen
    until(lambda: "auto" in run.store.metadata, 20, "a thread of its own works it out")
    choice = json.loads(run.store.metadata["auto"])
    assert f"auto: {choice}." in str(wb.why("all_reduce", "1 KiB", SMALL["ranks"], network))
    assert laws.check_events(run.events) == []


def test_the_columns_and_kinds_are_the_contracts_and_nothing_is_null() -> None:
    events = finished(**SMALL).events
    assert events.columns == COLUMNS
    assert sum(events.null_count().row(0)) == 0
    assert set(events["kind"].cast(str)) <= set(KINDS)
    kinds = "forward backward optimizer load collective send recv wait metric"
    assert set(kinds.split()) <= set(events["kind"].cast(str))
    assert (events["end_ns"] >= events["start_ns"]).all()
    assert (of(events, kind="send")["nbytes"] >= 0).all()
    assert (of(events, kind="forward")["nbytes"] == -1).all()


def test_lanes_count_without_gaps() -> None:
    for _, lane in finished(**SMALL).events.group_by("rank", "lane"):
        assert sorted(lane["seq"]) == list(range(lane.height))


def test_a_removed_send_row_is_named() -> None:
    events = finished(**SMALL).events
    rows = events.with_row_index("number")
    at = (pl.col("op") == 7) & (pl.col("step") == 2) & (pl.col("rank") == 1)
    gone = rows.filter(at, pl.col("kind") == "send", pl.col("group") == "default")
    assert gone.height == 1
    row = gone.row(0, named=True)
    violations = laws.check_events(rows.filter(pl.col("number") != row["number"]).drop("number"))
    named = [v for v in violations if v.law == "matched messages"]
    assert [(v.op, v.step, v.chunk, v.slot) for v in named] == [(7, 2, row["chunk"], row["slot"])]
    assert "from rank 1" in str(named[0]) and "no send row" in str(named[0])
    assert any(v.law == "gapless lanes" and v.rank == 1 for v in violations)


def test_a_wait_ends_before_its_recv_starts() -> None:
    events = trained(finished(**SMALL).events)
    key = ["rank", "op", "step", "chunk", "peer", "slot"]
    waits = of(events, kind="wait").select(*key, waited="end_ns")
    both = waits.join(of(events, kind="recv").select(*key, received="start_ns"), on=key)
    assert both.height > 0
    assert (both["waited"] <= both["received"]).all()


@pytest.mark.parametrize("strategy", ["data_parallel", "ddp"])
def test_every_iteration_has_its_rows(strategy: str) -> None:
    events = finished(**{**SMALL, "strategy": strategy}).events
    for rank in range(3):
        for iteration in range(ITERATIONS):
            mine = of(events, rank=rank, iteration=iteration)
            order = [
                str(kind)
                for kind in of(mine, lane="compute").sort("seq")["kind"]
                if kind not in ("metric", "wait", "collective", "memory")
            ]
            assert order == ["load", "forward", "backward", "optimizer"]
            names = of(mine, kind="metric")["name"].cast(str).to_list()
            measured = ["accuracy"] if iteration % METRICS_EVERY == 0 else []
            calls = of(mine, kind="collective")["name"].cast(str).to_list()
            buckets = ["bucket full" for name in calls if name.startswith("bucket ")]
            # DDP tells once, after the first backward, that it has built its buckets again.
            rebuilt = ["buckets rebuilt"] if "buckets rebuilt" in names else []
            expected = [*measured, *buckets, *rebuilt, "loss", "runqueue", "samples"]
            assert sorted(names) == expected and (
                not rebuilt or (strategy, iteration) == ("ddp", 1)
            )
            assert of(mine, kind="collective").height > 0
    assert (of(events, name="runqueue")["value"] >= 0).all()
    for name in ("load", "forward", "backward", "optimizer"):
        waited = of(events, kind=name)["value"]  # for a core: within its span
        assert (waited >= 0).all() and (waited / 1e6 <= lasting(of(events, kind=name))).all()


def test_what_computing_waited_for_a_core_is_within_what_the_iteration_did() -> None:
    events = finished(**{**SMALL, "strategy": "ddp"}).events
    step = ["rank", "iteration"]
    parts = events.filter(pl.col("kind").is_in(["load", "forward", "backward", "optimizer"]))
    parts = parts.group_by(step).agg(pl.col("value").sum().alias("computing"))
    whole = of(events, name="runqueue").select(*step, whole="value").join(parts, on=step)
    assert whole.height == 3 * ITERATIONS
    assert (whole["computing"] <= whole["whole"]).all()


def test_a_bucket_is_full_within_backward_and_before_its_all_reduce() -> None:
    events = trained(finished(**{**SMALL, "strategy": "ddp"}).events)
    step = ["rank", "iteration"]
    full = of(events, name="bucket full").select(*step, "value", at="end_ns")
    backward = of(events, kind="backward").select(*step, "start_ns", "end_ns")
    both = full.join(backward, on=step)
    assert both.height == full.height > 0
    assert (both["start_ns"] <= both["at"]).all() and (both["at"] <= both["end_ns"]).all()
    calls = of(events, kind="collective").with_columns(pl.col("name").cast(str))
    calls = calls.filter(pl.col("name").str.starts_with("bucket ")).with_columns(
        value=pl.col("name").str.strip_prefix("bucket ").cast(float)
    )
    begun = full.join(calls.select(*step, "value", "start_ns"), on=[*step, "value"])
    assert begun.height == full.height
    assert (begun["at"] <= begun["start_ns"]).all()


def test_the_loss_rows_make_the_losses() -> None:
    run = finished(**{**SMALL, "batch_size": 16})  # over 3 ranks: 6, 5, 5
    rows = of(run.events, name="loss")
    for iteration, loss in enumerate(run.result.losses):
        values = of(rows, iteration=iteration).sort("rank")["value"].to_list()
        mean = (6 * values[0] + 5 * values[1] + 5 * values[2]) / 16
        assert mean == pytest.approx(loss, rel=1e-12)


def test_collectives_are_labeled() -> None:
    by_hand = of(trained(finished(**SMALL).events), kind="collective")
    assert {"0.weight", "11.bias"} <= set(by_hand["name"].cast(str))
    ddp = of(trained(finished(**{**SMALL, "strategy": "ddp"}).events), kind="collective")
    assert "bucket 0" in set(ddp["name"].cast(str))


def test_validation_is_not_training() -> None:
    events = finished(**SMALL).events
    checks = of(events, group="metrics")
    assert set(checks["iteration"]) == {-1}
    assert of(checks, kind="collective").height == 3
    default = of(events, group="default", kind="collective")
    assert set(default["iteration"]) == set(range(ITERATIONS))
    assert of(events, collective="p2p").height == 0


def test_ddp_begins_to_reduce_before_backward_ends() -> None:
    """Busy cores keep it back in some iterations."""
    fields = {"pad_compute": "60 ms", "options": {"bucket_cap_mb": 0.05}}
    run = wb.run(lenet(strategy="ddp", iterations=8, **fields))
    run.wait(timeout=60)
    step = ["rank", "iteration"]
    ends = of(run.events, kind="backward").select(*step, "end_ns")
    begins = of(run.events, kind="collective").group_by(step).agg(pl.col("start_ns").min())
    early = ends.join(begins, on=step).filter(pl.col("start_ns") < pl.col("end_ns"))
    assert {*early.filter(pl.col("iteration") > 1)["rank"]} == {0, 1}


def test_padded_computing_lasts_what_was_asked_for() -> None:
    run = wb.run(lenet(iterations=8, pad_compute="60 ms"))
    run.wait(timeout=60)
    for kind, padded in (("forward", 20), ("backward", 40)):
        spans = lasting(of(run.events, kind=kind).filter(pl.col("iteration") > 0))
        assert spans.min() == pytest.approx(padded, rel=0.05)
        assert spans.min() >= padded


@pytest.mark.parametrize("strategy", first(1, ["ddp", "data_parallel", "sequential"]))
def test_without_recording_training_is_the_same(strategy: str) -> None:
    fields = {"strategy": strategy, "ranks": 1 if strategy == "sequential" else 2}
    recorded = finished(**fields)
    silent = wb.run(lenet(iterations=ITERATIONS, record=False, **fields))
    result = silent.wait(timeout=60)
    assert result.losses == recorded.result.losses
    assert result.digests == recorded.result.digests
    assert result.bytes_sent == recorded.result.bytes_sent
    assert silent.events.filter(pl.col("rank") >= 0).height == 0
    assert silent.events.columns == recorded.events.columns


def test_gloo_for_comparison_records_operations_and_no_chunks() -> None:
    run = wb.run(lenet(backend="gloo", ranks=3, iterations=ITERATIONS))
    result = run.wait(timeout=60)
    assert result.losses == pytest.approx(finished(**SMALL).result.losses, abs=1e-5)
    assert of(trained(run.events), kind="collective", algorithm="gloo").height == 10 * 3 * 4
    assert of(run.events, kind="send").height == 0


def in_groups_that_go(job: Job, config: None) -> None:
    """Average every gradient in a group of its own, which is destroyed at once."""
    model = job.model()
    optimizer = job.optimizer(model)
    for minibatch in job.iterations():
        mine = partition(minibatch.ids, job.rank, job.ranks)
        optimizer.zero_grad()
        loss = job.forward(model, job.load(mine))
        job.backward(loss)
        for parameter in model.parameters():
            group = dist.new_group()
            dist.all_reduce(parameter.grad.div_(job.ranks), group=group)
            dist.destroy_process_group(group)
            del group
        gc.collect()
        job.update(optimizer)
        job.report(loss, len(mine))
    job.finish(model)


@pytest.mark.full
def test_groups_that_are_destroyed_count_and_are_all_in_the_record() -> None:
    run = wb.run(lenet(strategy=in_groups_that_go, iterations=ITERATIONS))
    result = run.wait(timeout=90)
    assert run.dropped == 0 and laws.check_events(run.events) == []
    assert result.bytes_sent == bytes_by_rank(run.events) == in_theory("ring", 2, "float32")
    of_training = of(trained(run.events), kind="send", collective="all_reduce")
    assert of_training["group"].n_unique() == 10 * ITERATIONS > LANES
