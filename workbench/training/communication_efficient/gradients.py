"""Gradients of several parameters as one flat buffer, and back."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def gradient(parameter: torch.Tensor) -> torch.Tensor:
    """Return the parameter's gradient; zeros where the loss did not depend on it."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


def flatten(parameters: Sequence[torch.Tensor]) -> torch.Tensor:
    """Copy the gradients into one buffer, one after the other."""
    return torch.cat([gradient(one).view(-1) for one in parameters])


def write_back(flat_N: torch.Tensor, parameters: Sequence[torch.Tensor]) -> None:
    """Undo ``flatten``: copy sections of the buffer into the gradients."""
    parts = torch.split(flat_N, [one.numel() for one in parameters])
    for one, part in zip(parameters, parts, strict=True):
        gradient(one).view(-1).copy_(part)
