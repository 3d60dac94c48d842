"""Losses: the scalars with which backward passes begin, and the vectors that they average."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from workbench.auditing.messages import Vector

_AVERAGED = {
    "MeanBackward",
    "SumBackward",
    "NllLossBackward",
    "MseLossBackward",
    "BinaryCrossEntropyWithLogitsBackward",
    "L1LossBackward",
    "HuberLossBackward",
    "SmoothL1LossBackward",
}
_ENOUGH = 40  # nodes of a graph that are looked through


def is_loss(outputs: Sequence[Any], seeds: Sequence[Any]) -> bool:
    """Return whether a backward pass of these begins with a loss, and not in the middle."""
    if any(getattr(one, "numel", int)() != 1 for one in outputs):
        return False
    given = [one for one in seeds if one is not None]
    if not all(one.dim() == 0 and float(one) == 1 for one in given):
        return False
    frame = sys._getframe().f_back
    while frame is not None:  # torch's pipelines ask for shapes in such a pass
        if frame.f_code.co_name == "_backward_metadata_inference":
            return False
        frame = frame.f_back
    return True


def value_of(outputs: Sequence[torch.Tensor]) -> float:
    return float(sum(float(one.detach()) for one in outputs))


def parameters_below(node: Any) -> Iterator[torch.nn.Parameter]:
    """Yield the parameters that a backward pass from ``node`` reaches."""
    queue, visited = [node], set()
    while queue:
        node = queue.pop()
        if node is None or node in visited:
            continue
        visited.add(node)
        variable = getattr(node, "variable", None)
        if isinstance(variable, torch.nn.Parameter):
            yield variable
        queue += [one for one, _ in node.next_functions]


def vectors_of(loss: torch.Tensor) -> list[Vector] | None:
    """Follow a loss back to the vectors that it sums or averages; None: it is made otherwise.

    The weight of their elements is known once the backward pass has gone through: per unit of what
    comes in at the loss, which a hook of the script's own may have scaled.
    """
    vectors: list[Vector] = []
    seeds: list[float] = []
    first: Any = loss.grad_fn
    first.register_prehook(lambda gradients: seeds.append(float(gradients[0])))
    queue: list[Any] = [loss.grad_fn]
    visited = set()
    while queue:
        node = queue.pop()
        if node is None or node in visited:
            continue
        visited.add(node)
        kind = type(node).__name__.rstrip("0123456789")
        if kind in _AVERAGED:
            vectors.append(_vector(node, kind, seeds))
            continue
        below = [one for one, _ in node.next_functions]
        if any(type(one).__name__ == "AccumulateGrad" for one in below) or len(visited) > _ENOUGH:
            return None
        queue += below
    return vectors


def _vector(node: Any, kind: str, seeds: list[float]) -> Vector:
    """Return the vector that a node of a graph averages."""
    of_classes = kind.startswith("Nll")
    if of_classes:
        count = float(node._saved_total_weight)
    elif hasattr(node, "_saved_self_sym_sizes"):
        count = float(np.prod(node._saved_self_sym_sizes))
    else:
        count = float(node._saved_self.numel())
    mean = kind == "MeanBackward" or getattr(node, "_saved_reduction", 2) == 1
    below = node.next_functions[0][0]
    masked = kind == "SumBackward" and type(below).__name__ == "MulBackward0"
    mask = getattr(below, "_saved_other", None) if masked else None
    if mask is not None and not mask.requires_grad and bool(((mask == 0) | (mask == 1)).all()):
        count = float(mask.sum())
    alike = not (of_classes and node._saved_weight is not None)
    vector = Vector(count, None, mean or of_classes, alike)
    divisor = count if mean else 1.0

    def seed_arrives(gradients: Sequence[torch.Tensor]) -> None:
        seed = seeds[-1] if seeds else 1.0
        vector.weight = float(gradients[0]) / divisor / seed if divisor and seed else 0.0

    node.register_prehook(seed_arrives)
    return vector
