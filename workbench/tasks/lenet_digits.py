"""LeNet-5 on handwritten digits: 1,797 images of 8x8 pixels (UCI), resized to 28x28.

Paper  LeCun et al., "Gradient-based learning applied to document recognition", Proc. IEEE 86(11),
       1998.
Model  61,706 parameters; tanh and average pooling after the paper's, which scales its tanh, trains
       its pooling, and has a partial third layer and an RBF output. Smooth, so that differences of
       rounding stay such over 100 iterations (with ReLU and max pooling they grow to 0.1-0.8).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset, TensorDataset

from workbench.front_end.assets import asset

VALIDATION_EVERY = 5  # each fifth image is for validation


class Task:
    """Ten classes; the metric is the share of images that are classified right."""

    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2),
            nn.Tanh(),
            nn.AvgPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.Tanh(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(400, 120),
            nn.Tanh(),
            nn.Linear(120, 84),
            nn.Tanh(),
            nn.Linear(84, 10),
        )

    def dataset(self, split: str) -> Dataset[tuple[torch.Tensor, ...]]:
        """Return the samples of ``split``: "train" (1,437 images) or "validation" (360)."""
        with np.load(asset("data/digits.npz"), allow_pickle=False) as file:
            images, labels = file["images"], file["labels"]
        chosen = np.arange(len(images)) % VALIDATION_EVERY == 0
        if split == "train":
            chosen = ~chosen
        pixels = torch.from_numpy(images[chosen]).float().unsqueeze(1) / 8 - 1
        resized = F.interpolate(pixels, size=(28, 28), mode="bilinear", align_corners=False)
        return TensorDataset(resized, torch.from_numpy(labels[chosen]).long())

    def loss(self, model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
        images, labels = batch
        return F.cross_entropy(model(images), labels)

    def metrics(self, model: nn.Module, batch: list[torch.Tensor]) -> dict[str, float]:
        images, labels = batch
        right = (model(images).argmax(1) == labels).count_nonzero().item()
        return {"accuracy": right / len(labels)}
