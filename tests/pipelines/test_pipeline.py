"""A pipeline is sequential training, cut over real processes; its rows obey the schedule.

Losses and parameters equal those of one process within rounding, whatever the schedule, the cut and
the number of microbatches or replicas; PipeDream equals a replay of its own versions. What a user
does to a run (hold, step, stop, kill) and what a rank may hold at most work as in every strategy.
"""

from __future__ import annotations

import json
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import workbench as wb
from tests.live import lenet, training
from tests.pairwise import Case, full, pairwise
from workbench.batches import Minibatches
from workbench.pipelines.laws import check_pipeline
from workbench.pipelines.schedule import build
from workbench.tasks.lenet_digits import Task

ITERATIONS = 8
LOSS_BOUND = {"float32": 1e-6, "float64": 1e-12}
FOLDED = ("zbv", "dualpipe_v")  # two stages a rank, there and back
SEVERAL = ("interleaved_1f1b", "interleaved_zero_bubble", "looped_bfs", *FOLDED)
FACTORS: dict[str, list[Any]] = {
    "schedule": ["sequential", "gpipe", "1f1b", "zb_h1", "zb_h2", *SEVERAL],
    "ranks": [1, 2, 4],
    "microbatches": [4, 8],
    "batch_size": [64, 50, 6],  # 6: some microbatches have no sample
    "optimizer": ["sgd", "momentum", "adam"],
    "dtype": ["float32", "float64"],
    "split": ["auto", "layers"],
    "replicas": [1, 2],
}


def possible(case: Case) -> bool:
    """LeNet has 12 layers; a schedule of several stages a rank wants two ranks or more, DualPipeV
    as many microbatches as stages.
    """
    stages = case["ranks"] * (2 if case["schedule"] in SEVERAL else 1)
    if case["schedule"] == "dualpipe_v" and case["microbatches"] < stages:
        return False
    return stages <= 8 and not (case["schedule"] in SEVERAL and case["ranks"] == 1)


SAMPLE = [case for case in pairwise(FACTORS) if possible(case)]


def experiment(case: Case, **more: Any) -> wb.Experiment:
    optimizer = case["optimizer"]
    rule = {"optimizer": "sgd", "momentum": 0.9} if optimizer == "momentum" else {}
    return lenet(
        strategy="pipeline",
        ranks=case["ranks"] * case["replicas"],
        iterations=ITERATIONS,
        batch_size=case["batch_size"],
        dtype=case["dtype"],
        options={
            "schedule": case["schedule"],
            "microbatches": case["microbatches"],
            "split": case["split"],
            "replicas": case["replicas"],
            "stages_per_rank": 2 if case["schedule"] in SEVERAL else 1,
        },
        **{"optimizer": optimizer, "lr": 0.01, **rule, **more},
    )


@cache
def reference(optimizer: str, dtype: str, batch_size: int) -> wb.Result:
    rule = {"optimizer": "sgd", "momentum": 0.9} if optimizer == "momentum" else {}
    exp = lenet(
        strategy="sequential", ranks=1, iterations=ITERATIONS, batch_size=batch_size, dtype=dtype,
        **{"optimizer": optimizer, "lr": 0.01, **rule},
    )  # fmt: skip
    return wb.run(exp).wait(timeout=120)


def obeys(case: Case) -> None:
    run = wb.run(experiment(case))
    result = run.wait(timeout=120)
    check_equal(result, reference(case["optimizer"], case["dtype"], case["batch_size"]), case)
    schedule = build(
        case["schedule"], ranks=case["ranks"], microbatches=case["microbatches"],
        stages_per_rank=2 if case["schedule"] in SEVERAL else 1,
    )  # fmt: skip
    found = check_pipeline(run.events, schedule, iterations=ITERATIONS)
    assert not found, found[:3]
    assert len(set(result.digests.values())) == 1 and len(result.digests) == case["replicas"]
    assert run.dropped == 0


def check_equal(result: wb.Result, expected: wb.Result, case: Case) -> None:
    bound = LOSS_BOUND[case["dtype"]]
    assert len(result.losses) == ITERATIONS
    assert np.abs(np.subtract(result.losses, expected.losses)).max() <= bound
    assert result.parameters.keys() == expected.parameters.keys()
    for name, value in result.parameters.items():
        # Adam divides by a root that rounding moves where a gradient is almost nothing.
        furthest = (value - expected.parameters[name]).abs().max().item()
        most = bound * (3000 if case["optimizer"] == "adam" else 10)
        assert furthest <= most, f"{name}: {furthest:.2e}"


def name_of(case: Case) -> str:
    return "-".join(str(value) for value in case.values())


@pytest.mark.parametrize("case", SAMPLE, ids=name_of)
def test_a_pipeline_equals_one_process_and_keeps_its_schedule(case: Case) -> None:
    obeys(case)


@pytest.mark.full
@pytest.mark.parametrize("case", [one for one in full(FACTORS) if possible(one)], ids=name_of)
def test_every_pipeline_equals_one_process(case: Case) -> None:
    obeys(case)


# -- without a flush --


def replay(exp: wb.Experiment) -> dict[str, torch.Tensor]:
    """PipeDream in one process: every microbatch forward and backward on the versions that the
    schedule gives each stage; an update a stage when an iteration's last backward is done.
    """
    stages, each = exp.ranks, exp.options["microbatches"]
    schedule = build("pipedream", ranks=stages, microbatches=each, iterations=exp.iterations)
    torch.manual_seed(exp.seed)
    task = Task()
    model = task.model().double()
    names = [*dict(model.named_parameters())]
    # By hand: the cut of LeNet's layers that the experiment names.
    starts = [0, *(int(name) for name in exp.options["split"])]
    stage_of = {name: sum(int(name.split(".")[0]) >= s for s in starts) - 1 for name in names}
    versions = [{name: value.detach().clone() for name, value in model.named_parameters()}]
    seen: dict[tuple[int, int], int] = {}
    for stage, row in enumerate(schedule.rows):
        done = 0
        for action in row:
            if action.kind == "F":
                seen[stage, action.microbatch] = done // each
            else:
                done += 1
    batches = Minibatches(len(task.dataset("train")), exp.batch_size, exp.seed)
    images, labels = (one for one in task.dataset("train").tensors)
    for iteration in range(exp.iterations):
        parts = np.array_split(batches.ids(iteration), each)
        total = {name: torch.zeros_like(versions[0][name]) for name in names}
        for number, part in enumerate(parts):
            n = iteration * each + number
            mixed = {
                name: versions[seen[stage_of[name], n]][name].clone().requires_grad_()
                for name in names
            }
            given = torch.func.functional_call(model, mixed, (images[part].double(),))
            loss = torch.nn.functional.cross_entropy(given, labels[part])
            grads = torch.autograd.grad(loss, [*mixed.values()])
            for name, grad in zip(names, grads, strict=True):
                total[name] += grad * len(part) / exp.batch_size
        newest = versions[-1]
        versions.append({name: newest[name] - exp.learning_rate * total[name] for name in names})
    return versions[-1]


@pytest.mark.parametrize(("microbatches", "cut"), [(1, ("3", "7")), (4, ("3", "7")), (2, ("6",))])
def test_pipedream_uses_the_version_of_its_forward(microbatches: int, cut: tuple[str, ...]) -> None:
    exp = lenet(
        strategy="pipeline", ranks=len(cut) + 1, iterations=12, batch_size=8, dtype="float64",
        options={"schedule": "pipedream", "microbatches": microbatches, "split": cut},
    )  # fmt: skip
    run = wb.run(exp)
    result = run.wait(timeout=60)
    for name, expected in replay(exp).items():
        assert (result.parameters[name] - expected).abs().max() < 1e-12, name
    plain = wb.run(exp.replace(strategy="sequential", ranks=1, options={})).wait(timeout=60)
    off = max((result.parameters[k] - v).abs().max() for k, v in plain.parameters.items())
    assert off > 1e-9  # it is not the trajectory of one process
    schedule = build("pipedream", ranks=exp.ranks, microbatches=microbatches, iterations=12)
    assert not check_pipeline(run.events, schedule, iterations=12, microbatches=microbatches)


# -- models and schedules of the user's own --


class Skipping:
    """A task whose model has a skip connection over every possible cut, and a size that is used."""

    def model(self) -> torch.nn.Module:
        class Net(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first = torch.nn.Linear(12, 12)
                self.second = torch.nn.Linear(12, 12)
                self.third = torch.nn.Linear(12, 12)
                self.last = torch.nn.Linear(12, 3)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                a = torch.tanh(self.first(x))
                b = torch.tanh(self.second(a))
                c = torch.tanh(self.third(b)) + a
                return self.last((c + x).view(x.shape[0], -1))

        return Net()

    def dataset(self, split: str) -> torch.utils.data.Dataset:
        made = torch.Generator().manual_seed(5 + (split == "train"))
        x = torch.randn(60, 12, generator=made)
        return torch.utils.data.TensorDataset(x, x[:, :3].argmax(1))

    def loss(self, model: torch.nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])


def alternating(ranks: int, microbatches: int, stages_per_rank: int) -> list[list[str]]:
    """A forward, its backward, the next microbatch: as a user writes it."""
    rows = [[f"{r}{kind}{m}" for m in range(microbatches) for kind in "FIW"] for r in range(ranks)]
    return rows


@pytest.mark.parametrize("schedule", ["1f1b", "zb_h1", alternating], ids=["1f1b", "zb_h1", "own"])
def test_a_model_with_skip_connections_may_be_cut_anywhere(schedule: Any) -> None:
    fields = {"task": Skipping, "dtype": "float64", "iterations": 10, "batch_size": 20, "lr": 0.05}
    options = {"schedule": schedule, "microbatches": 4, "split": "layers"}
    run = wb.run(lenet(strategy="pipeline", ranks=4, options=options, **fields))
    result = run.wait(timeout=60)
    one = wb.run(lenet(strategy="sequential", ranks=1, **fields)).wait(timeout=60)
    assert np.abs(np.subtract(result.losses, one.losses)).max() < 1e-12
    for name, value in one.parameters.items():
        assert (result.parameters[name] - value).abs().max() < 1e-12


@pytest.mark.parametrize("schedule", ["1f1b", "zb_h1"])
def test_a_transformer_is_cut_by_measurement_and_stays_what_it_was(schedule: str) -> None:
    small = {"layers": 3, "width": 16, "heads": 2, "context": 16}
    fields = {
        "task": "char_transformer", "task_options": small, "dtype": "float64", "iterations": 4,
        "batch_size": 8, "lr": 0.1,
    }  # fmt: skip
    options = {"schedule": schedule, "microbatches": 4, "split": "auto"}
    piped = wb.run(lenet(strategy="pipeline", ranks=3, options=options, **fields)).wait(timeout=60)
    one = wb.run(lenet(strategy="sequential", ranks=1, **fields)).wait(timeout=60)
    assert np.abs(np.subtract(piped.losses, one.losses)).max() < 1e-12
    for name, value in one.parameters.items():
        assert (piped.parameters[name] - value).abs().max() < 1e-12, name


def test_stages_may_take_microbatches_in_different_orders() -> None:
    """What arrives first is not what is needed first; a message belongs to its microbatch."""
    grid = (
        ("0F0", "0F1", "0F2", "0B1", "0B0", "0B2"),
        ("1F2", "1F0", "1F1", "1B1", "1B0", "1B2"),
    )
    fields = {"dtype": "float64", "iterations": 4, "batch_size": 18}
    options = {"schedule": grid, "microbatches": 3}
    run = wb.run(lenet(strategy="pipeline", ranks=2, options=options, **fields))
    result = run.wait(timeout=60)
    one = wb.run(lenet(strategy="sequential", ranks=1, **fields)).wait(timeout=60)
    assert np.abs(np.subtract(result.losses, one.losses)).max() < 1e-12
    assert not check_pipeline(run.events, build(grid), iterations=4)


def test_a_schedule_with_a_cycle_is_refused_with_the_cycle() -> None:
    grid = (("0F0", "0B0", "0F1", "0B1"), ("1F1", "1B1", "1F0", "1B0"))
    with pytest.raises(wb.SpecError, match="0B0 → 1B0 → 1F1 → 0F1 → 0B0"):
        lenet(strategy="pipeline", ranks=2, options={"schedule": grid, "microbatches": 2})

    def crossed(ranks: int, microbatches: int, stages_per_rank: int) -> list[list[str]]:
        return [["0F0", "0B0", "0F1", "0B1"], ["1F1", "1B1", "1F0", "1B0"]]

    exp = lenet(strategy="pipeline", ranks=2, options={"schedule": crossed, "microbatches": 2})
    with pytest.raises(wb.SpecError, match="2 ranks wait for one another"):
        wb.run(exp)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"ranks": 3, "options": {"replicas": 2}}, "replica"),
        ({"options": {"microbatches": 0}}, "microbatches = 0"),
        ({"options": {"schedule": "1f2b"}}, "1f1b"),
        ({"options": {"schedule": "zbv"}}, "stages_per_rank"),
        ({"ranks": 4, "options": {"schedule": "pipedream", "replicas": 2}}, "no flush"),
        ({"backend": "gloo"}, "backend"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(wb.SpecError, match=words):
        lenet(strategy="pipeline", **fields)


def test_metrics_are_those_of_one_process() -> None:
    """Of minibatches while it trains, and of the validation samples at its end."""
    fields = {"iterations": 11, "batch_size": 50}
    options = {"microbatches": 4, "replicas": 2}
    piped = wb.run(lenet(strategy="pipeline", ranks=4, options=options, **fields))
    one = wb.run(lenet(strategy="sequential", ranks=1, **fields))
    results = [run.wait(timeout=60) for run in (piped, one)]
    assert results[0].metrics == pytest.approx(results[1].metrics)
    told = []
    for run in (piped, one):
        rows = run.events.filter(pl.col("name").cast(pl.String) == "accuracy")
        of_minibatch = rows.filter(pl.col("phase").cast(pl.String) == "minibatch")
        told.append(of_minibatch.group_by("iteration").agg(pl.mean("value")).sort("iteration"))
    assert told[0]["iteration"].to_list() == [0, 10]
    assert np.allclose(told[0]["value"], told[1]["value"])  # the replicas' parts are equal


def test_a_run_tells_its_schedule_and_why_its_ranks_were_idle(tmp_path: Path) -> None:
    run = wb.run(padded(iterations=3))
    run.wait(timeout=60)
    run.store.save(tmp_path / "run.parquet")
    loaded = wb.load(tmp_path / "run.parquet")
    assert run.schedule == loaded.schedule == wb.schedule("1f1b", ranks=3, microbatches=4)
    parts = run.bubble()
    assert parts.equals(loaded.bubble()) and parts["rank"].to_list() == [0, 1, 2]
    whole = parts.select(pl.sum_horizontal(pl.exclude("rank", "planned")))
    assert np.allclose(whole.to_series(), 1)
    assert np.allclose(parts["planned"], 2 / 6) and (parts["warm_up"] > 0.2).all()
    other = wb.run(lenet(iterations=1))
    other.wait(timeout=60)
    assert other.schedule is None and other.bubble().height == 0


# -- memory --


def test_what_one_rank_cannot_hold_four_can() -> None:
    fields = {"iterations": 4, "batch_size": 64}
    whole = wb.run(lenet(strategy="sequential", ranks=1, memory_limit="100 MB", **fields))
    alone = whole.wait(timeout=60).memory[0]
    limit = alone // 2
    stopped = wb.run(
        lenet(strategy="sequential", ranks=1, memory_limit=f"{limit} B", **fields)
    ).wait(timeout=60, check=False)
    assert isinstance(stopped.error, wb.MemoryLimit)
    assert "rank 0 holds" in str(stopped.error) and "activations" in str(stopped.error)
    split = wb.run(lenet(strategy="pipeline", ranks=4, memory_limit=f"{limit} B", **fields))
    result = split.wait(timeout=60)
    assert sorted(result.memory) == [0, 1, 2, 3] and max(result.memory.values()) <= limit
    told = split.events.filter(
        pl.col("kind").cast(pl.String) == "metric", pl.col("name").cast(pl.String) == "memory"
    )
    assert told["value"].max() == max(result.memory.values())


def test_nothing_stays_held_when_a_pass_is_over() -> None:
    """An iteration that is over holds no activation, whole backwards or in two."""
    for schedule in ("1f1b", "zb_h1", "pipedream"):
        options = {"schedule": schedule, "microbatches": 4}
        run = wb.run(lenet(strategy="pipeline", ranks=3, options=options))
        run.wait(timeout=60)
        held = run.events.filter(pl.col("name").cast(pl.String) == "activations")
        last = held.sort("start_ns").group_by("rank").last()
        stashed = 0.0 if schedule != "pipedream" else 1e9
        assert (last["value"] <= stashed).all(), last
        flying = run.events.filter(pl.col("name").cast(pl.String) == "in flight")
        assert (flying.sort("start_ns").group_by("rank", "stage").last()["value"] == 0).all()


@pytest.mark.parametrize(
    "split",
    [
        ("blocks.0.attention.key", "blocks.0.attention.scaled_dot_product_attention"),
        ("blocks.0.attention.scaled_dot_product_attention", "blocks.0.add"),
        ("blocks.1.attention_norm", "norm"),
    ],
)
def test_a_rank_holds_what_was_planned_wherever_it_is_cut(split: tuple[str, str]) -> None:
    """What arrives lies in memory as where nothing is cut: attention's answer does as its query,
    and what follows copies the one that does not suit it, and keeps the copy. Of the last stage,
    the logarithms of all characters' probabilities are most of it.
    """
    run = wb.run(
        wb.Experiment(
            strategy="pipeline", task="char_transformer", ranks=3, iterations=2, batch_size=32,
            task_options={"layers": 2, "width": 64, "context": 32}, memory_limit="1 GB",
            options={"split": split, "microbatches": 8},
        )
    )  # fmt: skip
    memory = run.wait(timeout=60).memory
    planned = json.loads(run.store.metadata["model"])["memory"]
    assert [memory[rank] / planned[rank] for rank in range(3)] == pytest.approx([1] * 3, rel=2e-3)


def test_a_limit_that_no_cut_can_keep_is_said_with_what_would_be_needed() -> None:
    exp = lenet(strategy="pipeline", ranks=2, batch_size=64, memory_limit="50 kB")
    result = wb.run(exp).wait(timeout=60, check=False)
    assert not result.ok and "the thriftiest needs" in str(result.error)
    assert "aborted by its driver" not in str(result.error)


# -- in the user's hands --


def padded(**fields: Any) -> wb.Experiment:
    return lenet(
        **{"strategy": "pipeline", "ranks": 3, "iterations": 1000, "batch_size": 8,
           "pad_compute": "12 ms", "options": {"microbatches": 4}, **fields}
    )  # fmt: skip


@pytest.mark.parametrize("schedule", ["1f1b", "pipedream"])
def test_it_holds_steps_and_stops_where_all_agree(schedule: str) -> None:
    run = training(wb.run(padded(options={"schedule": schedule, "microbatches": 4})), 2)
    run.pause()
    time.sleep(0.5)
    at = run.iteration
    time.sleep(0.3)
    assert run.iteration == at
    run.resume()
    run.stop()
    result = run.wait(timeout=20)
    assert result.ok and at < len(result.losses) < 1000
    done = run.events.filter(pl.col("kind").cast(pl.String) == "backward")
    counts = done.group_by("stage").len()["len"].unique().to_list()
    assert counts == [len(result.losses) * 4]


def test_a_killed_rank_is_named() -> None:
    run = training(wb.run(padded()))
    run.kill(1)
    with pytest.raises(wb.PeerLost, match=r"rank 1 .*SIGKILL"):
        run.wait(timeout=20)


def test_a_slow_stage_is_slow_and_its_neighbours_wait() -> None:
    run = wb.run(padded(iterations=4, faults=[wb.Slow(rank=1, factor=3)]))
    run.wait(timeout=60)
    spans = run.events.filter(pl.col("kind").cast(pl.String) == "forward").with_columns(
        ms=(pl.col("end_ns") - pl.col("start_ns")) / 1e6
    )
    median = dict(spans.group_by("rank").agg(pl.col("ms").median()).iter_rows())
    assert median[1] >= 36 > 1.5 * median[0]


def test_computing_longer_than_its_pad_is_an_error() -> None:
    pads = wb.Pads(forward="10 us", input_gradient="10 us", weight_gradient="10 us")
    result = wb.run(padded(pad_compute=pads)).wait(timeout=60, check=False)
    assert isinstance(result.error, wb.PadOverrun) and "padded to 0.01 ms" in str(result.error)
