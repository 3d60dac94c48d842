"""A task that cannot be trained as it says is refused by name, before the first iteration."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch.utils.data import IterableDataset, TensorDataset

import workbench as wb
from workbench.common.errors import SpecError
from workbench.rank.placement import in_dtype


class Good:
    """Two numbers in, one out."""

    def model(self) -> torch.nn.Module:
        return torch.nn.Linear(2, 1)

    def dataset(self, split: str) -> torch.utils.data.Dataset:
        return TensorDataset(torch.ones(8, 2), torch.ones(8, 1))

    def loss(self, model: torch.nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
        return torch.nn.functional.mse_loss(model(batch[0]), batch[1])


class Empty(Good):
    def dataset(self, split: str) -> torch.utils.data.Dataset:
        return TensorDataset(torch.ones(0, 2), torch.ones(0, 1))


class Stream(IterableDataset):
    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(())


class Endless(Good):
    def dataset(self, split: str) -> torch.utils.data.Dataset:
        return Stream()


class Unweighted(Good):
    def model(self) -> torch.nn.Module:
        return torch.nn.Flatten()


class Coarse(Good):
    def model(self) -> torch.nn.Module:
        return torch.nn.Linear(2, 1, dtype=torch.bfloat16)


class Imaginary(Good):
    def model(self) -> torch.nn.Module:
        return torch.nn.Linear(2, 1, dtype=torch.complex64)


REFUSED = {
    Empty: r"task Empty: dataset\('train'\) has no samples",
    Endless: r"task Endless: dataset\('train'\) gives a Stream, which has no length",
    Unweighted: r"task Unweighted: its model \(Flatten\) has no parameters",
    Coarse: r"task Coarse: 'weight' of its model is bfloat16, .* trains in float32",
    Imaginary: r"task Imaginary: 'weight' of its model is complex64, .*imaginary parts",
}


def run(task: type, **fields: object) -> wb.Result:
    exp = wb.Experiment(task=task, ranks=2, iterations=2, batch_size=4, threads=1, **fields)
    return wb.run(exp).wait(timeout=60)


@pytest.mark.parametrize("task", REFUSED, ids=lambda one: one.__name__)
def test_it_is_refused_by_name(task: type) -> None:
    with pytest.raises(SpecError, match=REFUSED[task]):
        run(task)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_can_be_trained_is(dtype: str) -> None:
    assert run(Good, dtype=dtype).ok


def test_buffers_of_complex_numbers_would_lose_as_much() -> None:
    model = torch.nn.Linear(2, 1)
    model.register_buffer("turns", torch.ones(3, dtype=torch.complex64))
    with pytest.raises(SpecError, match="'turns' of its model is complex64"):
        in_dtype(model, torch.float32, Good())
    model.register_buffer("turns", torch.ones(3, dtype=torch.bfloat16))  # loses nothing
    assert in_dtype(model, torch.float64, Good()).turns.dtype is torch.float64
