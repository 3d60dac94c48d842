"""The task of many layers: its sizes, its samples, that it trains; what cannot be."""

from __future__ import annotations

import pytest
import torch

import workbench as wb
from tests.pairwise import first
from workbench.tasks.mlp_layers import Task


def test_its_sizes_are_what_it_says() -> None:
    large = sum(value.numel() * 4 for value in Task().model().parameters())
    assert large == pytest.approx(25e6, rel=0.02)
    small = list(Task(layers=100, width=32).model().parameters())
    assert len(small) == 200 and max(value.numel() for value in small) == 1024
    assert len(list(Task(layers=2, width=16, unused=3).model().parameters())) == 10


def test_its_samples_are_the_same_each_time_and_validation_has_others() -> None:
    one, again = Task(samples=40).dataset("train"), Task(samples=40).dataset("train")
    validation = Task(samples=40).dataset("validation")
    assert torch.equal(one[7][0], again[7][0]) and len(one) == 40 and len(validation) == 10
    assert not torch.equal(one[0][0], validation[0][0])


@pytest.mark.full
@pytest.mark.parametrize(
    "options", first(1, [{"layers": 4, "width": 32}, {"layers": 100, "width": 32}])
)
def test_it_trains_however_deep(options: dict[str, int]) -> None:
    exp = wb.Experiment(
        strategy="sequential",
        ranks=1,
        task="mlp_layers",
        task_options=options,
        iterations=150,
        batch_size=64,
        record=False,
    )
    result = wb.run(exp).wait(timeout=400)
    assert result.losses[-1] < 0.6 * result.losses[0]
    assert result.metrics["accuracy"] > 0.6


@pytest.mark.parametrize("options", [{"layers": 0}, {"width": 8}, {"unused": -1}, {"samples": 0}])
def test_sizes_that_cannot_be_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least"):
        Task(**options)
