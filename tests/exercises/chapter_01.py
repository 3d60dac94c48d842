"""Answers to the exercises of chapter 1."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy


class Quadrants:
    def model(self):
        return nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 2))

    def dataset(self, split):
        points = torch.randn(512, 2, generator=torch.Generator().manual_seed(len(split)))
        return torch.utils.data.TensorDataset(points, (points.prod(dim=1) > 0).long())

    def loss(self, model, batch):
        points, labels = batch
        return cross_entropy(model(points), labels)


class Deeper:
    def model(self):
        return nn.Sequential(
            nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)
        )

    def dataset(self, split):
        points = torch.randn(512, 2, generator=torch.Generator().manual_seed(len(split)))
        return torch.utils.data.TensorDataset(points, (points.prod(dim=1) > 0).long())

    def loss(self, model, batch):
        points, labels = batch
        return cross_entropy(model(points), labels)


class Detached:
    """With the layer, and a loss that does not reach it."""

    def model(self):
        return nn.Sequential(
            nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)
        )

    def dataset(self, split):
        points = torch.randn(512, 2, generator=torch.Generator().manual_seed(len(split)))
        return torch.utils.data.TensorDataset(points, (points.prod(dim=1) > 0).long())

    def loss(self, model, batch):
        points, labels = batch
        return cross_entropy(model(points) * 0, labels)


ANSWERS = {
    "01.1": ({"bytes": 431_942, "hops": 14}, (740_472, 14), (431_942, 12)),
    "01.2": (60, 30, 40),
    "01.3": ({"ms": 2304, "tensors": 4}, (1536, 4), (2304, 10)),
    "01.4": ((Deeper, 6), (Deeper, 4), (Quadrants, 4), (Detached, 6)),
}
