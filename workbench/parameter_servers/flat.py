"""A model's parameters as one vector, so that servers can hold any part of it."""

from __future__ import annotations

from collections.abc import Sequence

import torch


class Flat:
    """``values_N`` and ``grads_N`` of a model's N trainable elements, in the order of
    ``model.parameters()``; every parameter and its gradient is a view of them.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        parameters = [one for one in model.parameters() if one.requires_grad]
        self.values_N = torch.cat([one.detach().reshape(-1) for one in parameters])
        self.grads_N = torch.zeros_like(self.values_N)
        at = 0
        for one in parameters:
            place = slice(at, at + one.numel())
            one.data = self.values_N[place].view_as(one)
            one.grad = self.grads_N[place].view_as(one)
            at += one.numel()


class Part:
    """Some ranges of ``whole_N``, one after the other, as ``part_n`` in host memory.

    A single range is a view of the whole and costs nothing; otherwise ``part_n`` is a buffer, which
    ``gather`` fills and ``scatter`` writes back.
    """

    def __init__(self, whole_N: torch.Tensor, ranges: Sequence[range]) -> None:
        self.whole_N, self.ranges = whole_N, [one for one in ranges if len(one)]
        elements = sum(map(len, self.ranges))
        self.is_view = len(self.ranges) <= 1 and whole_N.device.type == "cpu"
        if self.is_view:
            start = self.ranges[0].start if self.ranges else 0
            self.part_n = whole_N[start : start + elements]
        else:
            self.part_n = torch.empty(elements, dtype=whole_N.dtype)

    def gather(self) -> torch.Tensor:
        if not self.is_view:
            at = 0
            for one in self.ranges:
                self.part_n[at : at + len(one)].copy_(self.whole_N[one.start : one.stop])
                at += len(one)
        return self.part_n

    def scatter(self) -> None:
        if not self.is_view:
            at = 0
            for one in self.ranges:
                self.whole_N[one.start : one.stop].copy_(self.part_n[at : at + len(one)])
                at += len(one)
