"""Samples as batches, and where tensors live: what a rank needs before it can compute."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate

from workbench.common.errors import SpecError, WorkbenchError


def collate(dataset: Any, ids: np.ndarray) -> Any:
    """Collate these samples to one batch, as a DataLoader does."""
    if getattr(dataset, "__getitems__", None):
        samples = dataset.__getitems__(ids.tolist())
    else:
        samples = [dataset[int(i)] for i in ids]
    return default_collate(samples)


def move_batch(batch: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """Move the batch to ``device``, its floating tensors in ``dtype``."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, dtype) if batch.is_floating_point() else batch.to(device)
    if isinstance(batch, dict):
        return {key: move_batch(value, device, dtype) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        return [move_batch(value, device, dtype) for value in batch]
    return batch


def in_dtype(model: torch.nn.Module, dtype: torch.dtype, task: Any) -> torch.nn.Module:
    """Return the task's model, its parameters and buffers in ``dtype``.

    Raises SpecError where there is nothing to train, or where that would lose what the model is
    built on: imaginary parts, or the coarse numbers of half precision.
    """
    name = type(task).__name__
    tensors = [*model.named_parameters(), *model.named_buffers()]
    if not any(True for _ in model.parameters()):
        raise SpecError(
            f"task {name}: its model ({type(model).__name__}) has no parameters, so there is "
            "nothing to train. Return a module with parameters from model()."
        )
    for place, x in tensors:
        half = x.is_floating_point() and x.element_size() < 4 and not x.is_quantized
        if x.is_complex() or (half and isinstance(x, torch.nn.Parameter)):
            lost = "imaginary parts would be dropped" if x.is_complex() else "it would not stay so"
            raise SpecError(
                f"task {name}: {place!r} of its model is {_name(x.dtype)}, and the experiment "
                f"trains in {_name(dtype)} (dtype: float32 or float64): {lost}. Build the model "
                "of real float32 tensors."
            )
    return model.to(dtype=dtype)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def need_samples(samples: Any, split: str, task: Any) -> Any:
    """Return the task's samples. Raises SpecError where there are none, or of unknown number."""
    name = type(task).__name__
    try:
        count = len(samples)
    except TypeError as error:
        raise SpecError(
            f"task {name}: dataset({split!r}) gives a {type(samples).__name__}, which has no "
            "length. Return a map-style data set, one with __len__ and __getitem__."
        ) from error
    if not count:
        raise SpecError(
            f"task {name}: dataset({split!r}) has no samples, and one at least is needed. "
            "Are its files where the task looks for them?"
        )
    return samples


def device_of(device: str, rank: int) -> torch.device:
    """Return the device of a rank. ``auto``: a GPU if there is one; ranks beyond the number of GPUs
    share them.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise WorkbenchError(
            f"device={device!r}: torch {torch.__version__} finds no GPU on {os.uname().nodename}; "
            "use device='cpu' or 'auto'"
        )
    if device == "cuda":
        device = f"cuda:{rank % torch.cuda.device_count()}"
    return torch.device(device)
