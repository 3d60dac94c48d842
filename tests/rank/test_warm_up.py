"""The learning rate of each update, scaled to the minibatch and warmed up, wherever updates are."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import workbench as wb
from tests.live import lenet
from tests.pairwise import first
from workbench.rank.batches import Minibatches
from workbench.tasks.lenet_digits import Task

RULE: dict[str, Any] = {"lr": 0.02, "batch_size": 24, "reference_batch": 6, "warmup": 8}
ITERATIONS = 16


def done(**fields: Any) -> wb.Result:
    return wb.run(
        lenet(**{"iterations": ITERATIONS, "dtype": "float64", "threads": 1, **RULE, **fields})
    ).wait(90)


@cache
def by_hand(momentum: float = 0.0) -> tuple[list[float], dict[str, torch.Tensor]]:
    """From 0.02 by equal steps to 0.08 at update 8."""
    torch.manual_seed(0)
    task = Task()
    model = task.model().double()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=momentum)
    data = task.dataset("train")
    minibatches, losses = Minibatches(len(data), RULE["batch_size"], 0), []
    for t in range(ITERATIONS):
        optimizer.param_groups[0]["lr"] = 0.02 + min(t, 8) * 0.06 / 8
        x, labels = torch.utils.data.default_collate([data[int(i)] for i in minibatches.ids(t)])
        optimizer.zero_grad()
        loss = task.loss(model, [x.double(), labels])
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, dict(model.state_dict())


def check(result: wb.Result, momentum: float = 0.0) -> None:
    losses, parameters = by_hand(momentum)
    assert np.abs(np.subtract(result.losses, losses)).max() <= 1e-12
    assert max((result.parameters[k] - parameters[k]).abs().max() for k in parameters) <= 1e-11


@pytest.mark.parametrize(
    ("strategy", "ranks", "options"),
    first(
        3,
        [
            ("sequential", 1, {}),
            ("data_parallel", 3, {}),
            ("ddp", 2, {}),
            ("fusion", 2, {}),
            ("local_sgd", 3, {"every": 1}),
            ("parameter_server", 4, {}),
            ("parameter_server", 4, {"servers": 2}),
            ("pipeline", 2, {"microbatches": 2}),
            ("tensor_parallel", 2, {}),
        ],
    ),
)
@pytest.mark.parametrize("momentum", first(1, [0.5, 0.0]))
def test_it_is_the_same_everywhere(
    strategy: str, ranks: int, options: dict[str, Any], momentum: float
) -> None:
    check(done(strategy=strategy, ranks=ranks, options=options, momentum=momentum), momentum)


@pytest.mark.full
def test_without_it_the_trajectory_is_another() -> None:
    for change in ({"warmup": 0}, {"warmup": 7}, {"reference_batch": None}):
        with pytest.raises(AssertionError):
            check(done(strategy="data_parallel", ranks=2, **change))


@pytest.mark.full
def test_an_asynchronous_server_counts_its_updates() -> None:
    """One worker: what it sees is the sequential trajectory, updates made while values are sent
    included.
    """
    for record in (True, False):
        options = {"consistency": "asp"}
        check(done(strategy="parameter_server", ranks=2, options=options, record=record))
