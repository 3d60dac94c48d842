"""DDP's laws over real processes: equal to sequential training, whatever its options; buckets as
its paper says; nothing sent by no_sync; samples that run out; parameters without a use.
"""

from __future__ import annotations

import json
import time
from functools import cache
from typing import Any

import polars as pl
import pytest

import workbench as wb
from tests.live import of
from tests.pairwise import Case, first, pairwise, sampled
from workbench.laws import replicas_identical

SMALL = {"layers": 4, "width": 32}
BOUND = {"float32": 1e-5, "float64": 1e-12}
ITERATIONS = 12


def ddp(ranks: int = 2, iterations: int = ITERATIONS, **fields: Any) -> wb.Experiment:
    options = {"bucket_cap_mb": 0.005, **fields.pop("options", {})}
    fields = {"task": "mlp_layers", "task_options": SMALL, "batch_size": 24, **fields}
    return wb.Experiment(
        strategy="ddp", ranks=ranks, iterations=iterations, options=options, **fields
    )


@cache
def sequential(dtype: str, optimizer: str, batch_size: int) -> wb.Result:
    exp = wb.Experiment(
        strategy="sequential",
        ranks=1,
        task="mlp_layers",
        task_options=SMALL,
        dtype=dtype,
        optimizer=optimizer,
        batch_size=batch_size,
        iterations=ITERATIONS,
        record=False,
    )
    return wb.run(exp).wait(timeout=60)


def furthest(result: wb.Result, reference: wb.Result) -> float:
    """The largest difference of a loss or of a parameter that both have."""
    assert len(result.losses) == len(reference.losses)
    losses = max(abs(a - b) for a, b in zip(result.losses, reference.losses, strict=True))
    each = [
        (result.parameters[name] - value).abs().max().item()
        for name, value in reference.parameters.items()
    ]
    return max(losses, *each)


def buckets(run: wb.Run) -> dict[str, Any]:
    return json.loads(run.store.metadata["buckets"])


def collectives(run: wb.Run, **values: Any) -> pl.DataFrame:
    return of(run.events, kind="collective", **values).filter(
        (pl.col("group") == "default") & (pl.col("iteration") >= 0)
    )


# -- equal to sequential --

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "one bucket": {"bucket_cap_mb": 25.0},
    "accumulate 3": {"accumulate": 3},
    "unused": {"find_unused": True},
    "static": {"static_graph": True},
    "views": {"gradient_as_bucket_view": True},
    "shares": {"shares": True},
    "runs out": {"runs_out": True},
    "all at once": {
        "accumulate": 2,
        "find_unused": True,
        "gradient_as_bucket_view": True,
        "shares": True,
    },
}
FACTORS: dict[str, list[Any]] = {
    "options": list(OPTIONS),
    "ranks": [2, 3, 4, 8],
    "dtype": ["float64", "float32"],
    "optimizer": ["sgd", "adam"],
    "batch_size": [24, 10],  # 10 over 8 ranks: some have 1, some 2
}
HARD = [{"options": "shares", "ranks": 3}, {"ranks": 2, "dtype": "float64"}]


def options_for(name: str, ranks: int) -> dict[str, Any]:
    options = dict(OPTIONS[name])
    if "shares" in options:
        options["shares"] = tuple(float(rank % 3) + 0.5 for rank in range(ranks))
    if "runs_out" in options:  # one at once, one in the middle; the last goes on
        options["runs_out"] = (1, *(4 + rank for rank in range(1, ranks - 1)), ITERATIONS)
    return options


@pytest.mark.parametrize(
    "case", sampled(pairwise(FACTORS), *HARD), ids=lambda c: "-".join(map(str, c.values()))
)
def test_equals_sequential_with_every_option(case: Case) -> None:
    task_options = SMALL | ({"unused": 2} if "find_unused" in OPTIONS[case["options"]] else {})
    fields = {name: case[name] for name in ("ranks", "dtype", "optimizer", "batch_size")}
    exp = ddp(
        **fields,
        options=options_for(case["options"], case["ranks"]),
        task_options=task_options,
        record=False,
    )
    result = wb.run(exp).wait(timeout=60)
    reference = sequential(case["dtype"], case["optimizer"], case["batch_size"])
    assert furthest(result, reference) <= BOUND[case["dtype"]]
    assert not replicas_identical(result.digests)


# -- buckets --


def flat(names: list[list[str]]) -> list[str]:
    return [name for bucket in names for name in bucket]


def test_buckets_are_filled_in_reverse_order_and_never_split_a_parameter() -> None:
    run = wb.run(ddp(options={"find_unused": True}))  # which keeps the first ones
    run.wait(timeout=60)
    facts = buckets(run)
    order = [f"layers.{layer}.{what}" for layer in range(4) for what in ("weight", "bias")]
    assert facts["rebuilt"] is None
    # Cut from the first layer on, each closed with the parameter that brings it to 5 KiB; then
    # the last one is the first to go.
    assert flat(facts["first"][::-1]) == order
    weight, bias, cap = 32 * 32 * 4, 32 * 4, 0.005 * 2**20
    sizes = [[weight if "weight" in name else bias for name in one] for one in facts["first"]]
    assert [sum(one) for one in sizes] == facts["bytes"]
    assert all(sum(one[:-1]) < cap <= sum(one) for one in sizes[1:])
    assert sum(sizes[0]) < cap


def test_buckets_are_rebuilt_once_after_the_first_backward() -> None:
    run = wb.run(ddp(ranks=3))
    run.wait(timeout=60)
    facts = buckets(run)
    assert len(facts["first"]) == 1, "what is to be rebuilt begins as one"
    assert facts["rebuilt_at"] == 1
    assert sorted(flat(facts["rebuilt"])) == sorted(flat(facts["first"]))
    layers = [int(name.split(".")[1]) for name in flat(facts["rebuilt"])]
    assert layers == sorted(layers, reverse=True), "in the order in which gradients came"
    marks = of(run.events, kind="metric", name="buckets rebuilt")
    assert marks.sort("rank").select("rank", "iteration").rows() == [(r, 1) for r in range(3)]
    for rank in range(3):
        at = of(marks, rank=rank)["start_ns"][0]
        first = of(run.events, rank=rank, iteration=0, kind="backward")["end_ns"][0]
        second = of(run.events, rank=rank, iteration=1, kind="backward")["start_ns"][0]
        assert first < at < second
    sizes = collectives(run, rank=0, iteration=5).filter(
        pl.col("name").cast(pl.String).str.starts_with("bucket ")
    )
    assert sizes["nbytes"].to_list() == facts["bytes"]


@pytest.mark.full
@pytest.mark.parametrize(("cap", "first"), [(25.0, 1), (24.9, 25)])
def test_the_first_bucket_is_small_only_with_the_default_cap(cap: float, first: int) -> None:
    """30 layers of 512 x 512, 1 MiB and 2 KiB each: a bucket is full with what brings it there."""
    run = wb.run(
        ddp(
            iterations=3,
            task_options={"layers": 30, "width": 512, "samples": 64},
            batch_size=4,
            options={"bucket_cap_mb": cap},
        )
    )
    run.wait(timeout=120)
    weights = [sum("weight" in n for n in bucket) for bucket in buckets(run)["rebuilt"]]
    assert weights == ([1, 25, 4] if first == 1 else [25, 5])


def test_the_initial_parameters_are_broadcast_and_seen() -> None:
    run = wb.run(ddp(iterations=2))
    run.wait(timeout=60)
    rows = of(run.events, kind="collective", name="initial parameters", collective="broadcast")
    assert rows["rank"].unique().sort().to_list() == [0, 1]
    assert 4 * (1024 + 32) * 4 in rows["nbytes"].to_list()
    assert (rows["iteration"] == -1).all()


# -- overlap --


def begins_in_backward(exp: wb.Experiment) -> list[int]:
    """Of each later iteration of rank 0: how many all-reduces began before backward ended."""
    run = wb.run(exp)
    run.wait(timeout=60)
    counts = []
    for iteration in range(2, exp.iterations):
        ends = of(run.events, rank=0, iteration=iteration, kind="backward")["end_ns"].max()
        moved = collectives(run, rank=0, iteration=iteration, collective="all_reduce")
        counts.append(int((moved["start_ns"] < ends).sum()))
    return counts


def test_all_reduces_begin_before_backward_ends() -> None:
    exp = ddp(iterations=5, pad_compute="30 ms")
    assert max(begins_in_backward(exp)) >= 1  # busy cores keep it back in some iterations
    assert set(begins_in_backward(exp.replace(strategy="data_parallel", options={}))) == {0}


# -- no_sync --


def test_only_the_last_of_several_backwards_sends() -> None:
    run = wb.run(ddp(iterations=4, options={"accumulate": 3}))
    run.wait(timeout=60)
    for iteration in range(4):
        backward = of(run.events, rank=0, iteration=iteration, kind="backward").sort("start_ns")
        moved = collectives(run, rank=0, iteration=iteration, collective="all_reduce")
        assert backward.height == 3
        assert moved.height and moved["start_ns"].min() > backward["end_ns"][1]
        assert moved["name"].n_unique() == moved.height, "each bucket once"


# -- compression --


@pytest.mark.full
def test_16_bits_are_half_the_bytes_and_nearly_the_same_losses() -> None:
    reference = sequential("float32", "sgd", 24)
    sent = {}
    for kind in ("none", "fp16", "bf16"):
        result = wb.run(ddp(options={"compression": kind}, record=False)).wait(timeout=60)
        assert not replicas_identical(result.digests)
        sent[kind] = sum(result.bytes_sent.values())
        worst = furthest(result, reference)
        assert worst <= 1e-5 if kind == "none" else 1e-5 < worst < 1e-2
    assert sent["fp16"] / sent["none"] == pytest.approx(0.5, rel=0.01)
    assert sent["bf16"] / sent["none"] == pytest.approx(0.5, rel=0.01)


@pytest.mark.parametrize("ranks", first(1, [4, 2]))
def test_powersgd_sends_factors_and_every_rank_the_same_ones(ranks: int) -> None:
    task = {"layers": 6, "width": 64}
    options = {"compression": "powersgd", "powersgd_start": 4, "bucket_cap_mb": 0.03}
    run = wb.run(ddp(ranks=ranks, iterations=30, task_options=task, options=options, lr=0.3))
    result = run.wait(timeout=60)
    assert not replicas_identical(result.digests)
    assert result.losses[-1] < 0.8 * result.losses[0]
    moved = collectives(run, collective="all_reduce")
    each = moved.group_by("rank", "iteration").agg(pl.col("nbytes").sum()).sort("iteration")
    full = 6 * (64 * 64 + 64) * 4
    assert set(each.filter(pl.col("iteration") < 4)["nbytes"]) == {full}
    assert max(each.filter(pl.col("iteration") > 5)["nbytes"]) < 0.1 * full
    # A collective's number means the same on every rank, in whatever thread it was asked for.
    same = moved.group_by("op").agg(pl.len(), pl.col("name", "nbytes", "iteration").n_unique())
    assert set(same["len"]) == {ranks}
    assert same.select("name", "nbytes", "iteration").unique().rows() == [(1, 1, 1)]
    named = moved["name"].cast(pl.String)
    assert named.str.contains(r"^bucket \d+$").all(), "those of callbacks too"


# -- samples that run out --


def test_a_rank_without_samples_takes_part_in_the_all_reduces_only() -> None:
    run = wb.run(ddp(ranks=3, options={"runs_out": (2, ITERATIONS, 7)}))
    result = run.wait(timeout=60)
    assert len(result.losses) == ITERATIONS
    for rank, until in ((0, 2), (1, ITERATIONS), (2, 7)):
        rows = of(run.events, rank=rank).filter(pl.col("iteration") >= 0)
        assert of(rows, kind="forward")["iteration"].max() == until - 1
        assert of(rows, kind="optimizer")["iteration"].max() == until - 1
        full = of(rows, kind="metric", name="bucket full")
        assert full["iteration"].max() == ITERATIONS - 1
    assert buckets(run)["rebuilt"]


def test_a_run_with_a_rank_that_has_no_samples_left_can_be_stopped() -> None:
    run = wb.run(ddp(iterations=100_000, options={"runs_out": (3, 100_000)}))
    while run.iteration < 20 and not run.done:
        time.sleep(0.01)
    run.stop()
    result = run.wait(timeout=90)
    assert 20 <= len(result.losses) < 100_000
    assert not replicas_identical(result.digests)


# -- parameters without a use --


def test_a_parameter_without_a_gradient_is_named_with_the_remedy() -> None:
    run = wb.run(ddp(task_options=SMALL | {"unused": 1}, timeout="10 s"))
    error = run.wait(timeout=60, check=False).error
    assert "unused.0.weight, unused.0.bias" in str(error)
    assert "find_unused" in str(error)


# -- what cannot be --


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"accumulate": 0}, "accumulate = 0: must be 1 or more"),
        ({"bucket_cap_mb": 0.0}, "bucket_cap_mb = 0.0: must be above 0"),
        ({"compression": "fp8"}, "compression = 'fp8': must be 'none', 'fp16', 'bf16'"),
        ({"powersgd_start": 1}, "powersgd_start = 1: must be 2 or more"),
        ({"shares": (1.0,)}, "one number for each of ranks=2"),
        ({"shares": (1.0, -1.0)}, "none may be below 0"),
        ({"runs_out": (3, 4)}, "at least one rank must have samples for all iterations=12"),
        ({"runs_out": (0, 12)}, "each rank has samples at first"),
        ({"runs_out": (3, 12), "accumulate": 2}, "goes with neither accumulate"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    options: dict[str, Any], words: str
) -> None:
    with pytest.raises(wb.SpecError, match=words):
        ddp(options=options)
