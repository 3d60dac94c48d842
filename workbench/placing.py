"""Samples as batches, and where tensors live: what a rank needs before it can compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate

from workbench.errors import WorkbenchError


def collated(dataset: Any, ids: np.ndarray) -> Any:
    """These samples as one batch, as a DataLoader makes it."""
    if getattr(dataset, "__getitems__", None):
        samples = dataset.__getitems__(ids.tolist())
    else:
        samples = [dataset[int(i)] for i in ids]
    return default_collate(samples)


def moved(batch: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """The batch on ``device``, its floating tensors in ``dtype``."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, dtype) if batch.is_floating_point() else batch.to(device)
    if isinstance(batch, dict):
        return {key: moved(value, device, dtype) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        return [moved(value, device, dtype) for value in batch]
    return batch


def device_of(wanted: str, rank: int) -> torch.device:
    """``auto``: a GPU if there is one; ranks beyond the number of GPUs share them."""
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    if wanted == "cuda":
        wanted = f"cuda:{rank % torch.cuda.device_count()}"
    if wanted.startswith("cuda") and not torch.cuda.is_available():
        raise WorkbenchError(
            f"device={wanted!r}: this torch ({torch.__version__}) finds no GPU; "
            "use device='cpu' or 'auto'"
        )
    return torch.device(wanted)
