"""A multilayer perceptron of any depth and width on made-up samples: for buckets, links and memory.

Six layers of width 1024 are 25 MB of gradients; a hundred of width 32 are 200 small tensors. The
layers add to what they are given (He et al., "Deep Residual Learning", CVPR 2016), so that deep
ones train too; tanh, so that rounding stays rounding.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset, TensorDataset

SEED = 20  # of the samples: the same whatever the run's seed
FEATURES, CLASSES = 16, 8


class Task:
    """Eight classes; the metric is the share of samples that are classified right.

    layers   of weights (width x width) and biases
    width    of each; from 16 on
    unused   layers more that no sample goes through: they never have a gradient
    samples  for training; a quarter as many for validation
    """

    def __init__(
        self, layers: int = 6, width: int = 1024, unused: int = 0, samples: int = 2048
    ) -> None:
        if min(layers, samples) < 1 or width < FEATURES or unused < 0:
            raise ValueError(
                f"layers={layers}, width={width}, unused={unused}, samples={samples}: at least 1, "
                f"{FEATURES}, 0 and 1"
            )
        self.layers, self.width, self.unused, self.samples = layers, width, unused, samples

    def model(self) -> nn.Module:
        return Residual(self.layers, self.width, self.unused)

    def dataset(self, split: str) -> Dataset[tuple[torch.Tensor, ...]]:
        """Return the samples of ``split``: "train" or "validation".

        Classes are those of a random linear map.
        """
        train = split == "train"
        result = torch.Generator().manual_seed(SEED + (not train))
        x = torch.randn(
            self.samples if train else max(1, self.samples // 4), FEATURES, generator=result
        )
        truth = torch.randn(FEATURES, CLASSES, generator=torch.Generator().manual_seed(SEED - 1))
        return TensorDataset(x, (x @ truth).argmax(1))

    def loss(self, model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
        x, labels = batch
        return F.cross_entropy(model(x), labels)

    def metrics(self, model: nn.Module, batch: list[torch.Tensor]) -> dict[str, float]:
        x, labels = batch
        right = (model(x).argmax(1) == labels).count_nonzero().item()
        return {"accuracy": right / len(labels)}


class Residual(nn.Module):
    """x + tanh(layer(x)) / sqrt(layers), layer after layer. It has no parameters but theirs: what
    goes in is padded with zeros, and the first outputs are the classes' scores.
    """

    def __init__(self, layers: int, width: int, unused: int) -> None:
        super().__init__()
        self.width = width
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.unused = nn.ModuleList(nn.Linear(width, width) for _ in range(unused))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.pad(x, (0, self.width - x.shape[1]))
        for layer in self.layers:
            x = x + torch.tanh(layer(x)) / math.sqrt(len(self.layers))
        return x[:, :CLASSES]


def size(layers: int = 6, width: int = 1024, unused: int = 0, samples: int = 2048) -> int:
    """Return how many values the model and its samples hold, without making them."""
    return (layers + unused) * (width * width + width) + samples * (FEATURES + 1)
