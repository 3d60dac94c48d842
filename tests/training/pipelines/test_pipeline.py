"""A pipeline is sequential training, cut over real processes; its rows obey the schedule.

Losses and parameters equal those of one process within rounding, whatever the schedule, the cut and
the number of microbatches or replicas; PipeDream equals a replay of its own versions. What a user
does to a run (hold, step, stop, kill) and what a rank may hold at most work as in every strategy.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import workbench as wb
from tests.live import lenet
from tests.pairwise import Case, first, full, sampled
from workbench.rank.batches import Minibatches
from workbench.tasks.lenet_digits import Task
from workbench.training.pipelines.laws import check_pipeline
from workbench.training.pipelines.schedule import build

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
HARD = [
    {"schedule": "1f1b", "ranks": 4, "batch_size": 50, "optimizer": "adam", "dtype": "float64"},
    {"schedule": "gpipe", "ranks": 2, "microbatches": 8, "batch_size": 50, "replicas": 2},
]


def possible(case: Case) -> bool:
    """LeNet has 12 layers; a schedule of several stages a rank wants two ranks or more, DualPipeV
    as many microbatches as stages.
    """
    stages = case["ranks"] * (2 if case["schedule"] in SEVERAL else 1)
    if case["schedule"] == "dualpipe_v" and case["microbatches"] < stages:
        return False
    return stages <= 8 and not (case["schedule"] in SEVERAL and case["ranks"] == 1)


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
        strategy="sequential",
        ranks=1,
        iterations=ITERATIONS,
        batch_size=batch_size,
        dtype=dtype,
        **{"optimizer": optimizer, "lr": 0.01, **rule},
    )
    return wb.run(exp).wait(timeout=120)


def obeys(case: Case) -> None:
    run = wb.run(experiment(case))
    result = run.wait(timeout=120)
    check_equal(result, reference(case["optimizer"], case["dtype"], case["batch_size"]), case)
    schedule = build(
        case["schedule"],
        ranks=case["ranks"],
        microbatches=case["microbatches"],
        stages_per_rank=2 if case["schedule"] in SEVERAL else 1,
    )
    violations = check_pipeline(run.events, schedule, iterations=ITERATIONS)
    assert not violations, violations[:3]
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


@pytest.mark.parametrize("case", sampled([*filter(possible, full(FACTORS))], *HARD), ids=name_of)
def test_a_pipeline_equals_one_process_and_keeps_its_schedule(case: Case) -> None:
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
    version_of: dict[tuple[int, int], int] = {}
    for stage, row in enumerate(schedule.rows):
        done = 0
        for action in row:
            if action.kind == "F":
                version_of[stage, action.microbatch] = done // each
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
                name: versions[version_of[stage_of[name], n]][name].clone().requires_grad_()
                for name in names
            }
            output = torch.func.functional_call(model, mixed, (images[part].double(),))
            loss = torch.nn.functional.cross_entropy(output, labels[part])
            grads = torch.autograd.grad(loss, [*mixed.values()])
            for name, grad in zip(names, grads, strict=True):
                total[name] += grad * len(part) / exp.batch_size
        newest = versions[-1]
        versions.append({name: newest[name] - exp.learning_rate * total[name] for name in names})
    return versions[-1]


@pytest.mark.parametrize(
    ("microbatches", "cut"), first(1, [(4, ("3", "7")), (1, ("3", "7")), (2, ("6",))])
)
def test_pipedream_uses_the_version_of_its_forward(microbatches: int, cut: tuple[str, ...]) -> None:
    exp = lenet(
        strategy="pipeline",
        ranks=len(cut) + 1,
        iterations=12,
        batch_size=8,
        dtype="float64",
        options={"schedule": "pipedream", "microbatches": microbatches, "split": cut},
    )
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
        generator = torch.Generator().manual_seed(5 + (split == "train"))
        x = torch.randn(60, 12, generator=generator)
        return torch.utils.data.TensorDataset(x, x[:, :3].argmax(1))

    def loss(self, model: torch.nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])


def alternating(ranks: int, microbatches: int, stages_per_rank: int) -> list[list[str]]:
    """A forward, its backward, the next microbatch: as a user writes it."""
    rows = [[f"{r}{kind}{m}" for m in range(microbatches) for kind in "FIW"] for r in range(ranks)]
    return rows


@pytest.mark.full
@pytest.mark.parametrize(
    "schedule", first(1, ["zb_h1", "1f1b", alternating]), ids=["zb_h1", "1f1b", "own"]
)
def test_a_model_with_skip_connections_may_be_cut_anywhere(schedule: Any) -> None:
    fields = {"task": Skipping, "dtype": "float64", "iterations": 10, "batch_size": 20, "lr": 0.05}
    options = {"schedule": schedule, "microbatches": 4, "split": "layers"}
    run = wb.run(lenet(strategy="pipeline", ranks=4, options=options, **fields))
    result = run.wait(timeout=60)
    one = wb.run(lenet(strategy="sequential", ranks=1, **fields)).wait(timeout=60)
    assert np.abs(np.subtract(result.losses, one.losses)).max() < 1e-12
    for name, value in one.parameters.items():
        assert (result.parameters[name] - value).abs().max() < 1e-12


@pytest.mark.parametrize("schedule", first(1, ["1f1b", "zb_h1"]))
def test_a_transformer_is_cut_by_measurement_and_stays_what_it_was(schedule: str) -> None:
    small = {"layers": 3, "width": 16, "heads": 2, "context": 16}
    fields = {
        "task": "char_transformer",
        "task_options": small,
        "dtype": "float64",
        "iterations": 4,
        "batch_size": 8,
        "lr": 0.1,
    }
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


@pytest.mark.full
def test_metrics_are_those_of_one_process() -> None:
    """Of minibatches while it trains, and of the validation samples at its end."""
    fields = {"iterations": 11, "batch_size": 50}
    options = {"microbatches": 4, "replicas": 2}
    piped = wb.run(lenet(strategy="pipeline", ranks=4, options=options, **fields))
    one = wb.run(lenet(strategy="sequential", ranks=1, **fields))
    results = [run.wait(timeout=60) for run in (piped, one)]
    assert results[0].metrics == pytest.approx(results[1].metrics)
    curves = []
    for run in (piped, one):
        rows = run.events.filter(pl.col("name").cast(pl.String) == "accuracy")
        of_minibatch = rows.filter(pl.col("phase").cast(pl.String) == "minibatch")
        curves.append(of_minibatch.group_by("iteration").agg(pl.mean("value")).sort("iteration"))
    assert curves[0]["iteration"].to_list() == [0, 10]
    assert np.allclose(curves[0]["value"], curves[1]["value"])  # the replicas' parts are equal
