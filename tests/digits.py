"""A task of one small layer, so that what is tested around it is the subject."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


class Digits:
    """Which of ten numbers is the largest."""

    ELEMENTS = 650

    def model(self) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))

    def dataset(self, split: str) -> Any:
        random = np.random.default_rng(0)
        x = torch.tensor(random.normal(size=(437, 1, 8, 8)), dtype=torch.float32)
        return torch.utils.data.TensorDataset(x, x.flatten(1)[:, :10].argmax(1))

    def loss(self, model: torch.nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
        x = batch[0].to(next(model.parameters()).dtype)
        return torch.nn.functional.cross_entropy(model(x), batch[1])
