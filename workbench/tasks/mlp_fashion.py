"""A small MLP on pictures of clothes: Fashion-MNIST's, or MNIST's digits, from your own folder.

Paper  Xiao, Rasul & Vollgraf, "Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine
       Learning Algorithms", arXiv 1708.07747, 2017.
Data   four IDX files, gzipped or not, in ``folder``: 60,000 images of 28x28 pixels to train on and
       10,000 to validate with. None comes with the workbench; what is missing is said before
       anything starts.
Model  layers of tanh: smooth, so that rounding differences stay differences of rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from workbench.common import idx
from workbench.common.errors import short

CLASSES = 10
FOLDER = "fashion-mnist"
PLACES = ("folder",)  # options that name what is read: the web app asks its operator for them


class Images(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Pixels stay bytes until they are asked for: a quarter of the memory."""

    def __init__(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.images[i].float() / 127.5 - 1, self.labels[i]


class Task:
    """Ten classes; the metric is the share of images that are classified right."""

    def __init__(
        self, *, folder: str = FOLDER, hidden: Sequence[int] = (128, 64), samples: int | None = None
    ) -> None:
        """Configure the task.

        ``folder``: of the files. ``hidden``: the width of each hidden layer. ``samples``: train on
        the first so many at most.
        """
        self.folder, self.hidden, self.samples = folder, tuple(hidden), samples

    def model(self) -> nn.Module:
        images, _ = idx.read(self.folder, "validation")  # the smaller one tells their size
        widths = [images[0].size, *self.hidden, CLASSES]
        layers: list[nn.Module] = [nn.Flatten()]
        for inputs, outputs in pairwise(widths):
            layers += [nn.Linear(inputs, outputs), nn.Tanh()]
        return nn.Sequential(*layers[:-1])

    def dataset(self, split: str) -> Dataset[Any]:
        """Return the samples of ``split``: "train" or "validation"."""
        images, labels = idx.read(self.folder, split)
        most = self.samples if split == "train" else None
        return Images(
            torch.tensor(images[:most]).unsqueeze(1), torch.tensor(labels[:most]).long()
        )  # copies, since what was read cannot be written to

    def loss(self, model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
        images, labels = batch
        return F.cross_entropy(model(images), labels)

    def metrics(self, model: nn.Module, batch: list[torch.Tensor]) -> dict[str, float]:
        images, labels = batch
        right = (model(images).argmax(1) == labels).count_nonzero().item()
        return {"accuracy": right / len(labels)}


def check(
    folder: str = FOLDER, hidden: Sequence[int] = (128, 64), samples: int | None = None
) -> None:
    """Check that the files exist and are complete. Raises SpecError or ValueError."""
    if any(not isinstance(width, int) or width < 1 for width in hidden):
        raise ValueError(f"hidden = {short(list(hidden))}: the width of each layer, 1 or more")
    if samples is not None and samples < 1:
        raise ValueError(f"samples = {samples}: 1 or more; left out: all")
    idx.check(folder, CLASSES)


def size(
    folder: str = FOLDER, hidden: Sequence[int] = (128, 64), samples: int | None = None
) -> int:
    """Return the least number of values that the model holds, without making it."""
    widths = [*hidden, CLASSES]
    return sum(inputs * outputs for inputs, outputs in pairwise(widths))
