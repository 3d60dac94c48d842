"""Small models that exercises train, as the chapters do."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import cross_entropy, interpolate
from torch.utils.data import TensorDataset

from workbench.tasks.lenet_digits import Task


class Digits(Task):
    """The digits with a model that takes no time: chapters 3 and 4."""

    def model(self) -> nn.Module:
        """Return one hidden layer."""
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.Tanh(), nn.Linear(32, 10))


class Layers(Task):
    """The digits in 8 × 8 pixels, with sixteen layers that can be shared out: chapters 6 and 7."""

    def dataset(self, split: str) -> TensorDataset:
        """Return the images, flat, with their labels."""
        images, labels = super().dataset(split)[:]
        return TensorDataset(interpolate(images, 8).flatten(1), labels)

    def model(self) -> nn.Module:
        """Return eight linear layers."""
        wide = [layer for _ in range(7) for layer in (nn.Linear(64, 64), nn.Tanh())]
        return nn.Sequential(*wide, nn.Linear(64, 10), nn.LogSoftmax(1))


class Skips(nn.Module):
    """A model whose input is used by the first layer and by the last: chapter 5."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(12, 32)
        self.second = nn.Linear(32, 32)
        self.third = nn.Linear(32, 32)
        self.last = nn.Linear(44, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scores of three classes."""
        a = torch.tanh(self.first(x))
        b = torch.tanh(self.second(a))
        c = torch.tanh(self.third(b)) + a
        scores: torch.Tensor = self.last(torch.cat([c, x], dim=1))
        return scores


class Largest:
    """Find the largest of the first three of twelve numbers: chapter 5."""

    def model(self) -> nn.Module:
        """Return the model that skips."""
        return Skips()

    def dataset(self, split: str) -> TensorDataset:
        """Return points with their labels."""
        seed = torch.Generator().manual_seed(0 if split == "train" else 1)
        x = torch.randn(480, 12, generator=seed)
        return TensorDataset(x, x[:, :3].argmax(1))

    def loss(self, model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """Return the cross entropy of a batch."""
        x, largest = batch
        return cross_entropy(model(x), largest)
