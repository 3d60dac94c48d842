"""Data parallel training and DDP are sequential training, cut over real processes.

In 100 iterations of LeNet-5 the losses differ by at most 1e-5 in float32 and 1e-12 in float64, and
the replicas are bit-identical. What is wrong on purpose must not pass.
"""

from __future__ import annotations

from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

import workbench as wb
from tests.live import lenet
from tests.pairwise import Case, first, full, sampled
from workbench.laws import replicas_identical
from workbench.rank.batches import Minibatches, partition
from workbench.studies.drift import mutants

ITERATIONS = 100
LOSS_BOUND = {"float32": 1e-5, "float64": 1e-12}
PARAMETER_BOUND = {"float32": 1e-4, "float64": 1e-11}
OPTIMIZERS = ["sgd", "momentum", "adam"]
FACTORS: dict[str, list[Any]] = {
    "ranks": [1, 2, 3, 4, 8],
    "all_reduce": ["ring", "naive", "one_shot", "auto"],
    "batch_size": [64, 100, 10, 5],  # of 1,437 samples; 5 leaves some of 8 ranks without a sample
    "optimizer": OPTIMIZERS,
    "strategy": ["data_parallel", "ddp"],
    "dtype": ["float32", "float64"],
}


def rule(optimizer: str, batch_size: int) -> dict[str, Any]:
    """The fields of an experiment that mean this optimizer.

    Momentum 0.9 with lr 0.1 on 10 samples a step is chaotic: rounding alone grows to 0.2 in 100
    iterations, in float64 from 1e-16 to 1e-10. So minibatches that small take lr 0.01.
    """
    if optimizer == "momentum":
        return {"optimizer": "sgd", "lr": 0.1 if batch_size > 10 else 0.01, "momentum": 0.9}
    return {"optimizer": optimizer, "lr": 0.1 if optimizer == "sgd" else 1e-3}


@cache
def sequential(optimizer: str, dtype: str, batch_size: int, iterations: int) -> wb.Result:
    exp = lenet(
        strategy="sequential",
        ranks=1,
        iterations=iterations,
        batch_size=batch_size,
        dtype=dtype,
        record=False,
        **rule(optimizer, batch_size),
    )
    return wb.run(exp).wait(timeout=120)


def check_equal(result: wb.Result, reference: wb.Result, dtype: str) -> None:
    """Losses and parameters are the reference's within rounding; replicas are the same bits."""
    assert len(result.losses) == len(reference.losses)
    difference = np.abs(np.subtract(result.losses, reference.losses)).max()
    assert difference <= LOSS_BOUND[dtype], f"losses differ by {difference:.2e}"
    assert not replicas_identical(result.digests)
    assert result.parameters.keys() == reference.parameters.keys()
    for name, value in result.parameters.items():
        furthest = (value - reference.parameters[name]).abs().max().item()
        assert furthest <= PARAMETER_BOUND[dtype], f"{name} differs by {furthest:.2e}"


def name_of(case: Case) -> str:
    return "-".join(str(value) for value in case.values())


def equals_sequential(case: Case) -> None:
    reference = sequential(case["optimizer"], case["dtype"], case["batch_size"], ITERATIONS)
    fields = {**case, **rule(case["optimizer"], case["batch_size"])}
    result = wb.run(lenet(**fields, iterations=ITERATIONS, record=False)).wait(timeout=120)
    assert sorted(result.digests) == list(range(case["ranks"]))
    check_equal(result, reference, case["dtype"])


UNEVEN = {"ranks": 3, "batch_size": 10, "optimizer": "momentum", "dtype": "float64"}
HARD = [
    {**UNEVEN, "strategy": "data_parallel", "all_reduce": "ring"},
    {"strategy": "ddp", "ranks": 2, "all_reduce": "naive", "optimizer": "adam", "batch_size": 5},
]


@pytest.mark.parametrize("case", sampled(full(FACTORS), *HARD), ids=name_of)
def test_equals_sequential(case: Case) -> None:
    equals_sequential(case)


# -- the same samples --


class Logged:
    """A small model on 23 samples, and a file a rank with every id that it asked for."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def model(self) -> torch.nn.Module:
        return torch.nn.Linear(4, 2)

    def dataset(self, split: str) -> Any:
        folder = self.folder

        class Samples(torch.utils.data.Dataset):  # type: ignore[type-arg]
            def __len__(self) -> int:
                return 23

            def __getitem__(self, i: int) -> torch.Tensor:
                rank = dist.get_rank()
                with open(f"{folder}/{rank}", "a") as file:
                    file.write(f"{i}\n")
                return torch.full((4,), float(i))

        return Samples()

    def loss(self, model: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
        return (model(batch) ** 2).mean() * 1e-3


def ids_by_iteration(folder: Path, ranks: int, iterations: int, batch_size: int) -> list[list[int]]:
    """The minibatches, put together again from what each rank asked for."""
    logs = [iter(map(int, (folder / str(rank)).read_text().split())) for rank in range(ranks)]
    result = []
    for iteration in range(iterations):
        whole = Minibatches(23, batch_size, 7).ids(iteration)  # its length and no more
        ids = np.full(len(whole), -1)
        for rank, log in enumerate(logs):
            for place in range(rank, len(whole), ranks):
                ids[place] = next(log)
        result.append(ids.tolist())
    assert all(next(log, None) is None for log in logs)
    return result


@pytest.mark.full
@pytest.mark.parametrize("strategy", first(1, ["data_parallel", "ddp"]))
def test_every_number_of_ranks_trains_on_the_same_samples(strategy: str, tmp_path: Path) -> None:
    by_ranks = []
    for ranks in (1, 2, 3):
        folder = tmp_path / str(ranks)
        folder.mkdir()
        exp = wb.Experiment(
            strategy=strategy if ranks > 1 else "sequential",
            task=Logged,
            ranks=ranks,
            iterations=9,
            batch_size=6,
            seed=7,
            task_options={"folder": str(folder)},
        )
        wb.run(exp).wait(timeout=60)
        by_ranks.append(ids_by_iteration(folder, ranks, 9, 6))
    assert by_ranks[0] == by_ranks[1] == by_ranks[2]
    assert sorted(chain(*by_ranks[0][:4])) == list(range(23))  # an epoch: 6 + 6 + 6 + 5


# -- what is wrong on purpose --


def as_it_should_be(job: Any, config: Any) -> None:
    """Train data parallel by hand, and right: mutants fail for what is wrong in them."""
    model = job.model()
    optimizer = job.optimizer(model)
    for minibatch in job.iterations():
        mine = partition(minibatch.ids, job.rank, job.ranks)
        optimizer.zero_grad()
        loss = job.forward(model, job.load(mine))
        job.backward(loss, weight=len(mine) / len(minibatch.ids))
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        job.update(optimizer)
        job.report(loss, len(mine))
    job.finish(model)


# Those with a Config forget something on resuming; tests/studies/drift has them.
MUTANTS = sorted(
    path
    for path in Path(mutants.__file__).parent.glob("*.py")
    if path.stem[0] != "_" and "class Config" not in path.read_text()
)


def outcome(strategy: Any) -> wb.Result:
    """10 samples over 4 ranks: 3, 3, 2, 2."""
    exp = lenet(strategy=strategy, ranks=4, iterations=10, batch_size=10, lr=0.1, record=False)
    return wb.run(exp).wait(timeout=60)


@pytest.mark.parametrize("mutant", first(2, MUTANTS), ids=lambda path: path.stem)
def test_a_mutant_fails_the_check(mutant: Path) -> None:
    with pytest.raises(AssertionError, match="losses differ"):
        check_equal(outcome(f"{mutant}:train"), sequential("sgd", "float32", 10, 10), "float32")


def test_a_users_own_strategy_passes_the_check() -> None:
    check_equal(outcome(as_it_should_be), sequential("sgd", "float32", 10, 10), "float32")


def test_replicas_that_drift_apart_are_named() -> None:
    violations = replicas_identical(outcome(f"{mutants.__path__[0]}/no_sync.py:train").digests)
    assert violations and "digest" in str(violations[0])
